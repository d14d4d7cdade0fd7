// Beam search over the layers of a model: for a query, the best labels and their scores.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "matrix.hpp"
#include "parallel.hpp"

namespace carya {

// How a ranker's raw score h joins its parent's score g.
struct Transform {
    enum Kind : int { noop, sigmoid, log_sigmoid, hinge, log_hinge };
    Kind kind = noop;
    float power = 3.0F;  // p of the hinge forms: exp(-max(0, 1 - h)^p)

    float first(float h) const;  // at the root's children, which have no g
    float join(float g, float h) const;
};

struct SearchLayer {
    CsrView weights;                       // sparse features x positions
    DenseView dense;                       // positions x dense features
    std::span<const float> offsets;        // one a position
    std::span<const std::int64_t> chunks;  // parents + 1: the positions of each parent's children
    std::span<const std::int32_t> order;   // the node at each position
    Transform transform;
};

// The sparse and dense features of one row.
struct Query {
    std::span<const std::int32_t> indices;
    std::span<const float> values;
    const float* dense = nullptr;
};

struct Scored {
    std::int32_t node;
    float score;
};

class BeamSearch {
public:
    // Checks that the layers fit together; throws std::invalid_argument.
    explicit BeamSearch(std::vector<SearchLayer> layers);

    std::int64_t n_labels() const { return static_cast<std::int64_t>(layers_.back().order.size()); }
    std::int64_t sparse_cols() const { return layers_.front().weights.rows(); }
    std::int64_t dense_cols() const { return layers_.front().dense.cols; }

    // Scratch of one thread.
    struct Work {
        std::vector<Scored> beam;
        std::vector<Scored> candidates;
        std::vector<float> sums;
        std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
        std::vector<std::vector<std::int32_t>> nodes;
        std::vector<float> scores;
        std::vector<float> parent_scores;
    };

    // The top_k best labels, best first, ties to the lower label; none for a query without features.
    std::span<const Scored> rank(const Query& query, std::int64_t top_k, std::int64_t beam_width, Work& work) const;

    // Row by row the same as rank, as CSR in the order of ranking.
    Csr predict(const Features& queries, std::int64_t top_k, std::int64_t beam_width, int threads,
                Monitor* monitor) const;

    // The scores of the given (query, label) pairs, without a beam.
    std::vector<float> selected(const Features& queries, const CsrView& candidates, int threads,
                                Monitor* monitor) const;

private:
    void sum(const SearchLayer& layer, const Query& query, Work& work) const;
    void score_selected(const Query& query, std::span<const std::int32_t> labels, float* out, Work& work) const;

    std::vector<SearchLayer> layers_;
    std::vector<std::vector<std::int32_t>> parent_;    // of each node
    std::vector<std::vector<std::int32_t>> position_;  // of each node
};

}  // namespace carya
