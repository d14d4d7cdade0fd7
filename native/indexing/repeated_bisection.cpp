#include "repeated_bisection.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>

#include "../core/aligned_buffer.hpp"
#include "../kernels/kernels.hpp"

namespace carya {

namespace {

constexpr int kMaxLevels = 3;
constexpr int kMaxParts = 1 << kMaxLevels;
constexpr std::int64_t kMembersPerBatch = 256;

// The splits of a group form a complete binary tree, whose nodes are numbered as in a heap: the root is node 1, and the
// children of node v are nodes 2v and 2v + 1. Part p is leaf n_parts() + p. If a node is not to be split, all of its
// members belong to its first child.
class SplitTree {
public:
    explicit SplitTree(int n_clusters)
        : n_parts_(std::min(kMaxParts, static_cast<int>(std::bit_ceil(static_cast<unsigned>(n_clusters))))) {
        n_clusters_[1] = n_clusters;
        for (int v = 1; v < n_parts_; ++v) {
            n_clusters_[2 * v] = std::max(n_clusters_[v] / 2, std::min(n_clusters_[v], 1));
            n_clusters_[2 * v + 1] = n_clusters_[v] - n_clusters_[2 * v];
        }
    }

    int n_parts() const { return n_parts_; }
    int n_levels() const { return std::countr_zero(static_cast<unsigned>(n_parts_)); }
    bool is_leaf(int node) const { return node >= n_parts_; }
    std::uint8_t part(int leaf) const { return static_cast<std::uint8_t>(leaf - n_parts_); }

    std::vector<int> clusters_per_part() const {
        return {n_clusters_.begin() + n_parts_, n_clusters_.begin() + 2 * n_parts_};
    }

    // Returns the fraction of the members of a node that belong to its first child.
    double first_fraction(int node) const {
        return n_clusters_[node] > 0 ? static_cast<double>(n_clusters_[2 * node]) / n_clusters_[node] : 1.0;
    }

    // Returns the number of members that belong to the first child of a node with `size` members.
    std::int64_t first_size(int node, std::int64_t size) const {
        if (n_clusters_[2 * node + 1] == 0 || size < 2) return size;
        return std::clamp<std::int64_t>(std::llround(first_fraction(node) * static_cast<double>(size)), 1, size - 1);
    }

private:
    const int n_parts_;
    std::array<int, 2 * kMaxParts> n_clusters_{};
};

// Splits the members of a node and its descendants one after the other.
class SequentialBisection {
public:
    SequentialBisection(const LabelGroup& group, const SplitTree& tree, const KMeansOptions& options, Random& random,
                        int threads, const std::atomic<bool>& stop)
        : group_(group), tree_(tree), options_(options), random_(random), threads_(threads), stop_(stop) {}

    std::vector<std::uint8_t> run() {
        parts_.resize(group_.size());
        std::vector<std::int32_t> members(group_.size());
        std::iota(members.begin(), members.end(), 0);
        split(1, members);
        return std::move(parts_);
    }

private:
    void split(int node, const std::vector<std::int32_t>& members) {
        if (tree_.is_leaf(node)) {
            for (const std::int32_t member : members) parts_[member] = tree_.part(node);
            return;
        }
        if (tree_.first_size(node, std::ssize(members)) == std::ssize(members)) return split(2 * node, members);
        const std::vector<std::uint8_t> sides = two_means(select_members(group_, members), tree_.first_fraction(node),
                                                          options_, Random(random_.next()), threads_, stop_);
        for (int side = 0; side < 2; ++side) {
            std::vector<std::int32_t> half;
            for (std::size_t m = 0; m < members.size(); ++m)
                if (sides[m] == side) half.push_back(members[m]);
            split(2 * node + side, half);
        }
    }

    const LabelGroup& group_;
    const SplitTree& tree_;
    const KMeansOptions& options_;
    Random& random_;
    const int threads_;
    const std::atomic<bool>& stop_;
    std::vector<std::uint8_t> parts_;
};

// Two-means iterations for all splits at the same time. The *direction* of a split is the difference between the
// centroids of its children. An iteration computes the inner products of each member and all directions, divides the
// members of each node among its children by these scores, and updates the sums of the parts, from which all centroids
// are computed.
class JointBisection {
public:
    JointBisection(const LabelGroup& group, const SplitTree& tree, const KMeansOptions& options, int threads,
                   const std::atomic<bool>& stop)
        : group_(group),
          tree_(tree),
          n_parts_(tree.n_parts()),
          lanes_(n_parts_ <= 4 ? 4 : 8),
          options_(options),
          threads_(threads),
          stop_(stop),
          sums_(n_parts_, Centroid(group)),
          counts_(n_parts_, 0),
          dense_directions_(n_parts_, std::vector<float>(group.dense.cols)),
          scores_(group.size() * lanes_),
          ranked_(group.size()),
          parts_(group.size(), kUnassigned),
          next_(group.size()) {}

