#include "weight_thresholds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace carya {

namespace {

constexpr float kMinThreshold = std::numeric_limits<float>::min();

// Statistics of the nonzero values of one feature.
struct FeatureScale {
    double rms = 0.0;  // root mean square
    std::int64_t count = 0;
};

std::vector<FeatureScale> feature_scales(const CsrView& x) {
    std::vector<FeatureScale> out(x.cols);
    for (std::size_t e = 0; e < x.values.size(); ++e) {
        FeatureScale& scale = out[x.indices[e]];
        scale.rms += static_cast<double>(x.values[e]) * x.values[e];
        scale.count += x.values[e] != 0.0F;
    }
    for (FeatureScale& scale : out)
        if (scale.count > 0) scale.rms = std::sqrt(scale.rms / static_cast<double>(scale.count));
    return out;
}

// Returns the median RMS of the features, weighted by the number of values per feature.
double median_rms(std::vector<FeatureScale> features) {
    std::sort(features.begin(), features.end(),
              [](const FeatureScale& a, const FeatureScale& b) { return a.rms < b.rms; });
    std::int64_t remaining =
        std::accumulate(features.begin(), features.end(), std::int64_t{0},
                        [](std::int64_t sum, const FeatureScale& scale) { return sum + scale.count; });
    remaining = (remaining + 1) / 2;
    for (const FeatureScale& scale : features)
        if ((remaining -= scale.count) <= 0 && scale.count > 0) return scale.rms;
    return 0.0;
}

}  // namespace

WeightThresholds::WeightThresholds(float threshold) : minimum_(std::max(threshold, kMinThreshold)) {}

WeightThresholds WeightThresholds::by_effect(const CsrView& x, float threshold) {
    WeightThresholds out(threshold);
    if (threshold <= 0.0F) return out;
    const std::vector<FeatureScale> features = feature_scales(x);
    const double median = median_rms(features);
    out.per_feature_.reserve(features.size());
    for (const FeatureScale& scale : features) {
        const double scaled = scale.count > 0 ? threshold * median / scale.rms : threshold;
        out.per_feature_.push_back(
            static_cast<float>(std::clamp<double>(scaled, kMinThreshold, std::numeric_limits<float>::max())));
    }
    for (const float value : out.per_feature_) out.minimum_ = std::min(out.minimum_, value);
    return out;
}

}  // namespace carya
