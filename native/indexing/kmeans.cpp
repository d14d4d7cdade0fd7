#include "kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace carya {

namespace {

constexpr std::int64_t kMembersPerTask = 512;

// Returns the factor by which the sum of a cluster's members is multiplied to obtain its centroid.
float centroid_scale(const Centroid& sum, std::int64_t members, bool spherical) {
    const double norm = spherical ? std::sqrt(sum.squared_norm()) : static_cast<double>(members);
    return norm > 0.0 ? static_cast<float>(1.0 / norm) : 0.0F;
}

// The sum and the number of the members of each of two clusters.
struct TwoClusters {
    explicit TwoClusters(const LabelGroup& group) : sums{Centroid(group), Centroid(group)} {}

    void add(const LabelGroup& group, std::int64_t member, int cluster, int sign) {
        sums[cluster].add(group, member, static_cast<float>(sign));
        counts[cluster] += sign;
    }

    Centroid sums[2];
    std::int64_t counts[2] = {0, 0};
};

// Two-means iterations: alternates between assigning the members of a group to two clusters and updating the clusters.
class Bisection {
public:
    Bisection(const LabelGroup& group, double first_fraction, const KMeansOptions& options, int threads,
              const std::atomic<bool>& stop)
        : group_(group),
          size_(group.size()),
          first_size_(
              std::clamp<std::int64_t>(std::llround(first_fraction * static_cast<double>(size_)), 1, size_ - 1)),
          options_(options),
          threads_(threads),
          stop_(stop),
          difference_(group),
          score_(size_),
          order_(size_),
          assignment_(size_, kUnassigned),
          next_(size_) {}

    // On entry, the clusters can contain arbitrary members, such as one seed each; on return, they contain the members
    // of this group.
    void run(TwoClusters& clusters) {
        for (int iteration = 0; iteration < options_.max_iter && !stop_; ++iteration) {
            assign(clusters);
            if (iteration == 0) clusters = TwoClusters(group_);
            parallel_for(2, threads_, nullptr,
                         [&](int, std::int64_t cluster) { update(clusters, static_cast<int>(cluster)); });
            std::int64_t moved = 0;
            for (std::int64_t m = 0; m < size_; ++m) moved += assignment_[m] != next_[m];
            assignment_ = next_;
            if (static_cast<double>(moved) <= options_.min_moved * static_cast<double>(size_)) break;
        }
    }

    std::vector<std::uint8_t> result() && {
        for (std::uint8_t& cluster : assignment_) cluster &= 1;  // needed only if `stop` was set before `run`
        return std::move(assignment_);
    }

private:
    static constexpr std::uint8_t kUnassigned = 2;

    void assign(const TwoClusters& clusters) {
        const Centroid(&sums)[2] = clusters.sums;
        const float scale0 = centroid_scale(sums[0], clusters.counts[0], options_.spherical);
        const float scale1 = centroid_scale(sums[1], clusters.counts[1], options_.spherical);
        for (std::size_t f = 0; f < difference_.sparse.size(); ++f)
            difference_.sparse[f] = scale1 * sums[1].sparse[f] - scale0 * sums[0].sparse[f];
        for (std::size_t j = 0; j < difference_.dense.size(); ++j)
            difference_.dense[j] = scale1 * sums[1].dense[j] - scale0 * sums[0].dense[j];
        parallel_each(size_, kMembersPerTask, threads_, nullptr,
                      [&](int, std::int64_t m) { score_[m] = similarity(group_, m, difference_); });
        if (!options_.balanced) {  // assign members to the nearer centroid, or by rank if one cluster would be empty
            double boundary = 0.0;
            if (!options_.spherical)
                boundary = 0.5 * (sums[1].squared_norm() * scale1 * scale1 - sums[0].squared_norm() * scale0 * scale0);
            std::int64_t n_second = 0;
            for (std::int64_t m = 0; m < size_; ++m) n_second += next_[m] = score_[m] > static_cast<float>(boundary);
            if (n_second > 0 && n_second < size_) return;
        }
        std::iota(order_.begin(), order_.end(), 0);
        std::nth_element(
            order_.begin(), order_.begin() + first_size_, order_.end(),
            [&](std::int32_t a, std::int32_t b) { return score_[a] != score_[b] ? score_[a] < score_[b] : a < b; });
        std::fill(next_.begin(), next_.end(), 1);
        for (std::int64_t i = 0; i < first_size_; ++i) next_[order_[i]] = 0;
    }

    void update(TwoClusters& clusters, int cluster) {
        for (std::int64_t m = 0; m < size_; ++m) {
            if (assignment_[m] == next_[m]) continue;
            if (next_[m] == cluster) clusters.add(group_, m, cluster, 1);
            if (assignment_[m] == cluster) clusters.add(group_, m, cluster, -1);
        }
    }

