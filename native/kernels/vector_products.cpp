// Inner products and other vector operations.

#include "kernels.hpp"
#include "simd.hpp"

namespace carya::CARYA_ISA {

namespace {

template <int N>
void mark_rows(const float* values, std::int64_t count, const float* thresholds, std::uint16_t* masks) {
    using L = Lanes<N>;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto& row = L::ref(values + i * N);
        masks[i] = static_cast<std::uint16_t>(L::bits_from_mask((row >= thresholds[i]) | (-row >= thresholds[i])));
    }
}

}  // namespace

namespace {

template <int N>
void dots(const std::uint32_t* columns, const float* values, std::int64_t count, const float* x, float* out) {
    using L = Lanes<N>;
    constexpr int kSums = 4;  // independent accumulators, which hide the latency of additions
    typename L::Float sums[kSums];
    for (auto& sum : sums) sum = L::broadcast(0.0F);
    std::int64_t i = 0;
    for (; i + kSums <= count; i += kSums)
        for (int k = 0; k < kSums; ++k)
            sums[k] += values[i + k] * L::load_unaligned(x + std::int64_t{columns[i + k]} * N);
    for (; i < count; ++i) sums[0] += values[i] * L::load_unaligned(x + std::int64_t{columns[i]} * N);
    sums[0] += sums[1];
    sums[2] += sums[3];
    sums[0] += sums[2];
    __builtin_memcpy(out, &sums[0], N * sizeof(float));
}

}  // namespace

void sparse_dots(int lanes, const std::uint32_t* columns, const float* values, std::int64_t count, const float* x,
                 float* out) {
    if (lanes == 4) return dots<4>(columns, values, count, x, out);
    dots<8>(columns, values, count, x, out);
}

void mark_large_weights(int lanes, const float* values, std::int64_t count, const float* thresholds,
                        std::uint16_t* masks) {
    switch (lanes) {
        case 4: return mark_rows<4>(values, count, thresholds, masks);
        case 8: return mark_rows<8>(values, count, thresholds, masks);
        default: return mark_rows<16>(values, count, thresholds, masks);
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

std::int64_t count_at_least(const float* values, std::int64_t count, float threshold) {
    // A 32-bit counter is the same size as a float, so the compiler can vectorize the loop without conversions. The
    // counter cannot overflow within a block.
    constexpr std::int64_t block = 1 << 20;
    std::int64_t total = 0;
    for (std::int64_t first = 0; first < count; first += block) {
        const std::int64_t last = count < first + block ? count : first + block;
        std::uint32_t n = 0;
        for (std::int64_t i = first; i < last; ++i) n += (values[i] >= threshold) | (-values[i] >= threshold);
        total += n;
    }
    return total;
}

void encode_signed_roots(const float* values, std::int64_t count, float scale, std::int8_t* roots) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float magnitude = values[i] < 0.0F ? -values[i] : values[i];
        float root = __builtin_sqrtf(magnitude / scale) + 0.5F;
        root = root < 127.0F ? root : 127.0F;
        const auto rounded = static_cast<std::int32_t>(root);
        roots[i] = static_cast<std::int8_t>(values[i] < 0.0F ? -rounded : rounded);
    }
}

void add_scaled(float* out, const float* x, float scale, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) out[i] += scale * x[i];
}

}  // namespace carya::CARYA_ISA
