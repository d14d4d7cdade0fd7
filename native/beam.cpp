#include "beam.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/kernels.hpp"

namespace carya {

namespace {

constexpr std::int64_t kRowsPerTask = 32;

float hinge_exponent(float h, float power) {
    const float short_of = std::max(0.0F, 1.0F - h);
    if (power == 3.0F) return -short_of * short_of * short_of;
    if (power == 4.0F) return -(short_of * short_of) * (short_of * short_of);
    return -std::pow(short_of, power);
}

float log_sigmoid(float h) { return h < 0.0F ? h - std::log1p(std::exp(h)) : -std::log1p(std::exp(-h)); }

// Infinities and what is no number at all would upset the sorting, and whoever reads the scores.
float as_number(float score) {
    constexpr float most = std::numeric_limits<float>::max();
    return score >= -most ? std::min(score, most) : -most;
}

bool better(const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.node < b.node; }

// Leaves the `keep` best in front, best first.
void keep_best(std::vector<Scored>& scored, std::int64_t keep) {
    if (static_cast<std::int64_t>(scored.size()) > keep) {
        std::nth_element(scored.begin(), scored.begin() + keep, scored.end(), better);
        scored.resize(keep);
    }
    std::sort(scored.begin(), scored.end(), better);
}

bool has_features(const Query& query, std::int64_t dense_cols) {
    const auto set = [](float x) { return x != 0.0F; };
    return std::any_of(query.values.begin(), query.values.end(), set) ||
           std::any_of(query.dense, query.dense + dense_cols, set);
}

Query query_of(const Features& queries, std::int64_t row) {
    const auto begin = static_cast<std::size_t>(queries.sparse.begin(row));
    const auto length = static_cast<std::size_t>(queries.sparse.length(row));
    return {queries.sparse.indices.subspan(begin, length), queries.sparse.values.subspan(begin, length),
            queries.dense.row(row)};
}

template <class Body>
void each_row(std::int64_t rows, int threads, Monitor* monitor, Body&& body) {
    if (monitor) monitor->total = rows;
    std::vector<BeamSearch::Work> works(threads);
    parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, threads, monitor, [&](int worker, std::int64_t task) {
        const std::int64_t last = std::min(rows, (task + 1) * kRowsPerTask);
        for (std::int64_t row = task * kRowsPerTask; row < last; ++row) body(row, works[worker]);
        if (monitor) monitor->done += last - task * kRowsPerTask;
    });
}

}  // namespace

float Transform::first(float h) const {
    switch (kind) {
        case sigmoid: return 1.0F / (1.0F + std::exp(-h));
        case log_sigmoid: return carya::log_sigmoid(h);
        case hinge: return std::exp(hinge_exponent(h, power));
        case log_hinge: return hinge_exponent(h, power);
        case noop: break;
    }
    return h;
}

float Transform::join(float g, float h) const {
    switch (kind) {
        case sigmoid:
        case hinge: return g * first(h);
        case log_sigmoid:
        case log_hinge: return g + first(h);
        case noop: break;
    }
    return h;
}

BeamSearch::BeamSearch(std::vector<SearchLayer> layers) : layers_(std::move(layers)) {
    if (layers_.empty()) throw std::invalid_argument("a model needs at least one layer");
    std::int64_t parents = 1;
    for (std::size_t t = 0; t < layers_.size(); ++t) {
        const SearchLayer& layer = layers_[t];
        const std::string name = "layer " + std::to_string(t);
        const auto refuse = [&](const char* what) { throw std::invalid_argument(name + " " + what); };
        const auto nodes = static_cast<std::int64_t>(layer.order.size());
        layer.weights.check_structure(name.c_str());
        if (layer.weights.cols != nodes) refuse("has weights for another number of nodes");
        if (layer.weights.rows() != sparse_cols()) refuse("has weights for another number of sparse features");
        if (layer.dense.cols != dense_cols() || (dense_cols() > 0 && layer.dense.rows != nodes))
            refuse("has dense weights of another shape");
        if (static_cast<std::int64_t>(layer.offsets.size()) != nodes)
            refuse("has another number of offsets than nodes");
        if (static_cast<std::int64_t>(layer.chunks.size()) != parents + 1 || layer.chunks.front() != 0 ||
            layer.chunks.back() != nodes || !std::is_sorted(layer.chunks.begin(), layer.chunks.end()))
            refuse("has chunks that do not cover its nodes once for each parent");
        std::vector<std::int32_t> parent(nodes, -1);
        std::vector<std::int32_t> position(nodes, -1);
        for (std::int64_t p = 0; p < parents; ++p)
            for (std::int64_t at = layer.chunks[p]; at < layer.chunks[p + 1]; ++at) {
                const std::int32_t node = layer.order[at];
                if (node < 0 || node >= nodes || position[node] >= 0) refuse("has an order that is no permutation");
                parent[node] = static_cast<std::int32_t>(p);
                position[node] = static_cast<std::int32_t>(at);
            }
        parent_.push_back(std::move(parent));
        position_.push_back(std::move(position));
        parents = nodes;
    }
}

