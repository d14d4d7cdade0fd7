// Collects the trained weights of the children of one parent, block by block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../kernels/kernels.hpp"
#include "../layouts/chunk_weights.hpp"

namespace carya {

// The weights that are kept for a block of labels.
struct BlockWeights {
    std::vector<std::uint16_t> masks;  // bit l of masks[f] is set if lane l has a weight for the shared feature f
    std::vector<float> values;         // the weights in ascending order of their features and lanes
    std::uint32_t children[kMaxLanes] = {};
    std::vector<WeightEntry> entries;  // other weights; for each feature, in ascending order of the children

    void clear() {
        masks.clear();
        values.clear();
        entries.clear();
    }
};

// Per-thread object that combines the blocks of a parent.
class WeightCollector {
public:
    // Returns the weights of all blocks. Blocks must be in ascending order of their children. `features` contains the
    // indices of the shared features in ascending order.
    ChunkWeights combine(std::span<const std::uint32_t> features, std::span<BlockWeights> blocks,
                         std::int64_t chunk_size, WeightDtype dtype);

private:
    std::vector<WeightEntry> entries_;
    std::vector<WeightEntry> scratch_;
    std::vector<const float*> next_values_;  // by block
    ChunkWeightsBuilder builder_;
};

}  // namespace carya
