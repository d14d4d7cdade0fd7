// Compact copies of sparse rows. Features shared by several rows are stored separately from those that occur in only
// one row.

#include "kernels.hpp"

namespace carya::CARYA_ISA {

void mark_features(const std::int32_t* features, std::int64_t count, const FeatureBits& bits) {
    for (std::int64_t e = 0; e < count; ++e) {
        const auto feature = static_cast<std::uint32_t>(features[e]);
        const std::uint64_t bit = std::uint64_t{1} << (feature & 63);
        const std::uint64_t word = bits.seen[feature >> 6];
        bits.seen[feature >> 6] = word | bit;
        bits.shared[feature >> 6] |= word & bit;
    }
}

void split_row(const std::int32_t* features, const float* values, std::int64_t count, const FeatureBits& bits,
               SplitRow& row) {
    std::int64_t n_shared = 0;
    std::int64_t n_single = 0;
    float squared_norm = 0.0F;
    float single_norm = 0.0F;
    float largest = 0.0F;
    // Write every entry to both lists and let the next entry overwrite it in the wrong list, because a branch would be
    // mispredicted a third of the time.
    for (std::int64_t e = 0; e < count; ++e) {
        const float value = values[e];
        const auto feature = static_cast<std::uint32_t>(features[e]);
        const std::uint64_t word = bits.shared[feature >> 6];
        const bool is_shared = (word >> (feature & 63) & 1) != 0;
        const std::uint64_t before = word & ((std::uint64_t{1} << (feature & 63)) - 1);
        row.columns[n_shared] = bits.ranks[feature >> 6] + static_cast<std::uint32_t>(__builtin_popcountll(before));
        row.values[n_shared] = value;
        row.single_features[n_single] = feature;
        row.single_values[n_single] = value;
        n_shared += is_shared;
        n_single += !is_shared;
        const float single = value * static_cast<float>(!is_shared);  // a product, because GCC turns ?: into a branch
        const float magnitude = __builtin_fabsf(single);
        squared_norm += value * value;
        single_norm += single * single;
        largest = magnitude > largest ? magnitude : largest;
    }
    row.n_shared = n_shared;
    row.n_single = n_single;
    row.squared_norm = squared_norm;
    row.single_norm = single_norm;
    row.largest_single = largest;
}

}  // namespace carya::CARYA_ISA
