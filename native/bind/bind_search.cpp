#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../ensemble.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

struct LayerArrays {
    Table<std::uint16_t> starts;
    std::int64_t features;
    Array<std::uint8_t> data;
    Array<float> scales;
    Precision precision;
    Table<float> dense;
    Array<float> offsets;
    Array<std::int64_t> chunks;
    Array<std::int32_t> order;
    Transform transform;
    std::shared_ptr<const Folder> folder;  // that some of the arrays lie in; null if all lie in memory

    PackedView packed() const {
        return {{start_lines(starts.data(), starts.size()), features},
                span(data),
                span(scales),
                PackedForm::of(span(chunks), precision)};
    }

    SearchLayer view() const {
        return {packed(),
                bind::view(dense),
                span(offsets),
                span(chunks),
                span(order),
                transform,
                folder ? &folder->seal() : nullptr};
    }
};

class Searcher {
public:
    Searcher(const std::vector<const LayerArrays*>& layers, const std::vector<std::string>& layouts,
             Array<std::int32_t> leaf_labels)
        : leaf_labels_(std::move(leaf_labels)), search_(views(layers), layouts, span(leaf_labels_)) {
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
        for (const LayerArrays* layer : layers) out.push_back(layer->view());
        return out;
    }

    std::vector<LayerArrays> kept_;
    Array<std::int32_t> leaf_labels_;
    BeamSearch search_;
};

// As rows of 16-bit numbers, the way they are saved.
nb::ndarray<nb::numpy, std::uint16_t> give_lines(std::vector<StartLine>&& lines) {
    auto owner = std::make_unique<std::vector<StartLine>>(std::move(lines));
    auto* data = reinterpret_cast<std::uint16_t*>(owner->data());
    const std::size_t count = owner->size();
    nb::capsule keeper(owner.release(), [](void* p) noexcept { delete static_cast<std::vector<StartLine>*>(p); });
    return nb::ndarray<nb::numpy, std::uint16_t>(data, {count, sizeof(StartLine) / sizeof(std::uint16_t)}, keeper);
}

}  // namespace