    const LabelGroup& group_;
    const std::int64_t size_;
    const std::int64_t first_size_;
    const KMeansOptions& options_;
    const int threads_;
    const std::atomic<bool>& stop_;
    Centroid difference_;
    std::vector<float> score_;
    std::vector<std::int32_t> order_;
    std::vector<std::uint8_t> assignment_;
    std::vector<std::uint8_t> next_;
};

}  // namespace

std::vector<std::int32_t> sample_members(std::int64_t size, std::int64_t count, Random& random) {
    std::vector<std::int32_t> members;
    members.reserve(count);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t first = size * i / count;
        const std::int64_t last = size * (i + 1) / count;
        members.push_back(static_cast<std::int32_t>(first + random.below(static_cast<std::uint32_t>(last - first))));
    }
    return members;
}

std::vector<std::uint8_t> two_means(const LabelGroup& group, double first_fraction, const KMeansOptions& options,
                                    Random random, int threads, const std::atomic<bool>& stop) {
    const std::int64_t size = group.size();
    const std::uint32_t first_seed = random.below(static_cast<std::uint32_t>(size));
    std::uint32_t second_seed = random.below(static_cast<std::uint32_t>(size - 1));
    second_seed += second_seed >= first_seed;
    TwoClusters clusters(group);
    clusters.add(group, first_seed, 0, 1);
    clusters.add(group, second_seed, 1, 1);
    if (size >= 2 * options.sample_size) {
        const std::int64_t sample_size = std::max(options.sample_size, size / kMembersPerSampled);
        const LabelGroup sample = select_members(group, sample_members(size, sample_size, random));
        Bisection(sample, first_fraction, options, threads, stop).run(clusters);
    }
    Bisection bisection(group, first_fraction, options, threads, stop);
    bisection.run(clusters);
    return std::move(bisection).result();
}

namespace {

// Centroids of many clusters. They are stored by feature, with the values of all clusters side by side, so that each
// entry of a member is read only once.
class Centroids {
public:
    Centroids(const LabelGroup& group, int n_clusters)
        : group_(group),
          n_clusters_(n_clusters),
          sparse_(group.entries->n_frequent * n_clusters),
          counts_(n_clusters, 0),
          scale_(n_clusters, 0.0F) {
        for (int cluster = 0; cluster < n_clusters; ++cluster) dense_.emplace_back(group.dense.cols, 0.0F);
    }

    void clear() {
        std::fill(sparse_.begin(), sparse_.end(), 0.0F);
        std::fill(counts_.begin(), counts_.end(), 0);
        for (auto& dense : dense_) std::fill(dense.begin(), dense.end(), 0.0F);
    }

    void add(std::int64_t member, std::uint32_t cluster, int sign) {
        const auto scale = static_cast<float>(sign);
        const GroupEntries& entries = *group_.entries;
        for (std::int64_t e = group_.rows[member].begin; e < group_.rows[member].frequent_end; ++e)
            sparse_[static_cast<std::size_t>(entries.columns[e]) * n_clusters_ + cluster] += scale * entries.values[e];
        const float* x = group_.dense.row(group_.labels[member]);
        for (std::size_t j = 0; j < dense_[cluster].size(); ++j) dense_[cluster][j] += scale * x[j];
        counts_[cluster] += sign;
    }

    // Recomputes the scale of each cluster and, for Euclidean k-means, half the squared norm of each centroid.
    void update_scales(bool spherical) {
        std::vector<double> squares(n_clusters_, 0.0);
        for (std::size_t i = 0; i < sparse_.size(); ++i)
            squares[i % n_clusters_] += static_cast<double>(sparse_[i]) * sparse_[i];
        half_squared_norms_.assign(n_clusters_, 0.0F);
        for (int cluster = 0; cluster < n_clusters_; ++cluster) {
            for (const float x : dense_[cluster]) squares[cluster] += static_cast<double>(x) * x;
            const double norm = spherical ? std::sqrt(squares[cluster]) : static_cast<double>(counts_[cluster]);
            scale_[cluster] = norm > 0.0 ? static_cast<float>(1.0 / norm) : 0.0F;
            if (!spherical)
                half_squared_norms_[cluster] =
                    static_cast<float>(0.5 * squares[cluster] * scale_[cluster] * scale_[cluster]);
        }
    }