    // Starts from the parts of a sample of the group.
    std::vector<std::uint8_t> run(const LabelGroup& sample, const std::vector<std::uint8_t>& sample_parts) {
        parallel_for(n_parts_, threads_, nullptr, [&](int, std::int64_t part) {
            for (std::int64_t m = 0; m < sample.size(); ++m)
                if (sample_parts[m] == part) add(sample, m, static_cast<int>(part), 1);
        });
        // The number of members that may still change sides at each level.
        const double tolerance = options_.min_moved * static_cast<double>(group_.size()) * tree_.n_levels();
        for (int iteration = 0; iteration < options_.max_iter && !stop_; ++iteration) {
            assign();
            if (iteration == 0) {
                for (Centroid& sum : sums_) sum.clear();
                std::fill(counts_.begin(), counts_.end(), 0);
            }
            parallel_for(n_parts_, threads_, nullptr, [&](int, std::int64_t part) { update(static_cast<int>(part)); });
            std::int64_t moved = 0;
            for (std::int64_t m = 0; m < group_.size(); ++m) moved += parts_[m] != next_[m];
            parts_ = next_;
            if (static_cast<double>(moved) <= tolerance) break;
        }
        for (std::uint8_t& part : parts_)
            part %= kMaxParts;  // needed only if `stop` was set before the first iteration
        return std::move(parts_);
    }

private:
    static constexpr std::uint8_t kUnassigned = kMaxParts;
    static constexpr std::int64_t kBlock = 16;
    using NodeSums = float[2 * kMaxParts][kBlock];

    struct Ranked {
        float score;
        std::int32_t member;
        bool operator<(const Ranked& other) const {
            return score != other.score ? score < other.score : member < other.member;
        }
    };

    void add(const LabelGroup& group, std::int64_t member, int part, int sign) {
        sums_[part].add(group, member, static_cast<float>(sign));
        counts_[part] += sign;
    }

    void update(int part) {
        for (std::int64_t m = 0; m < group_.size(); ++m) {
            if (parts_[m] == next_[m]) continue;
            if (next_[m] == part) add(group_, m, part, 1);
            if (parts_[m] == part) add(group_, m, part, -1);
        }
    }

    void assign() {
        compute_directions();
        const GroupEntries& entries = *group_.entries;
        const std::int64_t dense_cols = group_.dense.cols;
        parallel_each(group_.size(), kMembersPerBatch, threads_, nullptr, [&](int, std::int64_t m) {
            const LabelGroup::Row row = group_.rows[m];
            float* scores = scores_.data() + m * lanes_;
            kernels().sparse_dots(lanes_, entries.columns.data() + row.begin, entries.values.data() + row.begin,
                                  row.frequent_end - row.begin, directions_.data(), scores);
            if (dense_cols > 0)
                for (int v = 1; v < n_parts_; ++v)
                    scores[v - 1] +=
                        kernels().dot(group_.dense.row(group_.labels[m]), dense_directions_[v].data(), dense_cols);
        });
        for (std::int64_t m = 0; m < group_.size(); ++m) ranked_[m].member = static_cast<std::int32_t>(m);
        divide(1, 0, group_.size());
    }

    // Divides the members ranked_[begin..end) of a node among its descendants.
    void divide(int node, std::int64_t begin, std::int64_t end) {
        if (tree_.is_leaf(node)) {
            for (std::int64_t i = begin; i < end; ++i) next_[ranked_[i].member] = tree_.part(node);
            return;
        }
        const std::int64_t middle = begin + tree_.first_size(node, end - begin);
        if (middle < end) {
            for (std::int64_t i = begin; i < end; ++i)
                ranked_[i].score = scores_[std::int64_t{ranked_[i].member} * lanes_ + node - 1];
            std::nth_element(ranked_.begin() + begin, ranked_.begin() + middle, ranked_.begin() + end);
        }
        divide(2 * node, begin, middle);
        divide(2 * node + 1, middle, end);
    }

