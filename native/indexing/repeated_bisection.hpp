// Balanced clustering by repeated bisection. The splits of up to three levels are optimized together, so that each
// iteration reads the entries of the group only once.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kmeans.hpp"

namespace carya {

// The parts of a group after up to three levels of bisection.
struct BisectedGroup {
    std::vector<std::uint8_t> parts;  // the part of each member
    std::vector<int> n_clusters;      // the number of clusters into which each part is to be split; 0 for an empty part
};

// Splits a group that is to be split into `n_clusters` clusters into at most 8 parts, whose sizes are proportional to
// their numbers of clusters. The number of threads does not affect the result. If `stop` is set, the result is
// arbitrary.
BisectedGroup bisect_repeatedly(const LabelGroup& group, int n_clusters, const KMeansOptions& options, Random random,
                                int threads, const std::atomic<bool>& stop);

}  // namespace carya