    void score(std::int64_t member, float* out) const {
        std::fill_n(out, n_clusters_, 0.0F);
        const GroupEntries& entries = *group_.entries;
        for (std::int64_t e = group_.rows[member].begin; e < group_.rows[member].frequent_end; ++e) {
            const float* centroid = sparse_.data() + static_cast<std::size_t>(entries.columns[e]) * n_clusters_;
            const float value = entries.values[e];
            for (int cluster = 0; cluster < n_clusters_; ++cluster) out[cluster] += value * centroid[cluster];
        }
        const float* x = group_.dense.row(group_.labels[member]);
        for (int cluster = 0; cluster < n_clusters_; ++cluster) {
            for (std::size_t j = 0; j < dense_[cluster].size(); ++j) out[cluster] += x[j] * dense_[cluster][j];
            out[cluster] = out[cluster] * scale_[cluster] - half_squared_norms_[cluster];
        }
    }

private:
    const LabelGroup& group_;
    const int n_clusters_;
    std::vector<float> sparse_;
    std::vector<std::vector<float>> dense_;
    std::vector<std::int64_t> counts_;
    std::vector<float> scale_;
    std::vector<float> half_squared_norms_;
};

// Assigns each member to its best cluster with free capacity. Members are processed in descending order of the
// difference between their best and second-best scores.
void assign_balanced(const std::vector<float>& score, std::int64_t size, int n_clusters,
                     std::vector<std::uint32_t>& next) {
    std::vector<float> regret(size);
    for (std::int64_t m = 0; m < size; ++m) {
        float best = -INFINITY;
        float second = -INFINITY;
        for (int cluster = 0; cluster < n_clusters; ++cluster) {
            const float s = score[m * n_clusters + cluster];
            if (s > best) {
                second = best;
                best = s;
            } else if (s > second) {
                second = s;
            }
        }
        regret[m] = best - second;
    }
    std::vector<std::int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::int32_t a, std::int32_t b) { return regret[a] != regret[b] ? regret[a] > regret[b] : a < b; });
    const std::int64_t base_size = size / n_clusters;
    // Number of clusters that can still receive one more member than base_size.
    std::int64_t larger_left = size % n_clusters;
    std::vector<std::int64_t> filled(n_clusters, 0);
    for (const std::int32_t m : order) {
        int choice = -1;
        for (int cluster = 0; cluster < n_clusters; ++cluster) {
            const bool has_room = filled[cluster] < base_size || (filled[cluster] == base_size && larger_left > 0);
            if (has_room && (choice < 0 || score[std::int64_t{m} * n_clusters + cluster] >
                                               score[std::int64_t{m} * n_clusters + choice]))
                choice = cluster;
        }
        if (filled[choice] == base_size) --larger_left;
        ++filled[choice];
        next[m] = static_cast<std::uint32_t>(choice);
    }
}

}  // namespace

std::vector<std::uint32_t> k_means(const LabelGroup& group, int n_clusters, const KMeansOptions& options, Random random,
                                   int threads, const std::atomic<bool>& stop) {
    const std::int64_t size = group.size();
    std::vector<std::int32_t> seeds(size);
    std::iota(seeds.begin(), seeds.end(), 0);
    random.shuffle(seeds.data(), static_cast<std::uint32_t>(size));
    Centroids centroids(group, n_clusters);
    for (int cluster = 0; cluster < n_clusters; ++cluster)
        centroids.add(seeds[cluster], static_cast<std::uint32_t>(cluster), 1);

    const auto unassigned = static_cast<std::uint32_t>(n_clusters);
    std::vector<std::uint32_t> assignment(size, unassigned);
    std::vector<std::uint32_t> next(size);
    std::vector<float> score(size * n_clusters);
    for (int iteration = 0; iteration < options.max_iter && !stop; ++iteration) {
        centroids.update_scales(options.spherical);
        parallel_each(size, kMembersPerTask, threads, nullptr,
                      [&](int, std::int64_t m) { centroids.score(m, score.data() + m * n_clusters); });
        if (options.balanced) {
            assign_balanced(score, size, n_clusters, next);
        } else {
            for (std::int64_t m = 0; m < size; ++m) {
                const float* s = score.data() + m * n_clusters;
                next[m] = static_cast<std::uint32_t>(std::max_element(s, s + n_clusters) - s);
            }
        }
        if (iteration == 0) centroids.clear();
        std::int64_t moved = 0;
        for (std::int64_t m = 0; m < size; ++m) {
            if (assignment[m] == next[m]) continue;
            if (assignment[m] != unassigned) centroids.add(m, assignment[m], -1);
            centroids.add(m, next[m], 1);
            ++moved;
        }
        assignment = next;
        if (static_cast<double>(moved) <= options.min_moved * static_cast<double>(size)) break;
    }
    for (std::uint32_t& s : assignment) s %= unassigned;  // needed only if `stop` was set before the first assignment
    // Labels with identical representations would never be separated, so distribute them evenly.
    if (!options.balanced &&
        std::all_of(assignment.begin(), assignment.end(), [&](std::uint32_t s) { return s == assignment[0]; }))
        for (std::int64_t m = 0; m < size; ++m) assignment[m] = static_cast<std::uint32_t>(m * n_clusters / size);
    return assignment;
}

}  // namespace carya
