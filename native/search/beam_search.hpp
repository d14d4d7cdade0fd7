// Beam search over the layers of a model, which returns the top-ranked labels for a query and their scores.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"
#include "../layouts/layout.hpp"
#include "../storage/checksums.hpp"
#include "ranked_rows.hpp"
#include "transform.hpp"

namespace carya {

// The number of rows per task of a parallel search.
inline constexpr std::int64_t kSearchRowsPerTask = 32;

struct SearchLayer {
    PackedView weights;                    // weights of the sparse features
    DenseView dense;                       // positions x dense features
    std::span<const float> biases;         // one per position
    std::span<const std::int64_t> chunks;  // first position of each parent's children, followed by the end
    std::span<const std::int32_t> order;   // the node at each position
    Transform transform;
    // Checksums of the file that contains `weights` and `dense`; null if they are in memory.
    const ChecksumVerifier* checksums = nullptr;
};

struct SearchOptions {
    std::int64_t top_k = 10;
    std::int64_t beam_width = 10;
    float min_score = -std::numeric_limits<float>::infinity();  // labels with a lower score are omitted

    // Throws std::invalid_argument unless top_k and beam_width are at least 1.
    void check() const;
};

// The location of a search's layers in a larger tree, for searches over only some of the tree's levels or clusters.
struct TreeSection {
    std::int64_t n_roots = 1;      // number of nodes above the first layer
    std::vector<Transform> above;  // transforms of the layers above the first layer
    std::vector<Transform> below;  // transforms of the layers below the last layer
};

// Returns a row as a query.
Query query_of_row(const Features& queries, std::int64_t row);

class BeamSearch {
public:
    // `layouts` contains one name per layer, or one name for all layers. `leaf_labels` contains the label of each node
    // in the last level, in ascending order; if it is empty, the nodes themselves are the labels. By default, the
    // layers are those of a complete tree. Throws std::invalid_argument if the layers are inconsistent.
    BeamSearch(std::vector<SearchLayer> layers, const std::vector<std::string>& layouts,
               std::span<const std::int32_t> leaf_labels = {}, const TreeSection& section = {});

    std::int64_t n_labels() const {
        return leaf_labels_.empty() ? n_leaves() : static_cast<std::int64_t>(leaf_labels_.back()) + 1;
    }
    std::int64_t sparse_cols() const { return layers_.front().weights.features(); }
    std::int64_t dense_cols() const { return layers_.front().dense.cols; }

    // Per-thread scratch memory.
    struct Workspace {
        Scratch scratch;
        std::vector<BeamChunk> beam_chunks;
        std::vector<ScoredNode> beam;
        std::vector<ScoredNode> candidates;
        std::vector<ScoredNode> starts;
        std::vector<std::vector<std::int32_t>> nodes;
        std::vector<float> scores;
    };

    // Returns the top-ranked labels, best first; ties are broken in favor of the lower label index. The result for a
    // query without features is empty. Throws std::invalid_argument if the options are invalid.
    std::span<const ScoredNode> rank(const Query& query, const SearchOptions& options, Workspace& workspace) const;

    // Calls body(workspace) with a workspace from the pool. Thread-safe.
    template <class Body>
    auto with_workspace(const Body& body) const {
        const WorkspaceLease lease(workspaces_);
        return body(*lease.workspace);
    }

    // Returns whether a query is valid: features are strictly increasing and in range, and all values are finite.
    bool is_valid_query(const Query& query) const;

    // Ranks labels for every row. Returns a CSR matrix in which the entries of each row are sorted by rank.
    Csr predict(const Features& queries, SearchOptions options, int threads, Monitor* monitor) const;

    // Returns the scores of (query, label) pairs, without beam search.
    std::vector<float> score_pairs(const Features& queries, const CsrView& candidates, int threads,
                                   Monitor* monitor) const;

    // The following functions search the sections of a tree one after another. They exchange *path scores*, which are
    // used to compare nodes during a search; a path score is a score or its logarithm. The results are the same as for
    // one search through all layers.

