// Dense vector loops.

#include "kernels.hpp"
#include "lanes.hpp"

namespace carya::CARYA_ISA {

namespace {

template <int N>
void mark(const float* values, std::int64_t count, float threshold, std::uint16_t* masks) {
    using L = Lanes<N>;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto& row = L::at(values + i * N);
        masks[i] = static_cast<std::uint16_t>(L::gather((row >= threshold) | (-row >= threshold)));
    }
}

}  // namespace

void mark_large(int lanes, const float* values, std::int64_t count, float threshold, std::uint16_t* masks) {
    switch (lanes) {
        case 4: return mark<4>(values, count, threshold, masks);
        case 8: return mark<8>(values, count, threshold, masks);
        default: return mark<16>(values, count, threshold, masks);
    }
}

float dot(const float* a, const float* b, std::int64_t count) {
    typedef float Vector __attribute__((vector_size(64), aligned(4)));
    Vector sums[2] = {};
    std::int64_t i = 0;
    for (; i + 32 <= count; i += 32)
        for (int k = 0; k < 2; ++k)
            sums[k] +=
                *reinterpret_cast<const Vector*>(a + i + 16 * k) * *reinterpret_cast<const Vector*>(b + i + 16 * k);
    sums[0] += sums[1];
    float total = 0.0F;
    for (int l = 0; l < 16; ++l) total += sums[0][l];
    for (; i < count; ++i) total += a[i] * b[i];
    return total;
}

void add_scaled(float* out, const float* x, float scale, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) out[i] += scale * x[i];
}

}  // namespace carya::CARYA_ISA