// Raw scores of the positions in work.ranges (ascending, disjoint) into work.sums, range after range.
void BeamSearch::sum(const SearchLayer& layer, const Query& query, Work& work) const {
    work.sums.clear();
    for (const auto& [begin, end] : work.ranges)
        work.sums.insert(work.sums.end(), layer.offsets.begin() + begin, layer.offsets.begin() + end);

    const std::int64_t* indptr = layer.weights.indptr.data();
    const std::int32_t* columns = layer.weights.indices.data();
    const float* values = layer.weights.values.data();
    const std::size_t features = query.indices.size();
    for (std::size_t i = 0; i < features; ++i) {
        if (i + 8 < features) __builtin_prefetch(indptr + query.indices[i + 8]);
        if (i + 4 < features) {
            __builtin_prefetch(columns + indptr[query.indices[i + 4]]);
            __builtin_prefetch(values + indptr[query.indices[i + 4]]);
        }
        const float x = query.values[i];
        const std::int32_t* at = columns + indptr[query.indices[i]];
        const std::int32_t* const last = columns + indptr[query.indices[i] + 1];
        float* out = work.sums.data();
        for (const auto& [begin, end] : work.ranges) {
            // Gallop to the first weight of the range: most rows are short, a few have a weight for every label.
            std::ptrdiff_t step = 1;
            while (last - at > step && at[step] < begin) {
                at += step;
                step *= 2;
            }
            at = std::lower_bound(at, std::min(at + step + 1, last), static_cast<std::int32_t>(begin));
            if (at == last) break;
            for (; at < last && *at < end; ++at) out[*at - begin] += x * values[at - columns];
            out += end - begin;
        }
    }
    if (layer.dense.cols > 0) {
        float* out = work.sums.data();
        for (const auto& [begin, end] : work.ranges)
            for (std::int64_t position = begin; position < end; ++position)
                *out++ += kernels().dot(query.dense, layer.dense.row(position), layer.dense.cols);
    }
}

std::span<const Scored> BeamSearch::rank(const Query& query, std::int64_t top_k, std::int64_t beam_width,
                                         Work& work) const {
    work.beam.clear();
    if (!has_features(query, dense_cols())) return work.beam;
    work.beam.push_back({0, 0.0F});
    for (std::size_t t = 0; t < layers_.size(); ++t) {
        const SearchLayer& layer = layers_[t];
        std::sort(work.beam.begin(), work.beam.end(), [](const Scored& a, const Scored& b) { return a.node < b.node; });
        work.ranges.clear();
        for (const Scored& parent : work.beam)
            work.ranges.emplace_back(layer.chunks[parent.node], layer.chunks[parent.node + 1]);
        sum(layer, query, work);
        work.candidates.clear();
        const float* raw = work.sums.data();
        for (std::size_t i = 0; i < work.beam.size(); ++i)
            for (std::int64_t at = work.ranges[i].first; at < work.ranges[i].second; ++at, ++raw)
                work.candidates.push_back(
                    {layer.order[at],
                     as_number(t == 0 ? layer.transform.first(*raw) : layer.transform.join(work.beam[i].score, *raw))});
        keep_best(work.candidates, t + 1 == layers_.size() ? top_k : beam_width);
        std::swap(work.beam, work.candidates);
    }
    return work.beam;
}

