#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../layouts/insertion.hpp"
#include "../layouts/packing.hpp"
#include "../search/ensemble.hpp"
#include "arrays.hpp"
#include "chunked_weights.hpp"
#include "packed_arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

struct PySearchLayer {
    Matrix<std::uint16_t> starts;
    std::int64_t features;
    Array<std::uint8_t> data;
    Array<float> scales;
    WeightDtype dtype;
    Matrix<float> dense;
    Array<float> biases;
    Array<std::int64_t> chunks;
    Array<std::int32_t> order;
    Transform transform;
    std::shared_ptr<const ModelFolder> folder;  // source of the memory-mapped arrays; null if all arrays are in memory
    std::int64_t max_bit_chunks;

    PackedView packed() const {
        return {{start_lines(starts.data(), starts.size()), features},
                span(data),
                span(scales),
                PackedFormat::of(span(chunks), dtype, max_bit_chunks)};
    }

    SearchLayer view() const {
        return {packed(),
                bind::view(dense),
                span(biases),
                span(chunks),
                span(order),
                transform,
                folder ? &folder->checksums() : nullptr};
    }
};

class PyBeamSearch {
public:
    PyBeamSearch(const std::vector<const PySearchLayer*>& layers, const std::vector<std::string>& layouts,
                 Array<std::int32_t> leaf_labels, const TreeSection& section)
        : leaf_labels_(std::move(leaf_labels)), search_(views(layers), layouts, span(leaf_labels_), section) {
        for (const PySearchLayer* layer : layers) layers_.push_back(*layer);
    }

    const BeamSearch& search() const { return search_; }

    void check(const Features& queries) const {
        if (queries.sparse.cols != search_.sparse_cols() || queries.dense.cols != search_.dense_cols())
            throw std::invalid_argument("The queries must have the same number of features as the model.");
    }

    void check_starts(const Features& queries, const CsrView& starts) const {
        check(queries);
        if (starts.rows() != queries.rows() || starts.cols != n_roots())
            throw std::invalid_argument("starts must have one row per query and one column per root node.");
    }

    std::int64_t n_roots() const { return static_cast<std::int64_t>(layers_.front().chunks.size()) - 1; }

private:
    static std::vector<SearchLayer> views(const std::vector<const PySearchLayer*>& layers) {
        std::vector<SearchLayer> out;
        for (const PySearchLayer* layer : layers) out.push_back(layer->view());
        return out;
    }

    std::vector<PySearchLayer> layers_;
    Array<std::int32_t> leaf_labels_;
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

