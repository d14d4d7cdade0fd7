// k-means clustering of a group of labels.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "../core/parallel.hpp"
#include "../core/random.hpp"
#include "label_group.hpp"

namespace carya {

struct KMeansOptions {
    bool spherical = true;  // normalized centroids and cosine similarity; otherwise, Euclidean k-means
    bool balanced = true;   // make cluster sizes as equal as possible
    int max_iter = 20;
    double min_moved = 0.01;  // stop when at most this fraction of the labels change clusters
    // A group with at least twice this number of labels is first bisected on a sample of its labels, which contains
    // this number of labels or 1/16 of the group, whichever is larger. The iterations on all labels start from this
    // bisection and therefore converge faster. Repeated bisection uses samples of a quarter of this number of labels.
    std::int64_t sample_size = 1024;
};

// The minimum number of members of a group per member of its sample.
inline constexpr std::int64_t kMembersPerSampled = 16;

// Returns `count` members in ascending order: one random member from each of `count` ranges of equal size.
std::vector<std::int32_t> sample_members(std::int64_t size, std::int64_t count, Random& random);

// Returns the cluster (0 or 1) of each member. In balanced clustering, cluster 0 contains the fraction `first_fraction`
// of the members. The number of threads does not affect the result. If `stop` is set, the result is arbitrary.
std::vector<std::uint8_t> two_means(const LabelGroup& group, double first_fraction, const KMeansOptions& options,
                                    Random random, int threads, const std::atomic<bool>& stop);

// Returns the cluster (0 to n_clusters - 1) of each member.
std::vector<std::uint32_t> k_means(const LabelGroup& group, int n_clusters, const KMeansOptions& options, Random random,
                                   int threads, const std::atomic<bool>& stop);

}  // namespace carya
