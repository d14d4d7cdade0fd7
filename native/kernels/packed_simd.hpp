// Vector instructions for reading packed blocks: the parts of packed_scores.cpp that differ between instruction sets.
//
// Blocks are not aligned and may end where the data ends. AVX-512 has masked loads, which read only the selected bytes.
// AVX2 has no masked byte loads. The AVX2 functions load whole vectors if these end before `end`, the end of the
// data; otherwise, they return false, and the caller uses scalar instructions.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../layouts/block_types.hpp"

// For functions whose body takes less time than a function call.
#define CARYA_INLINE [[gnu::always_inline]] inline

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define CARYA_PACKED_AVX512
#elif defined(__AVX2__)
#define CARYA_PACKED_AVX2
#endif

#if defined(CARYA_PACKED_AVX512) || defined(CARYA_PACKED_AVX2)
#define CARYA_PACKED_SIMD
#include <immintrin.h>

namespace carya::CARYA_ISA {

namespace {

#ifdef CARYA_PACKED_AVX2
// For each 8-bit mask, the weight index of each set bit, and 0x80 for each bit that is not set.
struct ExpandTable {
    alignas(64) std::uint8_t indices[256][8];

    constexpr ExpandTable() : indices() {
        for (int mask = 0; mask < 256; ++mask)
            for (int bit = 0, next = 0; bit < 8; ++bit)
                indices[mask][bit] = static_cast<std::uint8_t>(mask >> bit & 1 ? next++ : 0x80);
    }
};
constexpr ExpandTable kExpandTable;
#endif

template <class Types>
class PackedSimd {
    using Weight = typename Types::Weight;
    static constexpr bool kIsSignedSqrt = std::is_same_v<Weight, SignedSqrt>;
    static constexpr bool kIsHalf = std::is_same_v<Weight, Half>;
    static constexpr std::int64_t kWeightBytes = Types::kWeightBytes;
    static constexpr int kWeightShift = kWeightBytes == 1 ? 0 : kWeightBytes == 2 ? 1 : 2;

public:
#ifdef CARYA_PACKED_AVX512
    static constexpr std::int64_t kLanes = 16;
#else
    static constexpr std::int64_t kLanes = 8;
#endif

    // Adds x times the weights of the set bits of a 16-bit bitmap to out[0..16), and 0 for the other bits.
    CARYA_INLINE static bool add_line(const std::uint8_t* weights, [[maybe_unused]] const std::uint8_t* end,
                                      std::uint32_t bitmap, float x, float* out) {
#ifdef CARYA_PACKED_AVX512
        const auto lanes = static_cast<__mmask16>((1U << __builtin_popcount(bitmap)) - 1);
        const __m512 expanded = _mm512_maskz_expand_ps(static_cast<__mmask16>(bitmap), load_weights(lanes, weights));
        _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), _mm512_mul_ps(_mm512_set1_ps(x), expanded)));
#else
        if (end - weights < 16 * kWeightBytes) return false;
        const std::uint32_t low = bitmap & 0xFF;
        const std::uint32_t high = bitmap >> 8;
        const int low_count = __builtin_popcount(low);
        const __m128i low_indices = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kExpandTable.indices[low]));
        const __m128i high_indices = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kExpandTable.indices[high]));
        if constexpr (kIsSignedSqrt) {
            // The indices of the second half continue those of the first; 0x80 remains negative and selects 0.
            const __m128i shifted = _mm_add_epi8(high_indices, _mm_set1_epi8(static_cast<char>(low_count)));
            const __m128i roots = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)),
                                                   _mm_unpacklo_epi64(low_indices, shifted));
            add_products(square(_mm256_cvtepi8_epi32(roots)), x, out);
            add_products(square(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(roots, roots))), x, out + 8);
        } else {
            add_products(expand(load_weights(weights), low_indices), x, out);
            add_products(expand(load_weights(weights + low_count * kWeightBytes), high_indices), x, out + 8);
        }
