// Beam search over the layers of a model: for a query, the best labels and their scores.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "layouts/layout.hpp"
#include "matrix.hpp"
#include "parallel.hpp"
#include "ranked_rows.hpp"
#include "store/seal.hpp"
#include "transform.hpp"

namespace carya {

struct SearchLayer {
    PackedView weights;                    // of the sparse features
    DenseView dense;                       // positions x dense features
    std::span<const float> offsets;        // one a position
    std::span<const std::int64_t> chunks;  // parents + 1: the positions of each parent's children
    std::span<const std::int32_t> order;   // the node at each position
    Transform transform;
    const Seal* seal = nullptr;  // of the file that weights and dense lie in; null if they lie in memory
};

struct Question {
    std::int64_t top_k = 10;
    std::int64_t beam_width = 10;
    float min_score = -std::numeric_limits<float>::infinity();  // labels below it are left out
};

// One row of some features.
Query query_of(const Features& queries, std::int64_t row);

class BeamSearch {
public:
    // One layout a layer, or one for all. `leaf_labels` says which label each node of the last level stands for,
    // ascending; without it they are the labels. Checks that all fits together; throws std::invalid_argument.
    BeamSearch(std::vector<SearchLayer> layers, const std::vector<std::string>& layouts,
               std::span<const std::int32_t> leaf_labels = {});

    std::int64_t n_labels() const {
        return leaf_labels_.empty() ? n_leaves() : static_cast<std::int64_t>(leaf_labels_.back()) + 1;
    }
    std::int64_t sparse_cols() const { return layers_.front().weights.features(); }
    std::int64_t dense_cols() const { return layers_.front().dense.cols; }

    // Scratch of one thread.
    struct Work {
        Scratch scratch;
        std::vector<Part> parts;
        std::vector<Scored> beam;
        std::vector<Scored> found;
        std::vector<std::vector<std::int32_t>> nodes;
        std::vector<float> scores;
    };

    // The best labels, best first, ties to the lower label; none for a query without features.
    std::span<const Scored> rank(const Query& query, const Question& question, Work& work) const;

    // body(work) with scratch from the search's own pool; for any number of threads at once.
    template <class Body>
    auto with_work(const Body& body) const {
        Borrowed borrowed(*this);
        return body(*borrowed.work);
    }

    // Whether arrays straight from a user are a query: features ascending and in range, all values finite.
    bool takes(const Query& query) const;

    // Row by row the same as rank, as CSR in the order of ranking.
    Csr predict(const Features& queries, Question question, int threads, Monitor* monitor) const;

    // The scores of the given (query, label) pairs, without a beam.
    std::vector<float> selected(const Features& queries, const CsrView& candidates, int threads,
                                Monitor* monitor) const;

private:
    struct Borrowed {
        explicit Borrowed(const BeamSearch& owner);
        ~Borrowed();
        const BeamSearch& search;
        std::unique_ptr<Work> work;
    };
    // Where each node of a level hangs and stands: only pairs given by a user ask for that.
    struct Places {
        std::vector<std::int32_t> parent;
        std::vector<std::int64_t> position;
    };

    std::int64_t n_leaves() const { return static_cast<std::int64_t>(layers_.back().order.size()); }
    std::int64_t most_labels(std::int64_t beam_width) const;
    void check_leaf_labels();
    void check_layer(std::size_t t, std::int64_t parents) const;
    void verify(const SearchLayer& layer, const Query& query, const Work& work) const;
    void score(std::size_t t, const Query& query, Work& work) const;
    const std::vector<Places>& places() const;
    void leaves_to_labels(std::vector<Scored>& found, std::int64_t top_k) const;
    void score_selected(const Query& query, std::span<const std::int32_t> labels, float* out, Work& work) const;
    void score_leaves(const Query& query, Work& work) const;
    float neutral() const { return in_logs_ || !layers_.front().transform.multiplies() ? 0.0F : 1.0F; }
    float shown(float score) const;

    std::vector<SearchLayer> layers_;
    std::span<const std::int32_t> leaf_labels_;  // empty if every label is one leaf
    std::int64_t most_leaves_ = 1;               // that a label has
    std::vector<std::unique_ptr<Layout>> layouts_;
    std::vector<bool> falls_;  // whether scores can only fall from a layer's nodes to their labels
    bool in_logs_ = false;  // hinge forms in every layer are multiplied as logarithms: exact where products underflow

    mutable std::once_flag places_known_;
    mutable std::vector<Places> places_;
    mutable std::mutex lock_;
    mutable std::vector<std::unique_ptr<Work>> pool_;
    mutable std::size_t made_ = 0;  // works, in the pool or at work
};

}  // namespace carya