void register_search(nb::module_& m) {
    nb::enum_<Transform::Kind>(m, "TransformKind")
        .value("noop", Transform::noop)
        .value("sigmoid", Transform::sigmoid)
        .value("log_sigmoid", Transform::log_sigmoid)
        .value("hinge", Transform::hinge)
        .value("log_hinge", Transform::log_hinge);

    nb::enum_<Precision>(m, "Precision")
        .value("float32", Precision::float32)
        .value("float16", Precision::float16)
        .value("int8", Precision::int8);

    m.def(
        "pack",
        [](const CheckedCsr& weights, Array<std::int64_t> chunks, Precision precision, int threads) {
            Packed out;
            {
                const nb::gil_scoped_release released;
                if (chunks.size() < 1 || span(chunks).back() != weights.view.cols)
                    throw std::invalid_argument("the chunks must cover the columns of the weights");
                out = pack(weights.view, span(chunks), precision, threads);
            }
            return nb::make_tuple(give_lines(std::move(out.lines)), give(std::move(out.data)),
                                  give(std::move(out.scales)));
        },
        "weights"_a, "chunks"_a.noconvert(), "precision"_a, "threads"_a,
        "Weights of features x positions in the form they are searched in: (starts, data, scales).");

    nb::class_<LayerArrays>(m, "SearchLayer", "The arrays of one layer.")
        .def(
            "__init__",
            [](LayerArrays* self, Table<std::uint16_t> starts, std::int64_t features, Array<std::uint8_t> data,
               Array<float> scales, Precision precision, Table<float> dense, Array<float> offsets,
               Array<std::int64_t> chunks, Array<std::int32_t> order, Transform::Kind kind, float power,
               const OpenedFolder* opened) {
                if (chunks.size() < 1) throw std::invalid_argument("a layer needs chunks");
                new (self) LayerArrays{std::move(starts),
                                       features,
                                       std::move(data),
                                       std::move(scales),
                                       precision,
                                       std::move(dense),
                                       std::move(offsets),
                                       std::move(chunks),
                                       std::move(order),
                                       Transform{kind, power},
                                       opened ? opened->folder : nullptr};
            },
            "starts"_a.noconvert(), "features"_a, "data"_a.noconvert(), "scales"_a.noconvert(), "precision"_a,
            "dense"_a.noconvert(), "offsets"_a.noconvert(), "chunks"_a.noconvert(), "order"_a.noconvert(), "kind"_a,
            "power"_a, "folder"_a.none())
        .def(
            "unpack",
            [](const LayerArrays& self) {
                Csr out;
                {
                    const nb::gil_scoped_release released;
                    if (self.folder) self.folder->seal().need(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "the layer");
                    out = unpack(self.packed(), span(self.chunks));
                }
                return give(std::move(out));
            },
            "The weights as (indptr, positions, values), feature by feature.")
        .def(
            "unpack_at",
            [](const LayerArrays& self, Array<std::int32_t> positions) {
                Csr out;
                {
                    const nb::gil_scoped_release released;
                    if (self.folder) self.folder->seal().need(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "the layer");
                    out = unpack(self.packed(), span(self.chunks), span(positions));
                }
                return give(std::move(out));
            },
            "positions"_a.noconvert(), "The weights at some positions, ascending, as (indptr, which of them, values).")
        .def(
            "weights_at",
            [](const LayerArrays& self, Array<std::int32_t> features, std::int32_t position) {
                std::vector<float> out;
                {
                    const nb::gil_scoped_release released;
                    if (self.folder) self.folder->seal().need(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "the layer");
                    out = weights_at(self.packed(), span(self.chunks), span(features), position);
                }
                return give(std::move(out));
            },
            "features"_a.noconvert(), "position"_a, "The weights of some features at one position.");

    nb::class_<Searcher>(m, "BeamSearch", "Beam search over layers.")
        .def(nb::init<const std::vector<const LayerArrays*>&, const std::vector<std::string>&, Array<std::int32_t>>(),
             "layers"_a, "layouts"_a, "leaf_labels"_a.noconvert())
        .def(
            "predict",
            [](const Searcher& self, const CheckedFeatures& queries, std::int64_t top_k, std::int64_t beam_width,
               float min_score, int threads, nb::object report) {
                PythonMonitor monitor(std::move(report));
                Csr out;
                {
                    const nb::gil_scoped_release released;
                    self.check(queries.view);
                    out = self.search().predict(queries.view, {top_k, beam_width, min_score}, threads, &monitor);
                }
                return give(std::move(out));
            },
            "queries"_a, "top_k"_a, "beam_width"_a, "min_score"_a, "threads"_a, "report"_a.none(),
            "(indptr, labels, scores), every row best first.")
        .def(
            "rank",
            [](const Searcher& self, Array<std::int32_t> indices, Array<float> values, Array<float> dense,
               std::int64_t top_k, std::int64_t beam_width, float min_score) -> nb::object {
                std::vector<std::int32_t> labels;
                std::vector<float> scores;
                bool taken = false;
                {
                    const nb::gil_scoped_release released;
                    const BeamSearch& search = self.search();
                    const Query query{span(indices), span(values), dense.data()};
                    taken = static_cast<std::int64_t>(dense.size()) == search.dense_cols() && search.takes(query);
                    if (taken)
                        search.with_work([&](BeamSearch::Work& work) {
                            const auto found = search.rank(query, {top_k, beam_width, min_score}, work);
                            labels.resize(found.size());
                            scores.resize(found.size());
                            for (std::size_t i = 0; i < found.size(); ++i) {
                                labels[i] = found[i].node;
                                scores[i] = found[i].score;
                            }
                        });
                }
                if (!taken) return nb::none();
                return nb::make_tuple(give(std::move(labels)), give(std::move(scores)));
            },
            "indices"_a.noconvert(), "values"_a.noconvert(), "dense"_a.noconvert(), "top_k"_a, "beam_width"_a,
            "min_score"_a, "(labels, scores) of one query, best first; None if the arrays are not those of a query.")
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

    nb::enum_<Combine>(m, "Combine")
        .value("mean", Combine::mean)
        .value("rank", Combine::rank)
        .value("count", Combine::count)
        .value("softmax", Combine::softmax)
        .value("sigmoid", Combine::sigmoid);

    m.def(
        "combine",
        [](const std::vector<const CheckedCsr*>& rankings, Combine how, Array<float> weights, std::int64_t top_k,
           int threads) {
            Csr out;
            {
                const nb::gil_scoped_release released;
                std::vector<CsrView> views;
                for (const CheckedCsr* one : rankings) views.push_back(one->view);
                out = combine(views, how, span(weights), top_k, threads);
            }
            return give(std::move(out));
        },
        "rankings"_a, "how"_a, "weights"_a.noconvert(), "top_k"_a, "threads"_a,
        "Rankings of the same rows made one: (indptr, labels, scores).");

    m.def(
        "predict_combined",
        [](const std::vector<const Searcher*>& members, const CheckedFeatures& queries, std::int64_t top_k,
           std::int64_t beam_width, std::int64_t pool, Combine how, Array<float> weights, int threads,
           nb::object report) {
            PythonMonitor monitor(std::move(report));
            Csr out;
            {
                const nb::gil_scoped_release released;
                std::vector<const BeamSearch*> searches;
                for (const Searcher* member : members) {
                    member->check(queries.view);
                    searches.push_back(&member->search());
                }
                out = predict_combined(searches, queries.view, {top_k, beam_width}, pool, how, span(weights), threads,
                                       &monitor);
            }
            return give(std::move(out));
        },
        "members"_a, "queries"_a, "top_k"_a, "beam_width"_a, "pool"_a, "how"_a, "weights"_a.noconvert(), "threads"_a,
        "report"_a.none(), "Several searches of the same rows, and their rankings made one.");
}

}  // namespace carya::bind