#endif
        return true;
    }

    // Computes `to` + child and `x` * weight for up to kLanes weights with one-byte children. Writes kLanes values.
    CARYA_INLINE static bool multiply_children(const std::uint8_t* children, const std::uint8_t* weights,
                                               [[maybe_unused]] const std::uint8_t* end,
                                               [[maybe_unused]] std::int64_t count, std::uint32_t to, float x,
                                               std::uint32_t* indices, float* products) {
        constexpr auto kChildMask = static_cast<char>(~Types::kLastChild);
#ifdef CARYA_PACKED_AVX512
        const auto lanes = static_cast<__mmask16>((1U << count) - 1);
        const __m128i marked = _mm_maskz_loadu_epi8(lanes, children);
        const __m512i ids = _mm512_maskz_cvtepu8_epi32(lanes, _mm_and_si128(marked, _mm_set1_epi8(kChildMask)));
        _mm512_storeu_si512(indices, _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(to)), ids));
        _mm512_storeu_ps(products, _mm512_mul_ps(_mm512_set1_ps(x), load_weights(lanes, weights)));
#else
        // The weights follow the children, so it is sufficient to check the end of the weights.
        if (end - weights < kLanes * kWeightBytes) return false;
        const __m128i marked = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(children));
        const __m256i ids = _mm256_cvtepu8_epi32(_mm_and_si128(marked, _mm_set1_epi8(kChildMask)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices),
                            _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(to)), ids));
        _mm256_storeu_ps(products, _mm256_mul_ps(_mm256_set1_ps(x), load_weights(weights)));
#endif
        return true;
    }

    // Returns the offset of the i-th chunk's run in a wide block with one-byte counts.
    CARYA_INLINE static std::int64_t run_offset(const WideBlock<Types>& block, [[maybe_unused]] const std::uint8_t* end,
                                                std::int64_t i) {
        constexpr std::int64_t kStep = WideBlock<Types>::kSumStep;
        static_assert(kStep == 32);
        const std::int64_t first = i / kStep * kStep;
        const std::uint8_t* const counts = block.counts + first;  // counts minus 1
#ifdef CARYA_PACKED_AVX512
        const __m256i preceding =
            _mm256_maskz_loadu_epi8(static_cast<__mmask32>((std::uint64_t{1} << (i - first)) - 1), counts);
#else
        if (end - counts < kStep) return block.run_offset(i);
        const __m256i places = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                                                20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
        const __m256i preceding =
            _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(counts)),
                             _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(i - first)), places));
#endif
        const __m256i zero = _mm256_setzero_si256();
        __m256i sums = _mm256_slli_epi64(_mm256_sad_epu8(preceding, zero), kWeightShift);
        const __m256i limit = _mm256_set1_epi8(static_cast<char>(block.bitmap_bytes - 1));
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(_mm256_min_epu8(preceding, limit), zero));
        const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        return block.run_bytes_before(i / kStep) + _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1) +
               (i - first) * (Types::kChildBytes + Types::kWeightBytes);
    }

private:
#ifdef CARYA_PACKED_AVX512
    CARYA_INLINE static __m512 load_weights(__mmask16 lanes, const std::uint8_t* bytes) {
        if constexpr (kIsSignedSqrt) {
            const __m512i root = _mm512_maskz_cvtepi8_epi32(lanes, _mm_maskz_loadu_epi8(lanes, bytes));
            const __m512 value = _mm512_maskz_cvtepi32_ps(lanes, root);
            return _mm512_mul_ps(value, _mm512_abs_ps(value));
        } else if constexpr (kIsHalf) {
            return _mm512_maskz_cvtph_ps(lanes, _mm256_maskz_loadu_epi16(lanes, bytes));
        } else {
            return _mm512_maskz_loadu_ps(lanes, bytes);
        }
    }
#else
    // Returns q |q| for integers q.
    CARYA_INLINE static __m256 square(__m256i roots) {
        const __m256 value = _mm256_cvtepi32_ps(roots);
        return _mm256_mul_ps(value, _mm256_andnot_ps(_mm256_set1_ps(-0.0F), value));
    }

    CARYA_INLINE static __m256 load_weights(const std::uint8_t* bytes) {
        if constexpr (kIsSignedSqrt)
            return square(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
        else if constexpr (kIsHalf)
            return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
        else
            return _mm256_loadu_ps(reinterpret_cast<const float*>(bytes));
    }

    // Moves weights to the positions given by an entry of the table; the other positions are 0.
    CARYA_INLINE static __m256 expand(__m256 weights, __m128i indices) {
        const __m256i wide = _mm256_cvtepi8_epi32(indices);
        const __m256 moved = _mm256_permutevar8x32_ps(weights, wide);
        return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_srai_epi32(wide, 31)), moved);
    }

    CARYA_INLINE static void add_products(__m256 weights, float x, float* out) {
        _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), _mm256_mul_ps(_mm256_set1_ps(x), weights)));
    }
