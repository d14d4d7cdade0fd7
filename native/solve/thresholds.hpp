// How small a weight of each feature may be and still be kept.
#pragma once

#include <cstdint>
#include <vector>

#include "../matrix.hpp"

namespace carya {

class Thresholds {
public:
    // The same for all features. With 0 all weights stay but those that are exactly 0.
    explicit Thresholds(float all);

    // What a weight does to a score is as large as the values of its feature: a feature whose values are half as large
    // as those of all features, by their root mean squares, has twice the threshold.
    Thresholds(const CsrView& x, float usual);

    float operator[](std::uint32_t feature) const { return each_.empty() ? least_ : each_[feature]; }
    // Of all features.
    float least() const { return least_; }

private:
    float least_;
    std::vector<float> each_;  // empty if they are all the same
};

}  // namespace carya