    nb::class_<PySearchLayer>(m, "SearchLayer", "The arrays of one layer.")
        .def(
            "__init__",
            [](PySearchLayer* self, Matrix<std::uint16_t> starts, std::int64_t features, Array<std::uint8_t> data,
               Array<float> scales, WeightDtype dtype, Matrix<float> dense, Array<float> biases,
               Array<std::int64_t> chunks, Array<std::int32_t> order, Transform::Kind kind, float power,
               const SharedFolder* shared, std::int64_t max_bit_chunks) {
                if (chunks.size() < 1) throw std::invalid_argument("chunks must not be empty.");
                new (self) PySearchLayer{std::move(starts),
                                         features,
                                         std::move(data),
                                         std::move(scales),
                                         dtype,
                                         std::move(dense),
                                         std::move(biases),
                                         std::move(chunks),
                                         std::move(order),
                                         Transform{kind, power},
                                         shared ? shared->folder : nullptr,
                                         max_bit_chunks};
            },
            "starts"_a.noconvert(), "features"_a, "data"_a.noconvert(), "scales"_a.noconvert(), "dtype"_a,
            "dense"_a.noconvert(), "biases"_a.noconvert(), "chunks"_a.noconvert(), "order"_a.noconvert(), "kind"_a,
            "power"_a, "folder"_a.none(), "max_bit_chunks"_a)
        .def(
            "unpack",
            [](const PySearchLayer& self) {
                Csr out;
                {
                    const ReleasedGil released;
                    if (self.folder) self.folder->checksums().verify(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "The layer");
                    out = unpack(self.packed(), span(self.chunks));
                }
                return to_numpy(std::move(out));
            },
            "Return all weights, grouped by feature, as (indptr, positions, values).")
        .def(
            "unpack_at",
            [](const PySearchLayer& self, Array<std::int32_t> positions) {
                Csr out;
                {
                    const ReleasedGil released;
                    if (self.folder) self.folder->checksums().verify(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "The layer");
                    out = unpack(self.packed(), span(self.chunks), span(positions));
                }
                return to_numpy(std::move(out));
            },
            "positions"_a.noconvert(),
            "Return the weights at the given ascending positions as (indptr, indices into positions, values).")
        .def(
            "weights_at",
            [](const PySearchLayer& self, Array<std::int32_t> features, std::int32_t position) {
                std::vector<float> out;
                {
                    const ReleasedGil released;
                    if (self.folder) self.folder->checksums().verify(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "The layer");
                    out = weights_at(self.packed(), span(self.chunks), span(features), position);
                }
                return to_numpy(std::move(out));
            },
            "features"_a.noconvert(), "position"_a, "Return the weights of the given features at one position.")
        .def(
            "chunk_weight_counts",
            [](const PySearchLayer& self) {
                std::vector<std::int64_t> out;
                {
                    const ReleasedGil released;
                    if (self.folder) self.folder->checksums().verify(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "The layer");
                    out = chunk_weight_counts(self.packed(), span(self.chunks));
                }
                return to_numpy(std::move(out));
            },
            "Return the number of weights in each chunk.")
        .def(
            "take_chunks",
            [](const PySearchLayer& self, std::int64_t first, std::int64_t last, int threads) {
                Packed out;
                {
                    const ReleasedGil released;
                    if (self.folder) self.folder->checksums().verify(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "The layer");
                    out = take_chunks(self.packed(), span(self.chunks), first, last, threads);
                }
                return packed_to_numpy(std::move(out));
            },
            "first"_a, "last"_a, "threads"_a,
            "Pack the weights of chunks [first, last) and return (starts, data, scales, n_weights, n_used).")
        .def(
            "insert_nodes",
            [](const PySearchLayer& self, const PyChunkedWeights& added, Array<std::int64_t> new_chunks, int threads) {
                Packed out;
                {
                    const ReleasedGil released;
                    if (self.folder) self.folder->checksums().verify(self.data.data(), self.data.size());
                    self.packed().check(static_cast<std::int64_t>(self.chunks.size()) - 1, "The layer");
                    out = insert_nodes(self.packed(), span(self.chunks), span(new_chunks), added.chunks(),
                                       self.max_bit_chunks, threads);
                }
                return packed_to_numpy(std::move(out));
            },
            "added"_a, "new_chunks"_a.noconvert(), "threads"_a,
            "Pack the weights of the layer and of nodes that are added at the end of each chunk, and return (starts, "
            "data, scales, number of added weights, n_used).");

    nb::class_<TreeSection>(m, "TreeSection", "The location of a search's layers in a larger tree.")
        .def(
            "__init__",
            [](TreeSection* self, std::int64_t n_roots, const std::vector<std::pair<Transform::Kind, float>>& above,
               const std::vector<std::pair<Transform::Kind, float>>& below) {
                const auto transforms = [](const std::vector<std::pair<Transform::Kind, float>>& values) {
                    std::vector<Transform> out;
                    for (const auto& [kind, power] : values) out.push_back({kind, power});
                    return out;
                };
                new (self) TreeSection{n_roots, transforms(above), transforms(below)};
            },
            "n_roots"_a, "above"_a, "below"_a);

