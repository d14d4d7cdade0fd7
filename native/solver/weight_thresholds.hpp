// Minimum magnitudes of weights, by feature. Smaller weights are dropped.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../core/matrix.hpp"

namespace carya {

class WeightThresholds {
public:
    // Uses the same threshold for all features. With a threshold of 0, only weights that are exactly 0 are dropped.
    explicit WeightThresholds(float threshold);

    // Scales the threshold of each feature, because the effect of a weight on a score is proportional to the values of
    // its feature. The threshold is multiplied by m / r, where r is the root mean square of the feature's values and m
    // is the median of r over all entries of x: if the values are half as large as usual, the threshold is twice as
    // high. The median is robust to a few extreme values. Each entry is weighted by the sample weight of its row; if
    // `sample_weights` is empty, all sample weights are 1.
    static WeightThresholds by_effect(const CsrView& x, std::span<const float> sample_weights, float threshold);

    float operator[](std::uint32_t feature) const { return per_feature_.empty() ? minimum_ : per_feature_[feature]; }
    // Returns the lowest threshold over all features.
    float minimum() const { return minimum_; }

private:
    float minimum_;
    std::vector<float> per_feature_;  // empty if all features have the same threshold
};

}  // namespace carya
