#include "thresholds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace carya {

namespace {

constexpr float kSmallest = std::numeric_limits<float>::min();

// The values of one feature that are not 0.
struct Values {
    double size = 0.0;  // their root mean square
    std::int64_t count = 0;
};

std::vector<Values> values_of_features(const CsrView& x) {
    std::vector<Values> out(x.cols);
    for (std::size_t e = 0; e < x.values.size(); ++e) {
        Values& own = out[x.indices[e]];
        own.size += static_cast<double>(x.values[e]) * x.values[e];
        own.count += x.values[e] != 0.0F;
    }
    for (Values& own : out)
        if (own.count > 0) own.size = std::sqrt(own.size / static_cast<double>(own.count));
    return out;
}

// The median of the sizes, each counted as often as its feature has values.
double usual_size(std::vector<Values> features) {
    std::sort(features.begin(), features.end(), [](const Values& a, const Values& b) { return a.size < b.size; });
    std::int64_t left = std::accumulate(features.begin(), features.end(), std::int64_t{0},
                                        [](std::int64_t sum, const Values& one) { return sum + one.count; });
    left = (left + 1) / 2;
    for (const Values& one : features)
        if ((left -= one.count) <= 0 && one.count > 0) return one.size;
    return 0.0;
}

}  // namespace

Thresholds::Thresholds(float threshold) : least_(std::max(threshold, kSmallest)) {}

Thresholds Thresholds::by_effect(const CsrView& x, float threshold) {
    Thresholds out(threshold);
    if (threshold <= 0.0F) return out;
    const std::vector<Values> features = values_of_features(x);
    const double usual = usual_size(features);
    out.each_.reserve(features.size());
    for (const Values& own : features) {
        const double scaled = own.count > 0 ? threshold * usual / own.size : threshold;
        out.each_.push_back(
            static_cast<float>(std::clamp<double>(scaled, kSmallest, std::numeric_limits<float>::max())));
    }
    for (const float one : out.each_) out.least_ = std::min(out.least_, one);
    return out;
}

}  // namespace carya
