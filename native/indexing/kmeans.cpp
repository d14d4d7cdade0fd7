#include "kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace carya {

namespace {

constexpr std::int64_t kMembersPerTask = 512;

// Returns the factor that converts a sum of members to a centroid.
float centroid_scale(const Centroid& sum, std::int64_t members, bool spherical) {
    const double norm = spherical ? std::sqrt(sum.squared_norm()) : static_cast<double>(members);
    return norm > 0.0 ? static_cast<float>(1.0 / norm) : 0.0F;
}

}  // namespace

std::vector<std::uint8_t> two_means(const LabelGroup& group, double first_fraction, const KMeansOptions& options,
                                    Random random, int threads, const std::atomic<bool>& stop) {
    const std::int64_t size = group.size();
    const auto first_size =
        std::clamp<std::int64_t>(std::llround(first_fraction * static_cast<double>(size)), 1, size - 1);
    const std::uint32_t first_seed = random.below(static_cast<std::uint32_t>(size));
    std::uint32_t second_seed = random.below(static_cast<std::uint32_t>(size - 1));
    second_seed += second_seed >= first_seed;

    Centroid sums[2] = {Centroid(group), Centroid(group)};
    std::int64_t counts[2] = {1, 1};
    sums[0].add(group, first_seed, 1.0F);
    sums[1].add(group, second_seed, 1.0F);
    Centroid difference(group);
    std::vector<float> score(size);
    std::vector<std::int32_t> order(size);
    std::vector<std::uint8_t> assignment(size, 2);  // 2 means not yet assigned
    std::vector<std::uint8_t> next(size);

    for (int iteration = 0; iteration < options.max_iter && !stop; ++iteration) {
        const float scale0 = centroid_scale(sums[0], counts[0], options.spherical);
        const float scale1 = centroid_scale(sums[1], counts[1], options.spherical);
        for (std::size_t f = 0; f < difference.sparse.size(); ++f)
            difference.sparse[f] = scale1 * sums[1].sparse[f] - scale0 * sums[0].sparse[f];
        for (std::size_t j = 0; j < difference.dense.size(); ++j)
            difference.dense[j] = scale1 * sums[1].dense[j] - scale0 * sums[0].dense[j];
        parallel_each(size, kMembersPerTask, threads, nullptr,
                      [&](int, std::int64_t m) { score[m] = similarity(group, m, difference); });

        bool by_rank = options.balanced;
        if (!by_rank) {  // assign to the nearer centroid, or by rank if one cluster would be empty
            double boundary = 0.0;
            if (!options.spherical)
                boundary = 0.5 * (sums[1].squared_norm() * scale1 * scale1 - sums[0].squared_norm() * scale0 * scale0);
            std::int64_t n_second = 0;
            for (std::int64_t m = 0; m < size; ++m) n_second += next[m] = score[m] > static_cast<float>(boundary);
            by_rank = n_second == 0 || n_second == size;
        }
        if (by_rank) {
            std::iota(order.begin(), order.end(), 0);
            std::nth_element(
                order.begin(), order.begin() + first_size, order.end(),
                [&](std::int32_t a, std::int32_t b) { return score[a] != score[b] ? score[a] < score[b] : a < b; });
            std::fill(next.begin(), next.end(), 1);
            for (std::int64_t i = 0; i < first_size; ++i) next[order[i]] = 0;
        }

        if (iteration == 0) {
            for (int s = 0; s < 2; ++s) {
                sums[s] = Centroid(group);
                counts[s] = 0;
            }
        }
        parallel_for(2, threads, nullptr, [&](int, std::int64_t s) {
            for (std::int64_t m = 0; m < size; ++m) {
                if (assignment[m] == next[m] || (assignment[m] != s && next[m] != s)) continue;
                const int sign = next[m] == s ? 1 : -1;
                sums[s].add(group, m, static_cast<float>(sign));
                counts[s] += sign;
            }
        });
        std::int64_t moved = 0;
        for (std::int64_t m = 0; m < size; ++m) moved += assignment[m] != next[m];
        assignment = next;
        if (static_cast<double>(moved) <= options.min_moved * static_cast<double>(size)) break;
    }
    for (std::uint8_t& s : assignment) s &= 1;  // needed only if `stop` was set before the first assignment
    return assignment;
}

namespace {

// Centroids of many clusters, stored by feature with the values of all clusters side by side, so each entry of a
// member is read only once.
class Centroids {
public:
    Centroids(const LabelGroup& group, int n_clusters)
        : group_(group),
          n_clusters_(n_clusters),
          sparse_(group.entries->width * n_clusters),
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
        for (std::int64_t e = group_.rows[member].begin; e < group_.rows[member].end; ++e)
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
        for (std::int64_t e = group_.rows[member].begin; e < group_.rows[member].end; ++e) {
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

// Assigns each member to its best cluster with free capacity, in descending order of the difference between the
// member's best and second-best scores.
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
    // Number of clusters that can still receive one member more than base_size.
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
