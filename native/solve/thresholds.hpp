// How small a weight of each feature may be and still be kept.
#pragma once

#include <cstdint>
#include <vector>

#include "../matrix.hpp"

namespace carya {

class Thresholds {
public:
    // The same for all features. With 0 all weights stay but those that are exactly 0.
    explicit Thresholds(float threshold);

    // What a weight does to a score is as large as the values of its feature. The size of a feature is the root mean
    // square of its values, and half of all entries of x are of features of the usual size or less; a feature of half
    // the usual size has twice the threshold. A few values that are far too large change nothing.
    static Thresholds by_effect(const CsrView& x, float threshold);

    float operator[](std::uint32_t feature) const { return each_.empty() ? least_ : each_[feature]; }
    // Of all features.
    float least() const { return least_; }

private:
    float least_;
    std::vector<float> each_;  // empty if they are all the same
};

}  // namespace carya
