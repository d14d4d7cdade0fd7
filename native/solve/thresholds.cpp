#include "thresholds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace carya {

namespace {

constexpr float kSmallest = std::numeric_limits<float>::min();

struct Squares {
    double sum = 0.0;
    std::int64_t count = 0;

    void add(float value) {
        sum += static_cast<double>(value) * value;
        count += value != 0.0F;
    }
    double root() const { return count > 0 ? std::sqrt(sum / static_cast<double>(count)) : 0.0; }
};

}  // namespace

Thresholds::Thresholds(float all) : least_(std::max(all, kSmallest)) {}

Thresholds::Thresholds(const CsrView& x, float usual) : Thresholds(usual) {
    std::vector<Squares> of_feature(x.cols);
    Squares all;
    for (std::size_t e = 0; e < x.values.size(); ++e) {
        of_feature[x.indices[e]].add(x.values[e]);
        all.add(x.values[e]);
    }
    each_.reserve(x.cols);
    for (const Squares& own : of_feature) {
        const double scaled = own.root() > 0.0 ? least_ * all.root() / own.root() : least_;
        each_.push_back(static_cast<float>(std::clamp<double>(scaled, kSmallest, std::numeric_limits<float>::max())));
    }
    for (const float one : each_) least_ = std::min(least_, one);
}

}  // namespace carya
