// Vectors of N floats with one lane per label. They use the compiler's vector types, so that the same source code
// supports AVX-512, AVX2, SSE and NEON.
#pragma once

#include <cstdint>
#include <type_traits>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#ifndef CARYA_ISA
#error "Compile the kernels with -DCARYA_ISA=<name>."
#endif

namespace carya::CARYA_ISA {

// Number of floats in the largest vector register.
#if defined(__AVX512F__)
inline constexpr int kNativeLanes = 16;
#elif defined(__AVX__)
inline constexpr int kNativeLanes = 8;
#else
inline constexpr int kNativeLanes = 4;
#endif

// A vector that is larger than a register, stored as two halves. The compiler can split larger vector types as well,
// but it then processes comparisons and selections one element at a time.
template <class Half>
struct Pair {
    Half low, high;

#define CARYA_PAIR_OPERATOR(op)                                                                       \
    [[gnu::always_inline]] friend auto operator op(const Pair& a, const Pair& b) {                    \
        return Pair<std::remove_cvref_t<decltype(a.low op b.low)>>{a.low op b.low, a.high op b.high}; \
    }                                                                                                 \
    [[gnu::always_inline]] friend auto operator op(const Pair& a, float b) {                          \
        return Pair<std::remove_cvref_t<decltype(a.low op b)>>{a.low op b, a.high op b};              \
    }                                                                                                 \
    [[gnu::always_inline]] friend auto operator op(float a, const Pair& b) {                          \
        return Pair<std::remove_cvref_t<decltype(a op b.low)>>{a op b.low, a op b.high};              \
    }
    CARYA_PAIR_OPERATOR(+)
    CARYA_PAIR_OPERATOR(-)
    CARYA_PAIR_OPERATOR(*)
    CARYA_PAIR_OPERATOR(/)
    CARYA_PAIR_OPERATOR(<)
    CARYA_PAIR_OPERATOR(>)
    CARYA_PAIR_OPERATOR(<=)
    CARYA_PAIR_OPERATOR(>=)
    CARYA_PAIR_OPERATOR(==)
    CARYA_PAIR_OPERATOR(!=)
#undef CARYA_PAIR_OPERATOR
    [[gnu::always_inline]] friend Pair operator&(const Pair& a, const Pair& b) {
        return {a.low & b.low, a.high & b.high};
    }
    [[gnu::always_inline]] friend Pair operator|(const Pair& a, const Pair& b) {
        return {a.low | b.low, a.high | b.high};
    }
    [[gnu::always_inline]] Pair operator-() const { return {-low, -high}; }
    [[gnu::always_inline]] Pair& operator+=(const Pair& other) { return *this = *this + other; }
};

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

// Operations with the same implementation for registers and pairs.
template <class Derived, class Float, class Mask>
struct CommonLanes {
    static inline const Float& ref(const float* p) { return *reinterpret_cast<const Float*>(p); }
    static inline Float& ref(float* p) { return *reinterpret_cast<Float*>(p); }
    static inline const Mask& ref(const std::int32_t* p) { return *reinterpret_cast<const Mask*>(p); }
    static inline Float load_unaligned(const float* p) {
        Float out;
        __builtin_memcpy(&out, p, sizeof out);
        return out;
    }
    static inline bool any(Mask m) { return Derived::bits_from_mask(m) != 0; }
    static inline Float max(Float a, Float b) { return Derived::select(a > b, a, b); }
    static inline Float min(Float a, Float b) { return Derived::select(a < b, a, b); }

    // Applies a function to each element.
    template <class Function>
    static inline Float map(Float x, const Function& function) {
        float values[sizeof(Float) / sizeof(float)];
        __builtin_memcpy(values, &x, sizeof x);
        for (float& value : values) value = function(value);
        return load_unaligned(values);
    }
};

// Lanes that require at least two registers.
template <int N, bool native = (N <= kNativeLanes)>
struct Lanes : CommonLanes<Lanes<N>, Pair<typename Lanes<N / 2>::Float>, Pair<typename Lanes<N / 2>::Mask>> {
    using Half = Lanes<N / 2>;
    using Float = Pair<typename Half::Float>;
    using Mask = Pair<typename Half::Mask>;  // -1 or 0 in each lane

    static inline Float broadcast(float x) { return {Half::broadcast(x), Half::broadcast(x)}; }
    static inline Float select(Mask m, Float a, Float b) {
        return {Half::select(m.low, a.low, b.low), Half::select(m.high, a.high, b.high)};
    }
    static inline Mask mask_from_bits(std::uint32_t bits) {
        return {Half::mask_from_bits(bits), Half::mask_from_bits(bits >> (N / 2))};
    }
    static inline std::uint32_t bits_from_mask(Mask m) {
        return Half::bits_from_mask(m.low) | Half::bits_from_mask(m.high) << (N / 2);
    }
    static inline Float exp(Float x) { return {Half::exp(x.low), Half::exp(x.high)}; }
};

// Lanes that fit in one register.
template <int N>
struct Lanes<N, true> : CommonLanes<Lanes<N, true>, typename VectorTypes<N>::Float, typename VectorTypes<N>::Mask> {
    using Common = CommonLanes<Lanes<N, true>, typename VectorTypes<N>::Float, typename VectorTypes<N>::Mask>;
    using Float = typename VectorTypes<N>::Float;
    using Mask = typename VectorTypes<N>::Mask;

    static inline Float broadcast(float x) { return x - Float{}; }

    // Returns a where the mask is set, otherwise b.
    static inline Float select(Mask m, Float a, Float b) { return m ? a : b; }

    // Returns a mask in which lane l is -1 if bit l is set, otherwise 0.
    static inline Mask mask_from_bits(std::uint32_t bits) {
        Mask bit;
        for (int l = 0; l < N; ++l) bit[l] = 1 << l;
        return (bit & static_cast<std::int32_t>(bits)) != 0;
    }

    // The inverse of mask_from_bits. It uses intrinsics because compilers do not compile an equivalent loop to one
    // instruction.
    static inline std::uint32_t bits_from_mask(Mask m) {
#if defined(__AVX512F__)
        if constexpr (N == 16) return _mm512_test_epi32_mask((__m512i)m, (__m512i)m);
#endif
#if defined(__AVX__)
        if constexpr (N == 8) return static_cast<std::uint32_t>(_mm256_movemask_ps((__m256)m));
#endif
#if defined(__SSE2__)
        if constexpr (N == 4) return static_cast<std::uint32_t>(_mm_movemask_ps((__m128)m));
#else
        std::uint32_t bits = 0;
        for (int l = 0; l < N; ++l) bits |= static_cast<std::uint32_t>(m[l] & (1 << l));
        return bits;
#endif
    }

    // Returns e^x with a relative error of about 10^-6 for |x| <= 80, computed as 2^n (from the exponent bits) times a
    // polynomial.
    static inline Float exp(Float x) {
        x = Common::max(Common::min(x, broadcast(80.0F)), broadcast(-80.0F));
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
