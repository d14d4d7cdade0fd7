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
    double rms = 0.0;    // root mean square
    double count = 0.0;  // sum of the sample weights
};

std::vector<FeatureScale> feature_scales(const CsrView& x, std::span<const float> sample_weights) {
    std::vector<FeatureScale> out(x.cols);
    for (std::int64_t row = 0; row < x.rows(); ++row) {
        const double weight = sample_weights.empty() ? 1.0 : sample_weights[row];
        for (std::int64_t e = x.begin(row); e < x.end(row); ++e) {
            FeatureScale& scale = out[x.indices[e]];
            scale.rms += weight * (static_cast<double>(x.values[e]) * x.values[e]);
            if (x.values[e] != 0.0F) scale.count += weight;
        }
    }
    for (FeatureScale& scale : out)
        if (scale.count > 0.0) scale.rms = std::sqrt(scale.rms / scale.count);
    return out;
}

// Returns the weighted median of the features' root mean squares. Each feature is weighted by its count.
double median_rms(std::vector<FeatureScale> features) {
    std::sort(features.begin(), features.end(),
              [](const FeatureScale& a, const FeatureScale& b) { return a.rms < b.rms; });
    double remaining = 0.5 * std::accumulate(features.begin(), features.end(), 0.0,
                                             [](double sum, const FeatureScale& scale) { return sum + scale.count; });
    double median = 0.0;
    for (const FeatureScale& scale : features) {
        if (scale.count == 0.0) continue;
        median = scale.rms;
        if ((remaining -= scale.count) <= 0.0) break;
    }
    return median;
}

}  // namespace

WeightThresholds::WeightThresholds(float threshold) : minimum_(std::max(threshold, kMinThreshold)) {}

WeightThresholds WeightThresholds::by_effect(const CsrView& x, std::span<const float> sample_weights, float threshold) {
    WeightThresholds out(threshold);
    if (threshold <= 0.0F) return out;
    const std::vector<FeatureScale> features = feature_scales(x, sample_weights);
    const double median = median_rms(features);
    out.per_feature_.reserve(features.size());
    for (const FeatureScale& scale : features) {
        const double scaled = scale.count > 0.0 ? threshold * median / scale.rms : threshold;
        out.per_feature_.push_back(
            static_cast<float>(std::clamp<double>(scaled, kMinThreshold, std::numeric_limits<float>::max())));
    }
    for (const float value : out.per_feature_) out.minimum_ = std::min(out.minimum_, value);
    return out;
}

}  // namespace carya
