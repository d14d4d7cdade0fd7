// Half-precision floats (IEEE 754 binary16), converted in software if the processor has no conversion instructions.
#pragma once

#include <cstdint>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace carya {
namespace {  // private to each file, because the kernels are compiled for several instruction sets

// Rounds to nearest, ties to even. Values that are too large are converted to the largest finite value, because weights
// must be finite.
inline std::uint16_t to_half(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const float magnitude = value < 0.0F ? -value : value;
    if (magnitude >= 65504.0F) return static_cast<std::uint16_t>(sign | 0x7BFFU);
    if (magnitude < 6.103515625e-05F) {  // subnormal: a multiple of 2^-24
        const float scaled = magnitude * 16777216.0F;
        auto steps = static_cast<std::uint32_t>(scaled);
        const float remainder = scaled - static_cast<float>(steps);
        if (remainder > 0.5F || (remainder == 0.5F && (steps & 1U))) ++steps;
        return static_cast<std::uint16_t>(sign | steps);
    }
    const auto magnitude_bits = __builtin_bit_cast(std::uint32_t, magnitude);
    std::uint32_t half = (magnitude_bits - (112U << 23)) >> 13;
    const std::uint32_t remainder = magnitude_bits & 0x1FFFU;
    if (remainder > 0x1000U || (remainder == 0x1000U && (half & 1U))) ++half;
    return static_cast<std::uint16_t>(sign | half);
}

inline float from_half(std::uint16_t half) {
#ifdef __F16C__
    return _cvtsh_ss(half);
#else
    const std::uint32_t sign = (half & 0x8000U) << 16;
    const std::uint32_t magnitude = half & 0x7FFFU;
    if (magnitude >= 0x7C00U)
        // Infinities and NaNs are never written; they are read as the largest finite value.
        return __builtin_bit_cast(float, sign | 0x477FE000U);
    // The exponent is too low by 112. The multiplication corrects it, also for subnormal numbers.
    return __builtin_bit_cast(float, sign | (magnitude << 13)) * 5.192296858534828e+33F;
#endif
}

}  // namespace
}  // namespace carya
