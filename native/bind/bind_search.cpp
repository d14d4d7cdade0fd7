#include <nanobind/stl/vector.h>

#include "../beam.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

struct LayerArrays {
    CheckedCsr weights;
    Table<float> dense;
    Array<float> offsets;
    Array<std::int64_t> chunks;
    Array<std::int32_t> order;
    Transform transform;
};

class Searcher {
public:
    explicit Searcher(const std::vector<const LayerArrays*>& layers) : search_(views(layers)) {
        for (const LayerArrays* layer : layers) kept_.push_back(*layer);
    }

    const BeamSearch& search() const { return search_; }

    void check(const Features& queries) const {
        if (queries.sparse.cols != search_.sparse_cols() || queries.dense.cols != search_.dense_cols())
            throw std::invalid_argument("the queries have other columns than the model");
    }

private:
    static std::vector<SearchLayer> views(const std::vector<const LayerArrays*>& layers) {
        std::vector<SearchLayer> out;
        for (const LayerArrays* layer : layers)
            out.push_back({layer->weights.view, view(layer->dense), span(layer->offsets), span(layer->chunks),
                           span(layer->order), layer->transform});
        return out;
    }

    std::vector<LayerArrays> kept_;
    BeamSearch search_;
};

}  // namespace

void register_search(nb::module_& m) {
    nb::enum_<Transform::Kind>(m, "TransformKind")
        .value("noop", Transform::noop)
        .value("sigmoid", Transform::sigmoid)
        .value("log_sigmoid", Transform::log_sigmoid)
        .value("hinge", Transform::hinge)
        .value("log_hinge", Transform::log_hinge);

    nb::class_<LayerArrays>(m, "SearchLayer", "The arrays of one layer.")
        .def(
            "__init__",
            [](LayerArrays* self, const CheckedCsr& weights, Table<float> dense, Array<float> offsets,
               Array<std::int64_t> chunks, Array<std::int32_t> order, Transform::Kind kind, float power) {
                new (self) LayerArrays{weights,           std::move(dense), std::move(offsets),
                                       std::move(chunks), std::move(order), Transform{kind, power}};
            },
            "weights"_a, "dense"_a.noconvert(), "offsets"_a.noconvert(), "chunks"_a.noconvert(), "order"_a.noconvert(),
            "kind"_a, "power"_a);

    nb::class_<Searcher>(m, "BeamSearch", "Beam search over layers.")
        .def(nb::init<const std::vector<const LayerArrays*>&>(), "layers"_a)
        .def(
            "predict",
            [](const Searcher& self, const CheckedFeatures& queries, std::int64_t top_k, std::int64_t beam_width,
               int threads, nb::object report) {
                PythonMonitor monitor(std::move(report));
                Csr out;
                {
                    const nb::gil_scoped_release released;
                    self.check(queries.view);
                    out = self.search().predict(queries.view, top_k, beam_width, threads, &monitor);
                }
                return give(std::move(out));
            },
            "queries"_a, "top_k"_a, "beam_width"_a, "threads"_a, "report"_a.none(),
            "(indptr, labels, scores), every row best first.")
        .def(
            "rank",
            [](const Searcher& self, const CheckedFeatures& query, std::int64_t top_k, std::int64_t beam_width) {
                std::vector<std::int32_t> labels;
                std::vector<float> scores;
                {
                    const nb::gil_scoped_release released;
                    self.check(query.view);
                    BeamSearch::Work work;
                    const CsrView& x = query.view.sparse;
                    for (const Scored& best :
                         self.search().rank({x.indices, x.values, query.view.dense.data}, top_k, beam_width, work)) {
                        labels.push_back(best.node);
                        scores.push_back(best.score);
                    }
                }
                return nb::make_tuple(give(std::move(labels)), give(std::move(scores)));
            },
            "query"_a, "top_k"_a, "beam_width"_a, "(labels, scores) of one query, best first.")
        .def(
            "selected",
            [](const Searcher& self, const CheckedFeatures& queries, const CheckedCsr& candidates, int threads,
               nb::object report) {
                PythonMonitor monitor(std::move(report));
                std::vector<float> scores;
                {
                    const nb::gil_scoped_release released;
                    self.check(queries.view);
                    if (candidates.view.rows() != queries.view.rows() ||
                        candidates.view.cols != self.search().n_labels())
                        throw std::invalid_argument("the candidates must be rows x labels");
                    scores = self.search().selected(queries.view, candidates.view, threads, &monitor);
                }
                return give(std::move(scores));
            },
            "queries"_a, "candidates"_a, "threads"_a, "report"_a.none(), "One score for each candidate.");
}

}  // namespace carya::bind
