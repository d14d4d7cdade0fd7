// Splits one group of labels into parts by k-means.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "../parallel.hpp"
#include "../random.hpp"
#include "group.hpp"

namespace carya {

struct SplitOptions {
    bool spherical = true;  // centres of length 1, similarity by angle; otherwise plain k-means
    bool balanced = true;   // parts as equal in size as can be
    int max_iter = 20;
    double min_moved = 0.01;  // stop when fewer than this share of the labels change their part
};

// The part of every member, 0 to parts - 1, for two parts of which the first is to hold `share` of the members.
// Scores are computed by `threads` threads, which does not change them. Once `stop` is set any answer will do.
std::vector<std::uint8_t> split_in_two(const Group& group, double share, const SplitOptions& options, Random random,
                                       int threads, const std::atomic<bool>& stop);

// The same for any number of parts at once, with one centre a part.
std::vector<std::uint32_t> split_in_many(const Group& group, int parts, const SplitOptions& options, Random random,
                                         int threads, const std::atomic<bool>& stop);

}  // namespace carya