    // Returns the beam after the last layer, best node first, with path scores. Nodes that cannot lead to a label with
    // a score of at least `min_score` are omitted.
    Csr search_beams(const Features& queries, SearchOptions options, int threads) const;
    // Searches from some nodes of the level above the first layer. `starts` contains these nodes in ascending order,
    // with their path scores. Returns the top-ranked labels, best first, with path scores.
    Csr search_below(const Features& queries, const CsrView& starts, SearchOptions options, int threads) const;
    // Returns the path scores of (query, label) pairs. If `starts` is given, it must contain each label's ancestor in
    // the level above the first layer, in the same format as for search_below; otherwise, std::invalid_argument is
    // thrown.
    std::vector<float> score_pairs_below(const Features& queries, const CsrView* starts, const CsrView& candidates,
                                         int threads) const;
    // Merges rankings, which are given as matrices of the same shape and contain path scores, and returns the
    // top-ranked labels with their final scores. The score of a label is its best score in any ranking.
    Csr merge_rankings(std::span<const CsrView> rankings, const SearchOptions& options) const;
    // Converts a path score to a final score.
    float final_score(float path_score) const;

private:
    // Workspaces that are not in use. There is no lock, which could remain locked in a process that is forked while
    // other threads are searching.
    class WorkspacePool {
    public:
        WorkspacePool() = default;
        WorkspacePool(const WorkspacePool&) = delete;
        WorkspacePool& operator=(const WorkspacePool&) = delete;
        ~WorkspacePool();
        std::unique_ptr<Workspace> take();                             // creates a workspace if there is none
        void put_back(std::unique_ptr<Workspace> workspace) noexcept;  // destroys the workspace if the pool is full

    private:
        std::array<std::atomic<Workspace*>, 64> slots_{};  // null if empty
    };
    struct WorkspaceLease {
        explicit WorkspaceLease(WorkspacePool& owner) : pool(owner), workspace(owner.take()) {}
        WorkspaceLease(const WorkspaceLease&) = delete;
        WorkspaceLease& operator=(const WorkspaceLease&) = delete;
        ~WorkspaceLease() { pool.put_back(std::move(workspace)); }
        WorkspacePool& pool;
        std::unique_ptr<Workspace> workspace;
    };
    // The parent and position of each node in a level. Used only by score_pairs.
    struct NodeLocations {
        std::vector<std::int32_t> parent;
        std::vector<std::int64_t> position;
    };

    std::int64_t n_leaves() const { return static_cast<std::int64_t>(layers_.back().order.size()); }
    std::int64_t max_labels(std::int64_t beam_width) const;
    void check_leaf_labels();
    void check_layer(std::size_t t, std::int64_t parents) const;
    void verify_weights(const SearchLayer& layer, const Query& query, const Workspace& workspace) const;
    void score_children(std::size_t t, const Query& query, Workspace& workspace) const;
    const std::vector<NodeLocations>& node_locations() const;
    void merge_leaves(std::vector<ScoredNode>& candidates, std::int64_t top_k) const;
    void search(const Query& query, std::span<const ScoredNode> starts, const SearchOptions& options,
                Workspace& workspace) const;
    float min_path_score(const SearchOptions& options) const;
    void score_labels(const Query& query, std::span<const ScoredNode> starts, std::span<const std::int32_t> labels,
                      float* out, Workspace& workspace) const;
    void score_leaves(const Query& query, std::span<const ScoredNode> starts, Workspace& workspace) const;
    ScoredNode root() const { return {0, root_score_}; }

    std::vector<SearchLayer> layers_;
    std::span<const std::int32_t> leaf_labels_;  // empty if each label has exactly one leaf
    std::int64_t max_leaves_per_label_ = 1;
    std::vector<std::unique_ptr<Layout>> layouts_;
    // Per layer, whether no label below a node can have a higher score than the node.
    std::vector<bool> never_increases_;
    // Whether to add logarithms instead of multiplying scores. This is the case if all transforms are `hinge`, because
    // the products could underflow.
    bool log_space_ = false;
    float root_score_ = 0.0F;

    mutable std::once_flag node_locations_once_;
    mutable std::vector<NodeLocations> node_locations_;
    mutable WorkspacePool workspaces_;
};

}  // namespace carya
