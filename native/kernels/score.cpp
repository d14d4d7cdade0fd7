// From raw scores to path scores, and which of them are good enough.

#include "kernels.hpp"
#include "lanes.hpp"

namespace carya::CARYA_ISA {

namespace {

using Vector = Lanes<16>;
using Float = Vector::Float;

// Calls body(f) where f(h) = max(0, 1 - h)^p. Small whole powers are by far the most used.
template <class Body>
void with_shortfall(float power, const Body& body) {
    const auto below = [](Float h) { return Vector::max(Vector::same(0.0F), 1.0F - h); };  // of no number: none
    if (power == 2.0F) return body([=](Float h) { return below(h) * below(h); });
    if (power == 3.0F) return body([=](Float h) { return below(h) * below(h) * below(h); });
    if (power == 4.0F) {
        return body([=](Float h) {
            const Float square = below(h) * below(h);
            return square * square;
        });
    }
    body([=](Float h) {
        Float out = below(h);
        for (int l = 0; l < 16; ++l) out[l] = __builtin_powf(out[l], power);
        return out;
    });
}

Float log_sigmoid(Float h) {
    Float out;
    for (int l = 0; l < 16; ++l)
        out[l] = (h[l] < 0.0F ? h[l] : 0.0F) - __builtin_log1pf(__builtin_expf(-__builtin_fabsf(h[l])));
    return out;
}

// sums = joined(sums * scale + offsets), sixteen at a time.
template <class Joined>
void join_all(float scale, const float* offsets, std::int64_t count, float* sums, const Joined& joined) {
    const Float least = Vector::same(-3.0e38F);
    const Float most = Vector::same(3.0e38F);
    const auto join = [&](float* out, Float offset) {
        const Float h = joined(Vector::at(out) * scale + offset);
        // Infinite, or no number at all: that ranks last, and is no trouble to sorting.
        Vector::at(out) = Vector::min(h > least ? h : least, most);
    };
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        Float offset;
        __builtin_memcpy(&offset, offsets + i, sizeof offset);
        join(sums + i, offset);
    }
    if (i == count) return;
    Float offset{};
    __builtin_memcpy(&offset, offsets + i, static_cast<std::size_t>(count - i) * sizeof(float));
    join(sums + i, offset);
}

}  // namespace

void join_scores(const Transform& transform, bool in_logs, float parent, float scale, const float* offsets,
                 std::int64_t count, float* sums) {
    const auto join = [&](const auto& joined) { join_all(scale, offsets, count, sums, joined); };
    switch (transform.kind) {
        case Transform::noop: return join([](Float h) { return h; });
        case Transform::sigmoid: return join([&](Float h) { return parent * (1.0F / (1.0F + Vector::exp(-h))); });
        case Transform::log_sigmoid: return join([&](Float h) { return parent + log_sigmoid(h); });
        case Transform::hinge:
            if (!in_logs) {
                return with_shortfall(transform.power, [&](const auto& shortfall) {
                    join([&](Float h) { return parent * Vector::exp(-shortfall(h)); });
                });
            }
            [[fallthrough]];
        case Transform::log_hinge:
            return with_shortfall(transform.power,
                                  [&](const auto& shortfall) { join([&](Float h) { return parent - shortfall(h); }); });
    }
}

std::int64_t above(const float* scores, std::int64_t count, float least, std::int32_t* which) {
    const Float bound = Vector::same(least);
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < count; i += 16) {
        std::uint32_t some = Vector::gather(Vector::at(scores + i) >= bound);
        if (count - i < 16) some &= (1U << (count - i)) - 1;
        for (; some; some &= some - 1) which[found++] = static_cast<std::int32_t>(i) + __builtin_ctz(some);
    }
    return found;
}

}  // namespace carya::CARYA_ISA
