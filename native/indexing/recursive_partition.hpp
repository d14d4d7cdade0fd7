// Recursive B-ary partitioning of the labels (Algorithm 1 in the paper).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"
#include "kmeans.hpp"

namespace carya {

struct PartitionOptions {
    KMeansOptions split;
    bool bisect = true;          // create B clusters by repeated bisection; otherwise, by k-means with k = B
    std::int64_t stop_size = 0;  // clusters of at most this size are not split; 0 splits all clusters
    std::uint64_t seed = 0;
};

// Returns the cluster of each label at each level, starting with the children of the root. At level t, each cluster of
// level t - 1 is split into branching[t] clusters, or fewer if it has fewer labels. Siblings have consecutive numbers.
// Levels at which no cluster would be split are omitted.
std::vector<std::vector<std::int32_t>> partition(const LabelGroup& labels, std::span<const int> branching,
                                                 const PartitionOptions& options, int threads, Monitor& monitor);

}  // namespace carya
