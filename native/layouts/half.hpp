// Half-precision floats (IEEE 754 binary16), by hand where the processor has no instruction for them.
#pragma once

#include <cstdint>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace carya {
namespace {  // a copy for each file: the kernels compile theirs for other instruction sets

// Rounds to nearest, ties to even; overflow becomes the largest finite value, as weights have no infinities.
inline std::uint16_t to_half(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const float size = value < 0.0F ? -value : value;
    if (size >= 65504.0F) return static_cast<std::uint16_t>(sign | 0x7BFFU);
    if (size < 6.103515625e-05F) {  // subnormal: a multiple of 2^-24
        const float steps = size * 16777216.0F;
        auto whole = static_cast<std::uint32_t>(steps);
        const float rest = steps - static_cast<float>(whole);
        if (rest > 0.5F || (rest == 0.5F && (whole & 1U))) ++whole;
        return static_cast<std::uint16_t>(sign | whole);
    }
    const auto magnitude = __builtin_bit_cast(std::uint32_t, size);
    std::uint32_t half = (magnitude - (112U << 23)) >> 13;
    const std::uint32_t rest = magnitude & 0x1FFFU;
    if (rest > 0x1000U || (rest == 0x1000U && (half & 1U))) ++half;
    return static_cast<std::uint16_t>(sign | half);
}

inline float from_half(std::uint16_t half) {
#ifdef __F16C__
    return _cvtsh_ss(half);
#else
    const std::uint32_t sign = (half & 0x8000U) << 16;
    const std::uint32_t rest = half & 0x7FFFU;
    if (rest >= 0x7C00U) return __builtin_bit_cast(float, sign | 0x477FE000U);  // never written; read as the largest
    // The exponent is put 112 too low and set right by a multiplication, which takes care of subnormals too.
    return __builtin_bit_cast(float, sign | (rest << 13)) * 5.192296858534828e+33F;
#endif
}

}  // namespace
}  // namespace carya
