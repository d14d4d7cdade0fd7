#include <nanobind/stl/vector.h>

#include "../indexing/label_representations.hpp"
#include "../indexing/partition.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

void register_indexing(nb::module_& m) {
    m.def(
        "aggregate_positives",
        [](const CheckedFeatures& features, const CheckedCsr& positives, std::int64_t max_features, int threads,
           nb::object report) {
            PythonMonitor monitor(std::move(report));
            LabelRepresentations out;
            {
                const nb::gil_scoped_release released;
                if (positives.view.cols != features.view.rows())
                    throw std::invalid_argument("features has " + std::to_string(features.view.rows()) +
                                                " rows, but positives has " + std::to_string(positives.view.cols) +
                                                " columns.");
                out = aggregate_positives(features.view, positives.view, max_features, threads, monitor);
            }
            return nb::make_tuple(to_numpy(std::move(out.sparse)),
                                  to_numpy(std::move(out.dense), positives.view.rows(), features.view.dense.cols));
        },
        "features"_a, "positives"_a, "max_features"_a, "threads"_a, "report"_a.none(),
        "Return the normalized feature sum of each label's positive rows as ((indptr, indices, values), dense).");

    m.def(
        "partition",
        [](const CheckedFeatures& representation, const std::vector<int>& branching, std::int64_t stop_size,
           bool spherical, bool balanced, bool bisect, int max_iter, double min_moved, std::uint64_t seed, int threads,
           nb::object report) {
            PartitionOptions options;
            options.split = {spherical, balanced, max_iter, min_moved};
            options.bisect = bisect;
            options.stop_size = stop_size;
            options.seed = seed;
            PythonMonitor monitor(std::move(report));
            std::vector<std::vector<std::int32_t>> levels;
            {
                const nb::gil_scoped_release released;
                levels = partition(representation.view, branching, options, threads, monitor);
            }
            nb::list out;
            for (std::vector<std::int32_t>& level : levels) out.append(to_numpy(std::move(level)));
            return out;
        },
        "representation"_a, "branching"_a, "stop_size"_a, "spherical"_a, "balanced"_a, "bisect"_a, "max_iter"_a,
        "min_moved"_a, "seed"_a, "threads"_a, "report"_a.none(), "Return the cluster of each label at each level.");
}

}  // namespace carya::bind
