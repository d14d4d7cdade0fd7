// Vectors of N floats, one a label, in the compiler's own vector types: the same source is AVX-512, AVX2, SSE and NEON.
#pragma once

#include <cstdint>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#ifndef CARYA_ISA
#error "compile the kernels with -DCARYA_ISA=<name>"
#endif

namespace carya::CARYA_ISA {

// The compiler wants vector types spelled out for each width.
template <int N>
struct Types;
template <>
struct Types<4> {
    typedef float Float __attribute__((vector_size(16)));
    typedef std::int32_t Mask __attribute__((vector_size(16)));
};
template <>
struct Types<8> {
    typedef float Float __attribute__((vector_size(32)));
    typedef std::int32_t Mask __attribute__((vector_size(32)));
};
template <>
struct Types<16> {
    typedef float Float __attribute__((vector_size(64)));
    typedef std::int32_t Mask __attribute__((vector_size(64)));
};

template <int N>
struct Lanes {
    using Float = typename Types<N>::Float;
    using Mask = typename Types<N>::Mask;  // -1 or 0 in every lane

    static inline Float same(float x) { return x - Float{}; }
    static inline const Float& at(const float* p) { return *reinterpret_cast<const Float*>(p); }
    static inline Float& at(float* p) { return *reinterpret_cast<Float*>(p); }
    static inline const Mask& at(const std::int32_t* p) { return *reinterpret_cast<const Mask*>(p); }

    // Bit l of `bits` becomes lane l.
    static inline Mask spread(std::uint32_t bits) {
        Mask bit;
        for (int l = 0; l < N; ++l) bit[l] = 1 << l;
        return (bit & static_cast<std::int32_t>(bits)) != 0;
    }

    // The reverse of spread. Compilers do not see that this is one or two instructions.
    static inline std::uint32_t gather(Mask m) {
#if defined(__AVX512F__)
        if constexpr (N == 16) return _mm512_test_epi32_mask((__m512i)m, (__m512i)m);
#endif
#if defined(__SSE2__)
        __m128 part[N / 4];
        __builtin_memcpy(part, &m, sizeof m);
        std::uint32_t bits = 0;
        for (int i = 0; i < N / 4; ++i) bits |= static_cast<std::uint32_t>(_mm_movemask_ps(part[i])) << (4 * i);
        return bits;
#else
        std::uint32_t bits = 0;
        for (int l = 0; l < N; ++l) bits |= static_cast<std::uint32_t>(m[l] & (1 << l));
        return bits;
#endif
    }

    static inline bool any(Mask m) { return gather(m) != 0; }

    static inline Float max(Float a, Float b) { return a > b ? a : b; }
    static inline Float min(Float a, Float b) { return a < b ? a : b; }

    // e^x to about one part in 10^6, for |x| <= 80: 2^n from the exponent bits, the rest by a polynomial.
    static inline Float exp(Float x) {
        x = max(min(x, same(80.0F)), same(-80.0F));
        const Float scaled = x * 1.44269504F;
        const Float magic = same(12582912.0F);  // adding 1.5 * 2^23 rounds to the nearest integer
        const Float whole = (scaled + magic) - magic;
        const Float r = x - whole * 0.693359375F + whole * 2.12194440e-4F;
        Float p = same(1.9875691500e-4F);
        p = p * r + 1.3981999507e-3F;
        p = p * r + 8.3334519073e-3F;
        p = p * r + 4.1665795894e-2F;
        p = p * r + 1.6666665459e-1F;
        p = p * r + 5.0000001201e-1F;
        p = p * r * r + r + 1.0F;
        const Mask power = (__builtin_convertvector(whole, Mask) + 127) << 23;
        return p * (Float)power;  // the same bits
    }
};

}  // namespace carya::CARYA_ISA