    nb::class_<PyBeamSearch>(m, "BeamSearch", "Beam search over the layers of a model.")
        .def(nb::init<const std::vector<const PySearchLayer*>&, const std::vector<std::string>&, Array<std::int32_t>,
                      const TreeSection&>(),
             "layers"_a, "layouts"_a, "leaf_labels"_a.noconvert(), "section"_a)
        .def(
            "predict",
            [](const PyBeamSearch& self, const CheckedFeatures& queries, std::int64_t top_k, std::int64_t beam_width,
               float min_score, int threads, nb::object report) {
                PythonMonitor monitor(std::move(report));
                Csr out;
                {
                    const ReleasedGil released;
                    self.check(queries.view);
                    out = self.search().predict(queries.view, {top_k, beam_width, min_score}, threads, &monitor);
                }
                return to_numpy(std::move(out));
            },
            "queries"_a, "top_k"_a, "beam_width"_a, "min_score"_a, "threads"_a, "report"_a.none(),
            "Return the top-ranked labels for each query, best first, as (indptr, labels, scores).")
        .def(
            "rank",
            [](const PyBeamSearch& self, Array<std::int32_t> indices, Array<float> values, Array<float> dense,
               std::int64_t top_k, std::int64_t beam_width, float min_score) -> nb::object {
                std::vector<std::int32_t> labels;
                std::vector<float> scores;
                bool valid = is_aligned(indices.data()) && is_aligned(values.data()) && is_aligned(dense.data());
                if (valid) {
                    const ReleasedGil released;
                    const BeamSearch& search = self.search();
                    const Query query{span(indices), span(values), dense.data()};
                    valid =
                        static_cast<std::int64_t>(dense.size()) == search.dense_cols() && search.is_valid_query(query);
                    if (valid)
                        search.with_workspace([&](BeamSearch::Workspace& workspace) {
                            const auto ranking = search.rank(query, {top_k, beam_width, min_score}, workspace);
                            labels.resize(ranking.size());
                            scores.resize(ranking.size());
                            for (std::size_t i = 0; i < ranking.size(); ++i) {
                                labels[i] = ranking[i].node;
                                scores[i] = ranking[i].score;
                            }
                        });
                }
                if (!valid) return nb::none();
                return nb::make_tuple(to_numpy(std::move(labels)), to_numpy(std::move(scores)));
            },
            "indices"_a.noconvert(), "values"_a.noconvert(), "dense"_a.noconvert(), "top_k"_a, "beam_width"_a,
            "min_score"_a, "Return (labels, scores) for one query, best first, or None if the query is invalid.")
        .def(
            "score_pairs",
            [](const PyBeamSearch& self, const CheckedFeatures& queries, const CheckedCsr& candidates, int threads,
               nb::object report) {
                PythonMonitor monitor(std::move(report));
                std::vector<float> scores;
                {
                    const ReleasedGil released;
                    self.check(queries.view);
                    if (candidates.view.rows() != queries.view.rows() ||
                        candidates.view.cols != self.search().n_labels())
                        throw std::invalid_argument("candidates must have one row per query and one column per label.");
                    scores = self.search().score_pairs(queries.view, candidates.view, threads, &monitor);
                }
                return to_numpy(std::move(scores));
            },
            "queries"_a, "candidates"_a, "threads"_a, "report"_a.none(),
            "Return the score of each (query, candidate) pair.")
        .def(
            "search_beams",
            [](const PyBeamSearch& self, const CheckedFeatures& queries, std::int64_t beam_width, float min_score,
               int threads) {
                Csr out;
                {
                    const ReleasedGil released;
                    self.check(queries.view);
                    out = self.search().search_beams(queries.view, {beam_width, beam_width, min_score}, threads);
                }
                return to_numpy(std::move(out));
            },
            "queries"_a, "beam_width"_a, "min_score"_a, "threads"_a,
            "Return the beam after the last layer, best first, as (indptr, nodes, path scores).")
        .def(
            "search_below",
            [](const PyBeamSearch& self, const CheckedFeatures& queries, const CheckedCsr& starts, std::int64_t top_k,
               int threads) {
                Csr out;
                {
                    const ReleasedGil released;
                    self.check_starts(queries.view, starts.view);
                    out = self.search().search_below(queries.view, starts.view, {top_k, top_k}, threads);
                }
                return to_numpy(std::move(out));
            },
            "queries"_a, "starts"_a, "top_k"_a, "threads"_a,
            "Search the layers below the given start nodes and return (indptr, labels, path scores), best first.")
        .def(
            "score_pairs_below",
            [](const PyBeamSearch& self, const CheckedFeatures& queries, const CheckedCsr* starts,
               const CheckedCsr& candidates, int threads) {
                std::vector<float> scores;
                {
                    const ReleasedGil released;
                    self.check(queries.view);
                    if (starts) self.check_starts(queries.view, starts->view);
                    if (candidates.view.rows() != queries.view.rows() ||
                        candidates.view.cols != self.search().n_labels())
                        throw std::invalid_argument("candidates must have one row per query and one column per label.");
                    scores = self.search().score_pairs_below(queries.view, starts ? &starts->view : nullptr,
                                                             candidates.view, threads);
                }
                return to_numpy(std::move(scores));
            },
            "queries"_a, "starts"_a.none(), "candidates"_a, "threads"_a,
            "Return the path score of each (query, candidate) pair.")
        .def(
            "merge_rankings",
            [](const PyBeamSearch& self, const std::vector<const CheckedCsr*>& rankings, std::int64_t top_k,
               float min_score) {
                Csr out;
                {
                    const ReleasedGil released;
                    std::vector<CsrView> views;
                    for (const CheckedCsr* ranking : rankings) views.push_back(ranking->view);
                    out = self.search().merge_rankings(views, {top_k, 1, min_score});
                }
                return to_numpy(std::move(out));
            },
            "rankings"_a, "top_k"_a, "min_score"_a,
            "Merge rankings that contain path scores and return (indptr, labels, scores), best first.")
        .def(
            "final_scores",
            [](const PyBeamSearch& self, Array<float> path_scores) {
                std::vector<float> out(path_scores.size());
                for (std::size_t i = 0; i < out.size(); ++i) out[i] = self.search().final_score(span(path_scores)[i]);
                return to_numpy(std::move(out));
            },
            "path_scores"_a.noconvert(), "Convert path scores to final scores.");