    void compute_directions() {
        const auto width = static_cast<std::int64_t>(sums_[0].sparse.size());
        const std::int64_t dense_cols = group_.dense.cols;
        std::array<double, 2 * kMaxParts> squares{};
        add_squares(&Centroid::sparse, width, squares);
        add_squares(&Centroid::dense, dense_cols, squares);
        const std::array<float, 2 * kMaxParts> scales = centroid_scales(squares);

        float* directions = directions_.reserve(width * lanes_);
        for_each_block(&Centroid::sparse, width, [&](std::int64_t first, std::int64_t count, const NodeSums& sums) {
            NodeSums differences;
            for (int v = 1; v < n_parts_; ++v)
                for (std::int64_t i = 0; i < kBlock; ++i)
                    differences[v][i] = scales[2 * v + 1] * sums[2 * v + 1][i] - scales[2 * v] * sums[2 * v][i];
            for (std::int64_t i = 0; i < count; ++i)
                for (int v = 1; v < n_parts_; ++v) directions[(first + i) * lanes_ + v - 1] = differences[v][i];
        });
        for_each_block(&Centroid::dense, dense_cols, [&](std::int64_t first, std::int64_t count, const NodeSums& sums) {
            for (int v = 1; v < n_parts_; ++v)
                for (std::int64_t i = 0; i < count; ++i)
                    dense_directions_[v][first + i] =
                        scales[2 * v + 1] * sums[2 * v + 1][i] - scales[2 * v] * sums[2 * v][i];
        });
    }

    // Adds the squared norm of the sum of the members of each node.
    void add_squares(std::vector<float> Centroid::* values, std::int64_t width,
                     std::array<double, 2 * kMaxParts>& squares) const {
        NodeSums partial = {};
        for_each_block(values, width, [&](std::int64_t, std::int64_t, const NodeSums& sums) {
            for (int v = 2; v < 2 * n_parts_; ++v)
                for (std::int64_t i = 0; i < kBlock; ++i) partial[v][i] += sums[v][i] * sums[v][i];
        });
        for (int v = 2; v < 2 * n_parts_; ++v)
            squares[v] = std::accumulate(std::begin(partial[v]), std::end(partial[v]), squares[v]);
    }

    // Returns the factor by which the sum of the members of each node is multiplied to obtain its centroid.
    std::array<float, 2 * kMaxParts> centroid_scales(const std::array<double, 2 * kMaxParts>& squares) const {
        std::array<float, 2 * kMaxParts> scales{};
        std::array<std::int64_t, 2 * kMaxParts> counts{};
        for (int v = 2 * n_parts_ - 1; v > 1; --v) {
            counts[v] = tree_.is_leaf(v) ? counts_[tree_.part(v)] : counts[2 * v] + counts[2 * v + 1];
            const double norm = options_.spherical ? std::sqrt(squares[v]) : static_cast<double>(counts[v]);
            scales[v] = norm > 0.0 ? static_cast<float>(1.0 / norm) : 0.0F;
        }
        return scales;
    }

    // Calls body(first, count, sums) for each block of features, where sums[v][i] is the value of feature first + i in
    // the sum of the members of node v.
    template <class Body>
    void for_each_block(std::vector<float> Centroid::* values, std::int64_t width, const Body& body) const {
        NodeSums sums = {};
        for (std::int64_t first = 0; first < width; first += kBlock) {
            const std::int64_t count = std::min(kBlock, width - first);
            for (int p = 0; p < n_parts_; ++p) {
                const float* const from = (sums_[p].*values).data() + first;
                for (std::int64_t i = 0; i < kBlock; ++i) sums[n_parts_ + p][i] = i < count ? from[i] : 0.0F;
            }
            for (int v = n_parts_ - 1; v > 1; --v)
                for (std::int64_t i = 0; i < kBlock; ++i) sums[v][i] = sums[2 * v][i] + sums[2 * v + 1][i];
            body(first, count, sums);
        }
    }

    const LabelGroup& group_;
    const SplitTree& tree_;
    const int n_parts_;
    const int lanes_;
    const KMeansOptions& options_;
    const int threads_;
    const std::atomic<bool>& stop_;
    std::vector<Centroid> sums_;  // by part
    std::vector<std::int64_t> counts_;
    AlignedBuffer<float> directions_;  // features x lanes; lane v - 1 belongs to node v
    std::vector<std::vector<float>> dense_directions_;
    std::vector<float> scores_;  // members x lanes
    std::vector<Ranked> ranked_;
    std::vector<std::uint8_t> parts_;
    std::vector<std::uint8_t> next_;
};

}  // namespace

BisectedGroup bisect_repeatedly(const LabelGroup& group, int n_clusters, const KMeansOptions& options, Random random,
                                int threads, const std::atomic<bool>& stop) {
    const SplitTree tree(n_clusters);
    const std::int64_t sample_size =
        std::max<std::int64_t>({options.sample_size / 4, group.size() / kMembersPerSampled, tree.n_parts()});
    if (sample_size >= group.size())
        return {SequentialBisection(group, tree, options, random, threads, stop).run(), tree.clusters_per_part()};
    const LabelGroup sample = select_members(group, sample_members(group.size(), sample_size, random));
    const std::vector<std::uint8_t> sample_parts =
        SequentialBisection(sample, tree, options, random, threads, stop).run();
    return {JointBisection(group, tree, options, threads, stop).run(sample, sample_parts), tree.clusters_per_part()};
}

}  // namespace carya