Csr BeamSearch::predict(const Features& queries, std::int64_t top_k, std::int64_t beam_width, int threads,
                        Monitor* monitor) const {
    const std::int64_t rows = queries.rows();
    std::int64_t widest = 0;
    for (std::size_t c = 0; c + 1 < layers_.back().chunks.size(); ++c)
        widest = std::max(widest, layers_.back().chunks[c + 1] - layers_.back().chunks[c]);
    if (beam_width < n_labels()) top_k = std::min(top_k, beam_width * widest);  // no query can get more
    top_k = std::min(top_k, n_labels());
    Csr out;
    out.cols = n_labels();
    out.indptr.assign(rows + 1, 0);
    out.indices.resize(rows * top_k);
    out.values.resize(rows * top_k);
    each_row(rows, threads, monitor, [&](std::int64_t row, Work& work) {
        const auto best = rank(query_of(queries, row), top_k, beam_width, work);
        out.indptr[row + 1] = static_cast<std::int64_t>(best.size());
        for (std::size_t i = 0; i < best.size(); ++i) {
            out.indices[row * top_k + static_cast<std::int64_t>(i)] = best[i].node;
            out.values[row * top_k + static_cast<std::int64_t>(i)] = best[i].score;
        }
    });
    std::int64_t filled = 0;  // close the gaps of rows with fewer than top_k labels
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t count = out.indptr[row + 1];
        if (filled != row * top_k) {
            std::copy_n(out.indices.begin() + row * top_k, count, out.indices.begin() + filled);
            std::copy_n(out.values.begin() + row * top_k, count, out.values.begin() + filled);
        }
        filled += count;
        out.indptr[row + 1] = filled;
    }
    out.indices.resize(filled);
    out.values.resize(filled);
    return out;
}

// Scores every node on the way from the root to each label, and nothing else.
void BeamSearch::score_selected(const Query& query, std::span<const std::int32_t> labels, float* out,
                                Work& work) const {
    const std::size_t depth = layers_.size();
    work.nodes.resize(depth);
    work.nodes[depth - 1].assign(labels.begin(), labels.end());
    for (std::size_t t = depth; t-- > 0;) {
        std::vector<std::int32_t>& nodes = work.nodes[t];
        std::sort(nodes.begin(), nodes.end(),
                  [&](std::int32_t a, std::int32_t b) { return position_[t][a] < position_[t][b]; });
        nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
        if (t == 0) break;
        work.nodes[t - 1].clear();
        for (const std::int32_t node : nodes) work.nodes[t - 1].push_back(parent_[t][node]);
    }
    const auto index_of = [&](std::size_t t, std::int32_t node) {
        const std::vector<std::int32_t>& nodes = work.nodes[t];
        const auto before = [&](std::int32_t a, std::int32_t b) { return position_[t][a] < position_[t][b]; };
        return std::lower_bound(nodes.begin(), nodes.end(), node, before) - nodes.begin();
    };
    for (std::size_t t = 0; t < depth; ++t) {
        const SearchLayer& layer = layers_[t];
        const std::vector<std::int32_t>& nodes = work.nodes[t];
        work.ranges.clear();
        for (const std::int32_t node : nodes) work.ranges.emplace_back(position_[t][node], position_[t][node] + 1);
        sum(layer, query, work);
        std::swap(work.scores, work.parent_scores);
        work.scores.resize(nodes.size());
        for (std::size_t i = 0; i < nodes.size(); ++i)
            work.scores[i] = as_number(
                t == 0 ? layer.transform.first(work.sums[i])
                       : layer.transform.join(work.parent_scores[index_of(t - 1, parent_[t][nodes[i]])], work.sums[i]));
    }
    for (std::size_t i = 0; i < labels.size(); ++i) out[i] = work.scores[index_of(depth - 1, labels[i])];
}

std::vector<float> BeamSearch::selected(const Features& queries, const CsrView& candidates, int threads,
                                        Monitor* monitor) const {
    std::vector<float> scores(candidates.indices.size());
    each_row(queries.rows(), threads, monitor, [&](std::int64_t row, Work& work) {
        const auto begin = static_cast<std::size_t>(candidates.begin(row));
        const auto length = static_cast<std::size_t>(candidates.length(row));
        if (length > 0)
            score_selected(query_of(queries, row), candidates.indices.subspan(begin, length), scores.data() + begin,
                           work);
    });
    return scores;
}

}  // namespace carya
