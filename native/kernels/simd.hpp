// Vectors of N floats with one lane per label. They use the compiler's vector types, so that the same source code
// supports AVX-512, AVX2, SSE and NEON.
#pragma once

#include <cstdint>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#ifndef CARYA_ISA
#error "Compile the kernels with -DCARYA_ISA=<name>."
#endif

namespace carya::CARYA_ISA {

// The compiler requires a literal size for each vector type.
template <int N>
struct VectorTypes;
template <>
struct VectorTypes<4> {
    typedef float Float __attribute__((vector_size(16)));
    typedef std::int32_t Mask __attribute__((vector_size(16)));
};
template <>
struct VectorTypes<8> {
    typedef float Float __attribute__((vector_size(32)));
    typedef std::int32_t Mask __attribute__((vector_size(32)));
};
template <>
struct VectorTypes<16> {
    typedef float Float __attribute__((vector_size(64)));
    typedef std::int32_t Mask __attribute__((vector_size(64)));
};

template <int N>
struct Lanes {
    using Float = typename VectorTypes<N>::Float;
    using Mask = typename VectorTypes<N>::Mask;  // -1 or 0 in each lane

    static inline Float broadcast(float x) { return x - Float{}; }
    static inline const Float& ref(const float* p) { return *reinterpret_cast<const Float*>(p); }
    static inline Float& ref(float* p) { return *reinterpret_cast<Float*>(p); }
    static inline const Mask& ref(const std::int32_t* p) { return *reinterpret_cast<const Mask*>(p); }

    // Returns a mask in which lane l is -1 if bit l is set, otherwise 0.
    static inline Mask mask_from_bits(std::uint32_t bits) {
        Mask bit;
        for (int l = 0; l < N; ++l) bit[l] = 1 << l;
        return (bit & static_cast<std::int32_t>(bits)) != 0;
    }

    // The inverse of mask_from_bits. It uses intrinsics because compilers do not reduce the loop to one or two
    // instructions.
    static inline std::uint32_t bits_from_mask(Mask m) {
#if defined(__AVX512F__)
        if constexpr (N == 16) return _mm512_test_epi32_mask((__m512i)m, (__m512i)m);
#endif
#if defined(__SSE2__)
        __m128 quarters[N / 4];
        __builtin_memcpy(quarters, &m, sizeof m);
        std::uint32_t bits = 0;
        for (int i = 0; i < N / 4; ++i) bits |= static_cast<std::uint32_t>(_mm_movemask_ps(quarters[i])) << (4 * i);
        return bits;
#else
        std::uint32_t bits = 0;
        for (int l = 0; l < N; ++l) bits |= static_cast<std::uint32_t>(m[l] & (1 << l));
        return bits;
#endif
    }

    static inline bool any(Mask m) { return bits_from_mask(m) != 0; }

    static inline Float max(Float a, Float b) { return a > b ? a : b; }
    static inline Float min(Float a, Float b) { return a < b ? a : b; }

    // Returns e^x with a relative error of about 10^-6 for |x| <= 80, computed as 2^n (from the exponent bits) times a
    // polynomial.
    static inline Float exp(Float x) {
        x = max(min(x, broadcast(80.0F)), broadcast(-80.0F));
        const Float scaled = x * 1.44269504F;
        const Float magic = broadcast(12582912.0F);  // adding 1.5 * 2^23 rounds to the nearest integer
        const Float rounded = (scaled + magic) - magic;
        const Float r = x - rounded * 0.693359375F + rounded * 2.12194440e-4F;
        Float p = broadcast(1.9875691500e-4F);
        p = p * r + 1.3981999507e-3F;
        p = p * r + 8.3334519073e-3F;
        p = p * r + 4.1665795894e-2F;
        p = p * r + 1.6666665459e-1F;
        p = p * r + 5.0000001201e-1F;
        p = p * r * r + r + 1.0F;
        const Mask power = (__builtin_convertvector(rounded, Mask) + 127) << 23;
        return p * (Float)power;  // reinterprets the bits
    }
};

}  // namespace carya::CARYA_ISA
