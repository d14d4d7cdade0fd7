#include "beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "../kernels/kernels.hpp"

namespace carya {

namespace {

constexpr std::int64_t kLineFloats = 16;      // floats per cache line and per vector
constexpr std::size_t kTwoByteIds = 0x10000;  // number of chunks that a damaged two-byte id can refer to
constexpr std::int64_t kMaxSums = 1LL << 31;  // maximum number of floats in the score buffer

std::int64_t round_up_to_line(std::int64_t count) { return (count + kLineFloats - 1) / kLineFloats * kLineFloats; }

// Selects the `count` best nodes. A small selection is kept sorted. A large selection is kept unsorted; whenever it has
// grown to about twice `count` nodes, it is reduced to the best `count` nodes. In both cases, rejecting a node below
// the current threshold costs almost nothing.
class TopNodes {
public:
    TopNodes(std::vector<ScoredNode>& kept, std::int64_t count)
        : kept_(kept), count_(static_cast<std::size_t>(count)), sorted_(count <= kMaxSorted) {
        kept_.clear();
    }

    // `scores` must be aligned and padded to whole vectors.
    void add(const std::int32_t* nodes, const float* scores, std::int64_t count) {
        std::int32_t selected_indices[kBatch];
        for (std::int64_t i = 0; i < count; i += kBatch) {
            const std::int64_t n_selected =
                kernels().select_above(scores + i, std::min(kBatch, count - i), threshold_, selected_indices);
            for (std::int64_t k = 0; k < n_selected; ++k) {
                const ScoredNode candidate{nodes[i + selected_indices[k]], scores[i + selected_indices[k]]};
                if (sorted_) {
                    insert(candidate);
                } else {
                    kept_.push_back(candidate);
                    if (kept_.size() >= 2 * count_ + kLineFloats) shrink();
                }
            }
        }
    }

    void sort() {
        if (sorted_) return;
        if (kept_.size() > count_) shrink();
        std::sort(kept_.begin(), kept_.end(), ranks_before);
    }

private:
    static constexpr std::int64_t kBatch = 128;
    static constexpr std::int64_t kMaxSorted = 32;

    void insert(const ScoredNode& candidate) {
        if (kept_.size() < count_)
            kept_.push_back(candidate);
        else if (!ranks_before(candidate, kept_.back()))
            return;
        std::size_t slot = kept_.size() - 1;
        for (; slot > 0 && ranks_before(candidate, kept_[slot - 1]); --slot) kept_[slot] = kept_[slot - 1];
        kept_[slot] = candidate;
        if (kept_.size() == count_) threshold_ = kept_.back().score;
    }

    void shrink() {
        const auto last = kept_.begin() + static_cast<std::ptrdiff_t>(count_);
        std::nth_element(kept_.begin(), last - 1, kept_.end(), ranks_before);
        kept_.erase(last, kept_.end());
        threshold_ = kept_.back().score;
    }