#endif
};

// Finds the requested chunks of a narrow beam among the ids in a block, one vector register of ids at a time.
template <class Id>
class ChunkFinder {
public:
#ifdef CARYA_PACKED_AVX512
    static constexpr std::int64_t kWidth = 64 / sizeof(Id);
    using Mask = std::conditional_t<sizeof(Id) == 1, std::uint64_t, std::uint32_t>;
#else
    static constexpr std::int64_t kWidth = 32 / sizeof(Id);
    using Mask = std::uint32_t;
#endif
    static constexpr std::int64_t kMaxRequested = 16;

    ChunkFinder(const std::int32_t* requested, std::int64_t count) : count_(count) {
        for (std::int64_t i = 0; i < count; ++i) {
#ifdef CARYA_PACKED_AVX512
            if constexpr (sizeof(Id) == 1)
                requested_[i] = _mm512_set1_epi8(static_cast<char>(requested[i]));
            else
                requested_[i] = _mm512_set1_epi16(static_cast<short>(requested[i]));
#else
            if constexpr (sizeof(Id) == 1)
                requested_[i] = _mm256_set1_epi8(static_cast<char>(requested[i]));
            else
                requested_[i] = _mm256_set1_epi16(static_cast<short>(requested[i]));
#endif
        }
    }

    // Returns whether `matches` can read the ids of a block with `n` ids.
    static bool can_read([[maybe_unused]] const std::uint8_t* ids, [[maybe_unused]] std::int64_t n,
                         [[maybe_unused]] const std::uint8_t* end) {
#ifdef CARYA_PACKED_AVX512
        return true;
#else
        return end - ids >= (n + kWidth) * static_cast<std::int64_t>(sizeof(Id));
#endif
    }

    // Returns a mask in which bit i is set if the i-th id is requested. Only the first `left` ids are valid.
    Mask matches(const std::uint8_t* ids, std::int64_t left) const {
        const Mask valid = left >= kWidth ? ~Mask{0} : (Mask{1} << left) - 1;
        Mask matching = 0;
#ifdef CARYA_PACKED_AVX512
        if constexpr (sizeof(Id) == 1) {
            const __m512i block_ids = _mm512_maskz_loadu_epi8(valid, ids);
            for (std::int64_t i = 0; i < count_; ++i) matching |= _mm512_cmpeq_epi8_mask(block_ids, requested_[i]);
        } else {
            const __m512i block_ids = _mm512_maskz_loadu_epi16(valid, ids);
            for (std::int64_t i = 0; i < count_; ++i) matching |= _mm512_cmpeq_epi16_mask(block_ids, requested_[i]);
        }
#else
        const __m256i block_ids = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ids));
        __m256i equal = _mm256_setzero_si256();
        if constexpr (sizeof(Id) == 1) {
            for (std::int64_t i = 0; i < count_; ++i)
                equal = _mm256_or_si256(equal, _mm256_cmpeq_epi8(block_ids, requested_[i]));
            matching = static_cast<Mask>(_mm256_movemask_epi8(equal));
        } else {
            for (std::int64_t i = 0; i < count_; ++i)
                equal = _mm256_or_si256(equal, _mm256_cmpeq_epi16(block_ids, requested_[i]));
            const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(equal), _mm256_extracti128_si256(equal, 1));
            matching = static_cast<Mask>(_mm_movemask_epi8(bytes));
        }
#endif
        return matching & valid;
    }

private:
    std::int64_t count_;
#ifdef CARYA_PACKED_AVX512
    __m512i requested_[kMaxRequested];
#else
    __m256i requested_[kMaxRequested];
#endif
};

}  // namespace

}  // namespace carya::CARYA_ISA

#endif
