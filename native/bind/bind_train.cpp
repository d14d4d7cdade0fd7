#include "../solve/train.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

// A LayerProblem whose arrays are kept alive.
struct Problem {
    std::int64_t level;
    std::uint64_t seed;
    CheckedCsr positives;
    Array<std::int32_t> order;
    Array<std::int64_t> chunks;
    std::optional<CheckedCsr> shortlist;

    LayerProblem view() const {
        LayerProblem out;
        out.level = level;
        out.seed = seed;
        out.positives = positives.view;
        out.order = span(order);
        out.chunks = span(chunks);
        out.every_row = !shortlist.has_value();
        if (shortlist) out.shortlist = shortlist->view;
        return out;
    }
};

}  // namespace

void register_train(nb::module_& m) {
    nb::class_<Problem>(m, "LayerProblem", "What one layer is trained on.")
        .def(
            "__init__",
            [](Problem* self, std::int64_t level, std::uint64_t seed, const CheckedCsr& positives,
               Array<std::int32_t> order, Array<std::int64_t> chunks, const std::optional<CheckedCsr>& shortlist) {
                new (self) Problem{level, seed, positives, std::move(order), std::move(chunks), shortlist};
            },
            "level"_a, "seed"_a, "positives"_a, "order"_a.noconvert(), "chunks"_a.noconvert(), "shortlist"_a.none());

    nb::enum_<Loss>(m, "Loss")
        .value("squared_hinge", Loss::squared_hinge)
        .value("hinge", Loss::hinge)
        .value("logistic", Loss::logistic);

    nb::enum_<Penalty>(m, "Penalty").value("l2", Penalty::l2).value("l1", Penalty::l1);

    m.def(
        "train_layers",
        [](const CheckedFeatures& features, const std::vector<const Problem*>& problems, Loss loss, Penalty penalty,
           float positive_cost, float negative_cost, bool own_costs, float bias, float tolerance, int max_passes,
           float threshold, bool by_effect, std::int64_t max_weights, int threads, nb::object report) {
            SolverOptions options;
            options.loss = loss;
            options.penalty = penalty;
            options.positive_cost = positive_cost;
            options.negative_cost = negative_cost;
            options.own_costs = own_costs;
            options.bias = bias;
            options.tolerance = tolerance;
            options.max_passes = max_passes;
            options.threshold = threshold;
            options.by_effect = by_effect;
            options.max_weights = max_weights;
            PythonMonitor monitor(std::move(report));
            std::vector<LayerProblem> views;
            for (const Problem* problem : problems) views.push_back(problem->view());
            std::vector<LayerWeights> layers;
            {
                const nb::gil_scoped_release released;
                layers = train_layers(features.view, views, options, threads, monitor);
            }
            nb::list out;
            for (LayerWeights& layer : layers) {
                const std::size_t nodes = layer.offsets.size();
                out.append(nb::make_tuple(give(std::move(layer.weights)), give(std::move(layer.offsets)),
                                          give(std::move(layer.dense), nodes, features.view.dense.cols)));
            }
            return out;
        },
        "features"_a, "problems"_a, "loss"_a, "penalty"_a, "positive_cost"_a, "negative_cost"_a, "own_costs"_a,
        "bias"_a, "tolerance"_a, "max_passes"_a, "threshold"_a, "by_effect"_a, "max_weights"_a, "threads"_a,
        "report"_a.none(),
        "Train layers that do not depend on each other: a list of ((indptr, indices, values), offsets, dense).");
}

}  // namespace carya::bind