    std::vector<ScoredNode>& kept_;
    const std::size_t count_;
    const bool sorted_;
    float threshold_ = -std::numeric_limits<float>::infinity();
};

bool has_features(const Query& query, std::int64_t dense_cols) {
    const auto nonzero = [](float x) { return x != 0.0F; };
    return std::any_of(query.values.begin(), query.values.end(), nonzero) ||
           std::any_of(query.dense, query.dense + dense_cols, nonzero);
}

// Reduces the candidates to the `top_k` best labels, best first, each with its best score.
void keep_best_labels(std::vector<ScoredNode>& candidates, std::int64_t top_k) {
    std::sort(candidates.begin(), candidates.end(), [](const ScoredNode& a, const ScoredNode& b) {
        return a.node != b.node ? a.node < b.node : a.score > b.score;
    });
    const auto same_label = [](const ScoredNode& a, const ScoredNode& b) { return a.node == b.node; };
    candidates.erase(std::unique(candidates.begin(), candidates.end(), same_label), candidates.end());
    std::sort(candidates.begin(), candidates.end(), ranks_before);
    if (std::ssize(candidates) > top_k) candidates.resize(static_cast<std::size_t>(top_k));
}

// Copies one row of a matrix of nodes and path scores.
void read_nodes(const CsrView& nodes, std::int64_t row, std::vector<ScoredNode>& out) {
    out.clear();
    for (std::int64_t e = nodes.begin(row); e < nodes.end(row); ++e) out.push_back({nodes.indices[e], nodes.values[e]});
}

template <class Body>
void for_each_row(std::int64_t rows, int threads, Monitor* monitor, const Body& body) {
    if (monitor) monitor->total = static_cast<std::uint64_t>(rows);
    std::vector<BeamSearch::Workspace> workspaces(threads);
    parallel_each(rows, kSearchRowsPerTask, threads, monitor,
                  [&](int worker, std::int64_t row) { body(row, workspaces[worker]); });
}

}  // namespace

void SearchOptions::check() const {
    if (top_k < 1) throw std::invalid_argument("top_k must be >= 1, got " + std::to_string(top_k) + ".");
    if (beam_width < 1) throw std::invalid_argument("beam_width must be >= 1, got " + std::to_string(beam_width) + ".");
}

Query query_of_row(const Features& queries, std::int64_t row) {
    const auto begin = static_cast<std::size_t>(queries.sparse.begin(row));
    const auto length = static_cast<std::size_t>(queries.sparse.length(row));
    return {queries.sparse.indices.subspan(begin, length), queries.sparse.values.subspan(begin, length),
            queries.dense.row(row)};
}

BeamSearch::BeamSearch(std::vector<SearchLayer> layers, const std::vector<std::string>& layouts,
                       std::span<const std::int32_t> leaf_labels, const TreeSection& section)
    : layers_(std::move(layers)), leaf_labels_(leaf_labels) {
    if (layers_.empty()) throw std::invalid_argument("A model must have at least one layer.");
    if (layouts.size() != 1 && layouts.size() != layers_.size())
        throw std::invalid_argument("layouts must have one entry, or one for each of the " +
                                    std::to_string(layers_.size()) + " layers, got " + std::to_string(layouts.size()) +
                                    ".");
    std::vector<Transform> transforms = section.above;  // transforms of all layers of the tree
    for (const SearchLayer& layer : layers_) transforms.push_back(layer.transform);
    transforms.insert(transforms.end(), section.below.begin(), section.below.end());
    log_space_ = std::all_of(transforms.begin(), transforms.end(),
                             [](const Transform& transform) { return transform.kind == Transform::hinge; });
    root_score_ = log_space_ || !transforms.front().multiplies() ? 0.0F : 1.0F;
    std::int64_t parents = section.n_roots;
    for (std::size_t t = 0; t < layers_.size(); ++t) {
        const SearchLayer& layer = layers_[t];
        check_layer(t, parents);
        const std::string& layout = layouts[layouts.size() == 1 ? 0 : t];
        if (layer.checksums && layout != "packed")
            layer.checksums->verify(layer.weights.data.data(), layer.weights.data.size());
        layouts_.push_back(make_layout(layout, layer.weights, layer.chunks));
        parents = static_cast<std::int64_t>(layer.order.size());
    }
    check_leaf_labels();
    // A child's score is at most its parent's score if a logarithm <= 0 is added, or if the parent's score is a product
    // of non-negative factors and is multiplied by a factor <= 1.
    std::vector<bool> step_never_increases(transforms.size());
    bool all_multiply = true;
    for (std::size_t t = 0; t < transforms.size(); ++t) {
        step_never_increases[t] = transforms[t].adds() || (transforms[t].multiplies() && all_multiply);
        all_multiply = all_multiply && transforms[t].multiplies();
    }
    never_increases_.assign(layers_.size(), true);
    bool never_increases = true;
    for (std::size_t t = transforms.size(); t-- > section.above.size();) {
        if (t < section.above.size() + layers_.size()) never_increases_[t - section.above.size()] = never_increases;
        never_increases = never_increases && step_never_increases[t];
    }
}

void BeamSearch::check_layer(std::size_t t, std::int64_t parents) const {
    const SearchLayer& layer = layers_[t];
    const std::string name = "Layer " + std::to_string(t);
    const auto fail = [&](const char* problem) { throw std::invalid_argument(name + " " + problem + "."); };
    const auto nodes = static_cast<std::int64_t>(layer.order.size());
    if (static_cast<std::int64_t>(layer.chunks.size()) != parents + 1 || layer.chunks.front() != 0 ||
        layer.chunks.back() != nodes || !std::is_sorted(layer.chunks.begin(), layer.chunks.end()))
        fail("must assign every node to exactly one parent");
    std::vector<bool> seen(layer.order.size());
    for (const std::int32_t node : layer.order) {
        if (node < 0 || node >= nodes || seen[node]) fail("has an order that is not a permutation of its nodes");
        seen[node] = true;
    }
    layer.weights.check(parents, name.c_str());
    if (layer.weights.features() != sparse_cols()) fail("must have the same number of sparse features as layer 0");
    if (layer.dense.cols != dense_cols() || (dense_cols() > 0 && layer.dense.rows != nodes))
        fail("has dense weights with the wrong shape");
    if (static_cast<std::int64_t>(layer.biases.size()) != nodes) fail("must have one bias per node");
}

void BeamSearch::check_leaf_labels() {
    if (leaf_labels_.empty()) return;
    if (static_cast<std::int64_t>(leaf_labels_.size()) != n_leaves())
        throw std::invalid_argument("leaf_labels must have one entry for each of the " + std::to_string(n_leaves()) +
                                    " leaves, got " + std::to_string(leaf_labels_.size()) + ".");
    std::int32_t previous = -1;
    std::int64_t leaf_count = 0;
    for (const std::int32_t label : leaf_labels_) {
        if (label < 0 || (label != previous && label != previous + 1))
            throw std::invalid_argument("leaf_labels must be in ascending order, starting at 0, without gaps.");
        leaf_count = label == previous ? leaf_count + 1 : 1;
        max_leaves_per_label_ = std::max(max_leaves_per_label_, leaf_count);
        previous = label;
    }
}

bool BeamSearch::is_valid_query(const Query& query) const {
    if (query.indices.size() != query.values.size()) return false;
    std::int64_t previous = -1;
    for (std::size_t i = 0; i < query.indices.size(); ++i) {
        if (query.indices[i] <= previous || !std::isfinite(query.values[i])) return false;
        previous = query.indices[i];
    }
    return previous < sparse_cols() &&
           std::all_of(query.dense, query.dense + dense_cols(), [](float x) { return std::isfinite(x); });
}

// Verifies the checksums of the weights that the query will read.
void BeamSearch::verify_weights(const SearchLayer& layer, const Query& query, const Workspace& workspace) const {
    const PackedView& weights = layer.weights;
    for (const std::int32_t feature : query.indices) {
        const BlockLocation location = weights.starts[feature];
        layer.checksums->verify(weights.data.data() + location.begin,
                                static_cast<std::size_t>(location.end - location.begin));
        if (!location.is_large) continue;
        const std::span<const std::uint8_t> block = weights.block(location);
        layer.checksums->verify(block.data(), block.size());
    }
    if (layer.dense.cols == 0) return;
    for (const BeamChunk& chunk : workspace.beam_chunks)
        layer.checksums->verify(layer.dense.row(chunk.begin),
                                static_cast<std::size_t>(chunk.size() * layer.dense.cols) * sizeof(float));
}

// Computes the path scores of the children in workspace.beam_chunks and stores them in the sums, starting at each
// chunk's base. The parent and parent score of each chunk must be set.
void BeamSearch::score_children(std::size_t t, const Query& query, Workspace& workspace) const {
    const SearchLayer& layer = layers_[t];
    const Layout& layout = *layouts_[t];
    std::int64_t used = kLineFloats;  // base 0 is reserved for chunks that are not requested
    for (BeamChunk& chunk : workspace.beam_chunks) {
        chunk.begin = layer.chunks[chunk.parent];
        chunk.end = layer.chunks[chunk.parent + 1];
        chunk.base = static_cast<std::uint32_t>(used);
        used += round_up_to_line(chunk.size());
        if (used > kMaxSums)
            throw std::invalid_argument(
                "beam_width is too large for this tree: a query needs more than 2^31 scores. Reduce beam_width.");
    }
    if (layer.checksums && !layer.checksums->all_verified()) verify_weights(layer, query, workspace);
    Scratch& scratch = workspace.scratch;
    const std::size_t chunks = std::max(kTwoByteIds, layer.chunks.size());
    if (scratch.base.size() < chunks) scratch.base.resize(chunks, 0);
    scratch.capacity = used + sum_padding(layer.weights.format);
    float* sums = scratch.sums.reserve(static_cast<std::size_t>(scratch.capacity));
    std::fill_n(sums, used + kBitmapPadding, 0.0F);
    layout.add_scores(query, workspace.beam_chunks, scratch);
    for (const BeamChunk& chunk : workspace.beam_chunks) {
        float* out = sums + chunk.base;
        float scale = layout.scale(chunk.parent);
        if (layer.dense.cols > 0) {
            for (std::int64_t i = 0; i < chunk.size(); ++i)
                out[i] =
                    out[i] * scale + kernels().dot(query.dense, layer.dense.row(chunk.begin + i), layer.dense.cols);
            scale = 1.0F;
        }
        kernels().combine_scores(layer.transform, log_space_, chunk.parent_score, scale,
                                 layer.biases.data() + chunk.begin, chunk.size(), out);
    }
}

float BeamSearch::final_score(float path_score) const { return log_space_ ? std::exp(path_score) : path_score; }

// Returns a path score slightly below min_score, so that rounding errors never prune the path to a label whose score
// just reaches min_score.
float BeamSearch::min_path_score(const SearchOptions& options) const {
    if (!log_space_) return options.min_score - 1e-3F * std::fabs(options.min_score);
    return options.min_score > 0.0F ? std::log(options.min_score) - 1e-3F : -std::numeric_limits<float>::infinity();
}

std::span<const ScoredNode> BeamSearch::rank(const Query& query, const SearchOptions& options,
                                             Workspace& workspace) const {
    options.check();
    const ScoredNode start = root();
    search(query, {&start, 1}, options, workspace);
    for (ScoredNode& label : workspace.beam) label.score = final_score(label.score);
    while (!workspace.beam.empty() && workspace.beam.back().score < options.min_score) workspace.beam.pop_back();
    return workspace.beam;
}

// Searches from the given nodes of the level above the first layer, and stores the top-ranked labels and their path
// scores in workspace.beam.
void BeamSearch::search(const Query& query, std::span<const ScoredNode> starts, const SearchOptions& options,
                        Workspace& workspace) const {
    workspace.beam.clear();
    if (!has_features(query, dense_cols())) return;
    workspace.beam.assign(starts.begin(), starts.end());
    const float min_path = min_path_score(options);
    for (std::size_t t = 0; t < layers_.size(); ++t) {
        const SearchLayer& layer = layers_[t];
        const bool last = t + 1 == layers_.size();
        workspace.beam_chunks.clear();
        for (const ScoredNode& node : workspace.beam)
            if (t == 0 || !never_increases_[t - 1] || !(node.score < min_path))
                workspace.beam_chunks.push_back({node.node, node.score, 0, 0, 0});
        std::sort(workspace.beam_chunks.begin(), workspace.beam_chunks.end(),
                  [](const BeamChunk& a, const BeamChunk& b) { return a.parent < b.parent; });
        score_children(t, query, workspace);
        // Limit counts to the number of nodes, because callers may pass arbitrarily large values.
        const auto nodes = std::max<std::int64_t>(static_cast<std::int64_t>(layer.order.size()), 1);
        // A label's score is the score of its best leaf, so this many leaves always contain the top_k labels.
        const std::int64_t labels = std::min(options.top_k, nodes) * max_leaves_per_label_;
        TopNodes top_nodes(workspace.candidates, std::min(last ? labels : options.beam_width, nodes));
        // Add the children of the best parents first, so that few children of the other parents reach the threshold.
        std::sort(workspace.beam_chunks.begin(), workspace.beam_chunks.end(),
                  [](const BeamChunk& a, const BeamChunk& b) { return a.parent_score > b.parent_score; });
        for (const BeamChunk& chunk : workspace.beam_chunks)
            top_nodes.add(layer.order.data() + chunk.begin, workspace.scratch.sums.data() + chunk.base, chunk.size());
        top_nodes.sort();
        std::swap(workspace.beam, workspace.candidates);
    }
    if (!leaf_labels_.empty()) merge_leaves(workspace.beam, options.top_k);
}

// Replaces leaves with their labels. Each label keeps the score of its best leaf.
void BeamSearch::merge_leaves(std::vector<ScoredNode>& candidates, std::int64_t top_k) const {
    for (ScoredNode& leaf : candidates) leaf.node = leaf_labels_[leaf.node];
    keep_best_labels(candidates, top_k);
}

BeamSearch::WorkspacePool::~WorkspacePool() {
    for (const std::atomic<Workspace*>& slot : slots_) delete slot.load();
}

std::unique_ptr<BeamSearch::Workspace> BeamSearch::WorkspacePool::take() {
    for (std::atomic<Workspace*>& slot : slots_) {
        if (slot.load(std::memory_order_relaxed) == nullptr) continue;
        if (Workspace* workspace = slot.exchange(nullptr, std::memory_order_acquire))
            return std::unique_ptr<Workspace>(workspace);
    }
    return std::make_unique<Workspace>();
}

void BeamSearch::WorkspacePool::put_back(std::unique_ptr<Workspace> workspace) noexcept {
    for (std::atomic<Workspace*>& slot : slots_) {
        Workspace* empty = nullptr;
        if (slot.compare_exchange_strong(empty, workspace.get(), std::memory_order_release,
                                         std::memory_order_relaxed)) {
            workspace.release();
            return;
        }
    }
}

// Returns an upper bound on the number of labels per query, used to allocate the result.
std::int64_t BeamSearch::max_labels(std::int64_t beam_width) const {
    const std::span<const std::int64_t> chunks = layers_.back().chunks;
    std::int64_t widest = 0;
    for (std::size_t c = 0; c + 1 < chunks.size(); ++c) widest = std::max(widest, chunks[c + 1] - chunks[c]);
    return beam_width < n_leaves() ? std::min(n_labels(), beam_width * widest) : n_labels();
}

Csr BeamSearch::search_beams(const Features& queries, SearchOptions options, int threads) const {
    options.top_k = options.beam_width;
    options.check();
    options.top_k = std::clamp<std::int64_t>(max_labels(options.beam_width), 1, options.top_k);
    const float min_path = min_path_score(options);
    const ScoredNode start = root();
    RankedRows out(queries.rows(), n_labels(), options.top_k);
    for_each_row(queries.rows(), threads, nullptr, [&](std::int64_t row, Workspace& workspace) {
        search(query_of_row(queries, row), {&start, 1}, options, workspace);
        if (never_increases_.back())
            while (!workspace.beam.empty() && workspace.beam.back().score < min_path) workspace.beam.pop_back();
        out.set_row(row, workspace.beam);
    });
    return out.to_csr();
}

Csr BeamSearch::search_below(const Features& queries, const CsrView& starts, SearchOptions options, int threads) const {
    options.check();
    std::int64_t widest_beam = 1;
    for (std::int64_t row = 0; row < starts.rows(); ++row) widest_beam = std::max(widest_beam, starts.length(row));
    options.top_k = std::clamp<std::int64_t>(max_labels(widest_beam), 1, options.top_k);
    RankedRows out(queries.rows(), n_labels(), options.top_k);
    for_each_row(queries.rows(), threads, nullptr, [&](std::int64_t row, Workspace& workspace) {
        read_nodes(starts, row, workspace.starts);
        search(query_of_row(queries, row), workspace.starts, options, workspace);
        out.set_row(row, workspace.beam);
    });
    return out.to_csr();
}

Csr BeamSearch::merge_rankings(std::span<const CsrView> rankings, const SearchOptions& options) const {
    options.check();
    if (rankings.empty()) throw std::invalid_argument("There must be at least one ranking.");
    const CsrView& first = rankings.front();
    std::int64_t most = 1;
    for (std::int64_t row = 0; row < first.rows(); ++row) {
        std::int64_t labels = 0;
        for (const CsrView& ranking : rankings) {
            if (ranking.rows() != first.rows() || ranking.cols != first.cols)
                throw std::invalid_argument("All rankings must have the same shape.");
            labels += ranking.length(row);
        }
        most = std::max(most, labels);
    }
    RankedRows out(first.rows(), first.cols, std::min(options.top_k, most));
    std::vector<ScoredNode> nodes;
    std::vector<ScoredNode> merged;
    for (std::int64_t row = 0; row < first.rows(); ++row) {
        merged.clear();
        for (const CsrView& ranking : rankings) {
            read_nodes(ranking, row, nodes);
            merged.insert(merged.end(), nodes.begin(), nodes.end());
        }
        keep_best_labels(merged, options.top_k);
        for (ScoredNode& label : merged) label.score = final_score(label.score);
        while (!merged.empty() && merged.back().score < options.min_score) merged.pop_back();
        out.set_row(row, merged);
    }
    return out.to_csr();
}

Csr BeamSearch::predict(const Features& queries, SearchOptions options, int threads, Monitor* monitor) const {
    options.check();
    const std::int64_t rows = queries.rows();
    options.top_k = std::clamp<std::int64_t>(max_labels(options.beam_width), 1, options.top_k);
    RankedRows out(rows, n_labels(), options.top_k);
    for_each_row(rows, threads, monitor, [&](std::int64_t row, Workspace& workspace) {
        out.set_row(row, rank(query_of_row(queries, row), options, workspace));
    });
    return out.to_csr();
}

const std::vector<BeamSearch::NodeLocations>& BeamSearch::node_locations() const {
    std::call_once(node_locations_once_, [&] {
        std::vector<NodeLocations> levels;
        for (const SearchLayer& layer : layers_) {
            NodeLocations level{std::vector<std::int32_t>(layer.order.size()),
                                std::vector<std::int64_t>(layer.order.size())};
            for (std::size_t p = 0; p + 1 < layer.chunks.size(); ++p)
                for (std::int64_t position = layer.chunks[p]; position < layer.chunks[p + 1]; ++position) {
                    level.parent[layer.order[position]] = static_cast<std::int32_t>(p);
                    level.position[layer.order[position]] = position;
                }
            levels.push_back(std::move(level));
        }
        node_locations_ = std::move(levels);
    });
    return node_locations_;
}

// Writes the path scores of the labels to `out`.
void BeamSearch::score_labels(const Query& query, std::span<const ScoredNode> starts,
                              std::span<const std::int32_t> labels, float* out, Workspace& workspace) const {
    workspace.nodes.resize(layers_.size());
    std::vector<std::int32_t>& leaves = workspace.nodes.back();
    if (leaf_labels_.empty()) {
        leaves.assign(labels.begin(), labels.end());
        score_leaves(query, starts, workspace);
        std::copy(workspace.scores.begin(), workspace.scores.end(), out);
        return;
    }
    leaves.clear();
    for (const std::int32_t label : labels) {
        const auto [first, last] = std::equal_range(leaf_labels_.begin(), leaf_labels_.end(), label);
        for (auto leaf = first; leaf != last; ++leaf)
            leaves.push_back(static_cast<std::int32_t>(leaf - leaf_labels_.begin()));
    }
    score_leaves(query, starts, workspace);
    for (std::size_t i = 0, leaf = 0; i < labels.size(); ++i) {
        float best = workspace.scores[leaf];
        for (; leaf < leaves.size() && leaf_labels_[leaves[leaf]] == labels[i]; ++leaf)
            best = std::max(best, workspace.scores[leaf]);
        out[i] = best;
    }
}

// Scores the leaves in workspace.nodes.back(). Computes scores only for the chunks on the paths from the start nodes to
// these leaves.
void BeamSearch::score_leaves(const Query& query, std::span<const ScoredNode> starts, Workspace& workspace) const {
    const std::size_t depth = layers_.size();
    const std::vector<NodeLocations>& locations = node_locations();
    for (std::size_t t = depth - 1; t > 0; --t) {  // collect the parents of the nodes in level t
        std::vector<std::int32_t>& parents = workspace.nodes[t - 1];
        parents.clear();
        for (const std::int32_t node : workspace.nodes[t]) parents.push_back(locations[t].parent[node]);
        std::sort(parents.begin(), parents.end());
        parents.erase(std::unique(parents.begin(), parents.end()), parents.end());
    }
    for (std::size_t t = 0; t < depth; ++t) {
        workspace.beam_chunks.clear();
        if (t == 0)
            for (const ScoredNode& start : starts) workspace.beam_chunks.push_back({start.node, start.score, 0, 0, 0});
        else
            for (std::size_t i = 0; i < workspace.nodes[t - 1].size(); ++i)
                workspace.beam_chunks.push_back({workspace.nodes[t - 1][i], workspace.scores[i], 0, 0, 0});
        score_children(t, query, workspace);
        workspace.scores.clear();
        for (const std::int32_t node : workspace.nodes[t]) {
            const auto chunk =
                std::lower_bound(workspace.beam_chunks.begin(), workspace.beam_chunks.end(), locations[t].parent[node],
                                 [](const BeamChunk& p, std::int32_t parent) { return p.parent < parent; });
            if (chunk == workspace.beam_chunks.end() || chunk->parent != locations[t].parent[node])
                throw std::invalid_argument("The start nodes must include the ancestors of all candidates.");
            workspace.scores.push_back(
                workspace.scratch.sums.data()[chunk->base + (locations[t].position[node] - chunk->begin)]);
        }
    }
}

std::vector<float> BeamSearch::score_pairs_below(const Features& queries, const CsrView* starts,
                                                 const CsrView& candidates, int threads) const {
    std::vector<float> scores(candidates.indices.size());
    for_each_row(queries.rows(), threads, nullptr, [&](std::int64_t row, Workspace& workspace) {
        const auto begin = static_cast<std::size_t>(candidates.begin(row));
        const auto length = static_cast<std::size_t>(candidates.length(row));
        if (length == 0) return;
        workspace.starts.assign(1, root());
        if (starts) read_nodes(*starts, row, workspace.starts);
        score_labels(query_of_row(queries, row), workspace.starts, candidates.indices.subspan(begin, length),
                     scores.data() + begin, workspace);
    });
    return scores;
}

std::vector<float> BeamSearch::score_pairs(const Features& queries, const CsrView& candidates, int threads,
                                           Monitor* monitor) const {
    std::vector<float> scores(candidates.indices.size());
    const ScoredNode start = root();
    for_each_row(queries.rows(), threads, monitor, [&](std::int64_t row, Workspace& workspace) {
        const auto begin = static_cast<std::size_t>(candidates.begin(row));
        const auto length = static_cast<std::size_t>(candidates.length(row));
        if (length == 0) return;
        score_labels(query_of_row(queries, row), {&start, 1}, candidates.indices.subspan(begin, length),
                     scores.data() + begin, workspace);
        for (std::size_t i = begin; i < begin + length; ++i) scores[i] = final_score(scores[i]);
    });
    return scores;
}

}  // namespace carya
