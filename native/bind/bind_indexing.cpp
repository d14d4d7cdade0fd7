#include <nanobind/stl/vector.h>

#include "../indexing/label_representations.hpp"
#include "../indexing/recursive_partition.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

LabelVectors aggregate(const CheckedFeatures& features, const CheckedCsr& positives, const AggregationLimits& limits,
                       int threads, Monitor& monitor) {
    if (positives.view.cols != features.view.rows())
        throw std::invalid_argument("features has " + std::to_string(features.view.rows()) +
                                    " rows, but positives has " + std::to_string(positives.view.cols) + " columns.");
    return aggregate_positives(features.view, positives.view, limits, threads, monitor);
}

}  // namespace

void register_indexing(nb::module_& m) {
    nb::class_<LabelGroup>(m, "LabelGroup", "Label representations that can be partitioned.")
        .def(
            "__init__",
            [](LabelGroup* group, const CheckedFeatures& representation, int threads) {
                const ReleasedGil released;
                new (group) LabelGroup(make_root_group(representation.view, threads));
            },
            "representation"_a, "threads"_a, nb::keep_alive<1, 2>())
        .def_prop_ro("size", &LabelGroup::size);

    m.def(
        "aggregate_positives",
        [](const CheckedFeatures& features, const CheckedCsr& positives, double energy, std::int64_t max_features,
           std::int64_t max_rows, bool sort, int threads, nb::object report) {
            PythonMonitor monitor(std::move(report));
            LabelVectors vectors;
            Csr sparse;
            {
                const ReleasedGil released;
                vectors = aggregate(features, positives, {energy, max_features, max_rows}, threads, monitor);
                sparse = to_csr(vectors, sort ? EntryOrder::by_column : EntryOrder::unchanged, threads);
            }
            return nb::make_tuple(to_numpy(std::move(sparse)),
                                  to_numpy(std::move(*vectors.dense), vectors.size(), features.view.dense.cols));
        },
        "features"_a, "positives"_a, "energy"_a, "max_features"_a, "max_rows"_a, "sort"_a, "threads"_a,
        "report"_a.none(),
        "Return the normalized sum of each label's positive rows as ((indptr, indices, values), dense). Use at most "
        "max_rows positives per label. If sort is false, the columns are in the order that LabelGroup preserves.");

    m.def(
        "group_positives",
        [](const CheckedFeatures& features, const CheckedCsr& positives, double energy, std::int64_t max_features,
           std::int64_t max_rows, int threads, nb::object report) {
            PythonMonitor monitor(std::move(report));
            const ReleasedGil released;
            return make_root_group(aggregate(features, positives, {energy, max_features, max_rows}, threads, monitor),
                                   threads);
        },
        "features"_a, "positives"_a, "energy"_a, "max_features"_a, "max_rows"_a, "threads"_a, "report"_a.none(),
        "Return the result of aggregate_positives as a LabelGroup, using at most max_rows positives per label.");

    m.def(
        "partition",
        [](const LabelGroup& labels, const std::vector<int>& branching, std::int64_t stop_size, bool spherical,
           bool balanced, bool bisect, int max_iter, double min_moved, std::int64_t sample_size, std::uint64_t seed,
           int threads, nb::object report) {
            PartitionOptions options;
            options.split = {spherical, balanced, max_iter, min_moved, sample_size};
            options.bisect = bisect;
            options.stop_size = stop_size;
            options.seed = seed;
            PythonMonitor monitor(std::move(report));
            std::vector<std::vector<std::int32_t>> levels;
            {
                const ReleasedGil released;
                levels = partition(labels, branching, options, threads, monitor);
            }
            nb::list out;
            for (std::vector<std::int32_t>& level : levels) out.append(to_numpy(std::move(level)));
            return out;
        },
        "labels"_a, "branching"_a, "stop_size"_a, "spherical"_a, "balanced"_a, "bisect"_a, "max_iter"_a, "min_moved"_a,
        "sample_size"_a, "seed"_a, "threads"_a, "report"_a.none(), "Return the cluster of each label at each level.");
}

}  // namespace carya::bind
