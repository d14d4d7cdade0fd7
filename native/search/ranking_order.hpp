// The order of scored nodes in beams and rankings.
#pragma once

#include <cstdint>

namespace carya {

struct ScoredNode {
    std::int32_t node;
    float score;
};

// Ties are broken in favor of the lower node index.
inline bool ranks_before(const ScoredNode& a, const ScoredNode& b) {
    return a.score != b.score ? a.score > b.score : a.node < b.node;
}

}  // namespace carya
