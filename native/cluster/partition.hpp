// Recursive B-ary partitioning of the labels (Algorithm 1 of the paper).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../matrix.hpp"
#include "../parallel.hpp"
#include "split.hpp"

namespace carya {

struct PartitionOptions {
    SplitOptions split;
    bool bisect = true;          // reach B parts by splits in two; otherwise B centres at once
    std::int64_t stop_size = 0;  // clusters of at most so many labels are not split any more; 0 splits all
    std::uint64_t seed = 0;
};

// The cluster of every label, level by level from the root's children down. Level t cuts every cluster of level t - 1
// into branching[t] clusters, or fewer if it is smaller than that. Clusters are numbered so that siblings follow one
// another. Levels that would split nothing are left out.
std::vector<std::vector<std::int32_t>> partition(const Features& representation, std::span<const int> branching,
                                                 const PartitionOptions& options, int threads, Monitor& monitor);

}  // namespace carya
