#include <nanobind/stl/vector.h>

#include "../cluster/partition.hpp"
#include "../cluster/represent.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

void register_index(nb::module_& m) {
    m.def(
        "aggregate_positives",
        [](const CheckedFeatures& features, const CheckedCsr& positives, std::int64_t keep, int threads,
           nb::object report) {
            PythonMonitor monitor(std::move(report));
            Representation out;
            {
                const nb::gil_scoped_release released;
                if (positives.view.cols != features.view.rows())
                    throw std::invalid_argument("the labels have another number of rows than the features");
                out = aggregate_positives(features.view, positives.view, keep, threads, monitor);
            }
            return nb::make_tuple(give(std::move(out.sparse)),
                                  give(std::move(out.dense), positives.view.rows(), features.view.dense.cols));
        },
        "features"_a, "positives"_a, "keep"_a, "threads"_a, "report"_a.none(),
        "The summed, normalised features of each label's positives: ((indptr, indices, values), dense).");

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
            for (std::vector<std::int32_t>& level : levels) out.append(give(std::move(level)));
            return out;
        },
        "representation"_a, "branching"_a, "stop_size"_a, "spherical"_a, "balanced"_a, "bisect"_a, "max_iter"_a,
        "min_moved"_a, "seed"_a, "threads"_a, "report"_a.none(), "The cluster of every label at every level.");
}

}  // namespace carya::bind
