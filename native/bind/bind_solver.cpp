#include "../solver/train_layers.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "arrays.hpp"
#include "chunked_weights.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

// A LayerProblem that keeps its arrays alive.
struct PyLayerProblem {
    std::int64_t level;
    std::uint64_t seed;
    CheckedCsr positives;
    Array<std::int32_t> order;
    Array<std::int64_t> chunks;
    std::optional<CheckedCsr> shortlist;
    std::int64_t first_parent;

    LayerProblem view() const {
        LayerProblem out;
        out.level = level;
        out.seed = seed;
        out.first_parent = first_parent;
        out.positives = positives.view;
        out.order = span(order);
        out.chunks = span(chunks);
        out.all_rows = !shortlist.has_value();
        if (shortlist) out.shortlist = shortlist->view;
        return out;
    }
};

}  // namespace

void register_solver(nb::module_& m) {
    nb::class_<PyLayerProblem>(m, "LayerProblem", "Training problem for one layer.")
        .def(
            "__init__",
            [](PyLayerProblem* self, std::int64_t level, std::uint64_t seed, const CheckedCsr& positives,
               Array<std::int32_t> order, Array<std::int64_t> chunks, const std::optional<CheckedCsr>& shortlist,
               std::int64_t first_parent) {
                new (self) PyLayerProblem{level,     seed,        positives, std::move(order), std::move(chunks),
                                          shortlist, first_parent};
            },
            "level"_a, "seed"_a, "positives"_a, "order"_a.noconvert(), "chunks"_a.noconvert(), "shortlist"_a.none(),
            "first_parent"_a = 0);

    nb::enum_<Loss>(m, "Loss")
        .value("squared_hinge", Loss::squared_hinge)
        .value("hinge", Loss::hinge)
        .value("logistic", Loss::logistic);

    nb::enum_<Penalty>(m, "Penalty").value("l2", Penalty::l2).value("l1", Penalty::l1);

    m.def(
        "train_layers",
        [](const CheckedFeatures& features, const std::vector<const PyLayerProblem*>& problems, Loss loss,
           Penalty penalty, float positive_cost, float negative_cost, bool use_target_costs, float bias_feature,
           float tol, int max_iter, float threshold, bool threshold_by_effect, std::int64_t max_weights,
           WeightDtype dtype, const std::optional<Array<float>>& sample_weights, int threads, nb::object report) {
            if (sample_weights && static_cast<std::int64_t>(sample_weights->size()) != features.view.rows())
                throw std::invalid_argument("sample_weights must have one entry per row.");
            const std::span<const float> weights = sample_weights ? span(*sample_weights) : std::span<const float>();
            SolverOptions options;
            options.loss = loss;
            options.penalty = penalty;
            options.positive_cost = positive_cost;
            options.negative_cost = negative_cost;
            options.use_target_costs = use_target_costs;
            options.bias_feature = bias_feature;
            options.tol = tol;
            options.max_iter = max_iter;
            options.threshold = threshold;
            options.threshold_by_effect = threshold_by_effect;
            options.max_weights = max_weights;
            options.dtype = dtype;
            PythonMonitor monitor(std::move(report));
            std::vector<LayerProblem> views;
            for (const PyLayerProblem* problem : problems) views.push_back(problem->view());
            std::vector<LayerWeights> layers;
            {
                const ReleasedGil released;
                layers = train_layers(features.view, views, options, weights, threads, monitor);
            }
            nb::list out;
            for (LayerWeights& layer : layers) {
                const std::size_t nodes = layer.biases.size();
                out.append(nb::make_tuple(PyChunkedWeights(std::move(layer.chunks)), to_numpy(std::move(layer.biases)),
                                          to_numpy(std::move(layer.dense), nodes, features.view.dense.cols)));
            }
            return out;
        },
        "features"_a, "problems"_a, "loss"_a, "penalty"_a, "positive_cost"_a, "negative_cost"_a, "use_target_costs"_a,
        "bias_feature"_a, "tol"_a, "max_iter"_a, "threshold"_a, "threshold_by_effect"_a, "max_weights"_a, "dtype"_a,
        "sample_weights"_a.none(), "threads"_a, "report"_a.none(),
        "Train independent layers and return a list of (weights, biases, dense), one tuple per layer.");
}

}  // namespace carya::bind