    nb::enum_<CombineMethod>(m, "CombineMethod")
        .value("mean", CombineMethod::mean)
        .value("rank", CombineMethod::rank)
        .value("count", CombineMethod::count)
        .value("softmax", CombineMethod::softmax)
        .value("sigmoid", CombineMethod::sigmoid)
        .value("round_robin", CombineMethod::round_robin);

    m.def(
        "combine",
        [](const std::vector<const CheckedCsr*>& rankings, CombineMethod method, Array<float> weights,
           std::int64_t top_k, int threads) {
            Csr out;
            {
                const ReleasedGil released;
                std::vector<CsrView> views;
                for (const CheckedCsr* ranking : rankings) views.push_back(ranking->view);
                out = combine(views, method, span(weights), top_k, threads);
            }
            return to_numpy(std::move(out));
        },
        "rankings"_a, "method"_a, "weights"_a.noconvert(), "top_k"_a, "threads"_a,
        "Combine several rankings of the same queries and return (indptr, labels, scores).");

    m.def(
        "predict_combined",
        [](const std::vector<const PyBeamSearch*>& members, const CheckedFeatures& queries, std::int64_t top_k,
           std::int64_t beam_width, std::int64_t pool_size, CombineMethod method, Array<float> weights, int threads,
           nb::object report) {
            PythonMonitor monitor(std::move(report));
            Csr out;
            {
                const ReleasedGil released;
                std::vector<const BeamSearch*> searches;
                for (const PyBeamSearch* member : members) {
                    member->check(queries.view);
                    searches.push_back(&member->search());
                }
                out = predict_combined(searches, queries.view, {top_k, beam_width}, pool_size, method, span(weights),
                                       threads, &monitor);
            }
            return to_numpy(std::move(out));
        },
        "members"_a, "queries"_a, "top_k"_a, "beam_width"_a, "pool_size"_a, "method"_a, "weights"_a.noconvert(),
        "threads"_a, "report"_a.none(),
        "Search several trees, combine their rankings and return (indptr, labels, scores).");
}

}  // namespace carya::bind
