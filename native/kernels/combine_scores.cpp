// Conversion of raw scores to path scores, and selection of scores above a threshold.

#include "kernels.hpp"
#include "simd.hpp"

namespace carya::CARYA_ISA {

namespace {

using Vector = Lanes<16>;
using Float = Vector::Float;

// Calls body(f) with f(h) = max(0, 1 - h)^p. The most common powers, 2, 3 and 4, have specialized code.
template <class Body>
void with_hinge_power(float power, const Body& body) {
    const auto hinge = [](Float h) { return Vector::max(Vector::broadcast(0.0F), 1.0F - h); };  // 0 if h is NaN
    if (power == 2.0F) return body([=](Float h) { return hinge(h) * hinge(h); });
    if (power == 3.0F) return body([=](Float h) { return hinge(h) * hinge(h) * hinge(h); });
    if (power == 4.0F) {
        return body([=](Float h) {
            const Float square = hinge(h) * hinge(h);
            return square * square;
        });
    }
    body([=](Float h) { return Vector::map(hinge(h), [power](float x) { return __builtin_powf(x, power); }); });
}

Float log_sigmoid(Float h) {
    return Vector::map(
        h, [](float x) { return (x < 0.0F ? x : 0.0F) - __builtin_log1pf(__builtin_expf(-__builtin_fabsf(x))); });
}

// Computes sums = combine(sums * scale + biases), 16 nodes at a time.
template <class Combine>
void combine_all(float scale, const float* biases, std::int64_t count, float* sums, const Combine& combine) {
    const Float lowest = Vector::broadcast(-3.0e38F);
    const Float highest = Vector::broadcast(3.0e38F);
    const auto update = [&](float* out, Float bias) {
        const Float h = combine(Vector::ref(out) * scale + bias);
        // Replace infinities and NaN with finite values, because NaN would break sorting. NaN ranks last.
        Vector::ref(out) = Vector::min(Vector::select(h > lowest, h, lowest), highest);
    };
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        update(sums + i, Vector::load_unaligned(biases + i));
    }
    if (i == count) return;
    Float bias{};
    __builtin_memcpy(&bias, biases + i, static_cast<std::size_t>(count - i) * sizeof(float));
    update(sums + i, bias);
}

}  // namespace

void combine_scores(const Transform& transform, bool log_space, float parent_score, float scale, const float* biases,
                    std::int64_t count, float* sums) {
    const auto apply = [&](const auto& combine) { combine_all(scale, biases, count, sums, combine); };
    switch (transform.kind) {
        case Transform::noop: return apply([](Float h) { return h; });
        case Transform::sigmoid:
            return apply([&](Float h) { return parent_score * (1.0F / (1.0F + Vector::exp(-h))); });
        case Transform::log_sigmoid: return apply([&](Float h) { return parent_score + log_sigmoid(h); });
        case Transform::hinge:
            if (!log_space) {
                return with_hinge_power(transform.power, [&](const auto& hinge_power) {
                    apply([&](Float h) { return parent_score * Vector::exp(-hinge_power(h)); });
                });
            }
            [[fallthrough]];
        case Transform::log_hinge:
            return with_hinge_power(transform.power, [&](const auto& hinge_power) {
                apply([&](Float h) { return parent_score - hinge_power(h); });
            });
    }
}

std::int64_t select_above(const float* scores, std::int64_t count, float threshold, std::int32_t* indices) {
    const Float bound = Vector::broadcast(threshold);
    std::int64_t n_selected = 0;
    for (std::int64_t i = 0; i < count; i += 16) {
        std::uint32_t selected = Vector::bits_from_mask(Vector::ref(scores + i) >= bound);
        if (count - i < 16) selected &= (1U << (count - i)) - 1;
        for (; selected; selected &= selected - 1)
            indices[n_selected++] = static_cast<std::int32_t>(i) + __builtin_ctz(selected);
    }
    return n_selected;
}

}  // namespace carya::CARYA_ISA
