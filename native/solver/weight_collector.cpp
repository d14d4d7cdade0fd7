#include "weight_collector.hpp"

#include <bit>

namespace carya {

ChunkWeights WeightCollector::combine(std::span<const std::uint32_t> features, std::span<BlockWeights> blocks,
                                      std::int64_t chunk_size, WeightDtype dtype) {
    entries_.clear();
    next_values_.clear();
    for (const BlockWeights& block : blocks) {
        entries_.insert(entries_.end(), block.entries.begin(), block.entries.end());
        next_values_.push_back(block.values.data());
    }
    sort_by_feature(entries_, scratch_);
    // Merge the shared features with the features of the entries. Both lists are in ascending order and have no feature
    // in common.
    std::size_t e = 0;
    const auto append_entries_before = [&](std::uint64_t feature) {
        const std::size_t begin = e;
        while (e < entries_.size() && entries_[e].feature < feature) ++e;
        builder_.append_all({entries_.data() + begin, e - begin});
    };
    for (std::size_t f = 0; f < features.size(); ++f) {
        bool has_weights = false;
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            if (blocks[b].masks.empty()) continue;
            unsigned mask = blocks[b].masks[f];
            if (mask == 0) continue;
            if (!has_weights) {
                append_entries_before(features[f]);
                builder_.begin_feature(features[f]);
                has_weights = true;
            }
            for (; mask != 0; mask &= mask - 1)
                builder_.append(blocks[b].children[std::countr_zero(mask)], *next_values_[b]++);
        }
    }
    append_entries_before(std::uint64_t{1} << 32);
    return builder_.finish(chunk_size, dtype);
}

}  // namespace carya
