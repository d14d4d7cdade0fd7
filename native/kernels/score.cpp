// Scores of the children of the nodes in a beam: weights are gathered from packed blocks, then joined with the
// parents'.

#include "../layouts/dispatch.hpp"
#include "kernels.hpp"
#include "lanes.hpp"

namespace carya::CARYA_ISA {

namespace {

// Blocks are read at random from memory far larger than the caches: they are asked for this many features ahead.
constexpr std::int64_t kStartsAhead = 12;
constexpr std::int64_t kBlocksAhead = 6;

#if defined(__AVX512BW__) && defined(__AVX512VL__)
// Finds the few chunks of a beam among the many of a common feature, 32 at a time.
class Finder {
public:
    static constexpr std::int64_t kWidth = 32;
    static constexpr std::int64_t kMostWanted = 16;

    Finder(const std::int32_t* wanted, std::int64_t count) : count_(count) {
        for (std::int64_t i = 0; i < count; ++i) wanted_[i] = _mm512_set1_epi16(static_cast<short>(wanted[i]));
    }

    // Bit i says that the i-th id is wanted. Ids beyond `left` are not read.
    std::uint32_t among(const std::uint8_t* ids, std::int64_t left) const {
        const __mmask32 there = left >= kWidth ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
        const __m512i some = _mm512_maskz_loadu_epi16(there, ids);
        __mmask32 found = 0;
        for (std::int64_t i = 0; i < count_; ++i) found |= _mm512_cmpeq_epi16_mask(some, wanted_[i]);
        return found & there;
    }

    // The sum of the counts, each one less than meant, whose bit is set.
    static std::int64_t sum(const std::uint8_t* counts, std::uint32_t which) {
        const __m256i some = _mm256_sad_epu8(_mm256_maskz_loadu_epi8(which, counts), _mm256_setzero_si256());
        const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(some), _mm256_extracti128_si256(some, 1));
        return _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1) + __builtin_popcount(which);
    }

private:
    std::int64_t count_;
    __m512i wanted_[kMostWanted];
};
#define CARYA_FINDER
#endif

// Adds the weights [at, end) of a block, times x.
template <class Child, class Block>
inline void add_weights(const Block& block, std::int64_t at, std::int64_t end, float x, std::uint32_t to, float* sums,
                        [[maybe_unused]] std::int64_t room) {
    if (end > block.m) end = block.m;
    float* out = sums + to;
    for (std::int64_t e = at; e < end; ++e) {
        const std::int64_t child = block.child(e);
        if (sizeof(Child) > 2 && to + child >= room) continue;  // sums have room for any narrow child
        out[child] += x * block.weight(e);
    }
}

template <class Id, class Child, class Weight, class Start>
void add_blocks(const PackedWeights& w, const Start* starts, const PackedQuery& query, float* sums, std::int64_t room) {
#ifdef CARYA_FINDER
    constexpr bool can_find = sizeof(Id) == 2 && sizeof(Child) == 1;
    const bool find = can_find && query.wanted_count <= Finder::kMostWanted && query.wanted_count < w.chunks;
    const Finder finder(query.wanted, find ? query.wanted_count : 0);
#endif
    for (std::int64_t i = 0; i < query.count; ++i) {
        if (i + kStartsAhead < query.count) __builtin_prefetch(starts + query.features[i + kStartsAhead]);
        if (i + kBlocksAhead < query.count) {
            const std::uint8_t* ahead = w.data + starts[query.features[i + kBlocksAhead]];
            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 64);
        }
        const std::int64_t first = starts[query.features[i]];
        const Block<Id, Child, Weight> block(w.data + first,
                                             static_cast<std::int64_t>(starts[query.features[i] + 1]) - first);
        const float x = query.values[i];
        std::int64_t at = 0;
#ifdef CARYA_FINDER
        if (find && block.n >= 8) {
            for (std::int64_t c = 0; c < block.n; c += Finder::kWidth) {
                const std::uint8_t* counts = block.counts + c;
                for (std::uint32_t found = finder.among(block.chunks + 2 * c, block.n - c); found; found &= found - 1) {
                    const int here = __builtin_ctz(found);
                    const std::int64_t from = at + Finder::sum(counts, (1U << here) - 1);
                    add_weights<Child>(block, from, from + block.count(c + here), x, query.base[block.chunk(c + here)],
                                       sums, room);
                }
                if (c + Finder::kWidth < block.n) at += Finder::sum(counts, ~0U);
            }
            continue;
        }
#endif
        for (std::int64_t c = 0; c < block.n; ++c) {
            const std::int64_t end = at + block.count(c);
            const std::int64_t chunk = block.chunk(c);
            if (sizeof(Id) > 2 && chunk >= w.chunks) break;  // the table of narrow ids has room for all of them
            const std::uint32_t to = query.base[chunk];
            if (to != 0) add_weights<Child>(block, at, end, x, to, sums, room);
            at = end;
        }
    }
}

// max(0, 1 - h)^p. Whole powers are by far the most used.
template <int N>
typename Lanes<N>::Float shortfall(typename Lanes<N>::Float h, float power) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float below = L::max(1.0F - h, L::same(0.0F));
    const int whole = static_cast<int>(power);
    if (static_cast<float>(whole) == power && whole <= 8) {
        Float out = below;
        for (int i = 1; i < whole; ++i) out *= below;
        return out;
    }
    Float out;
    for (int l = 0; l < N; ++l) out[l] = __builtin_powf(below[l], power);
    return out;
}

template <int N>
typename Lanes<N>::Float log_sigmoid(typename Lanes<N>::Float h) {
    typename Lanes<N>::Float out;
    for (int l = 0; l < N; ++l)
        out[l] = (h[l] < 0.0F ? h[l] : 0.0F) - __builtin_log1pf(__builtin_expf(-__builtin_fabsf(h[l])));
    return out;
}

}  // namespace

void add_packed(const PackedWeights& w, const PackedQuery& query, float* sums, std::int64_t room) {
    for_form(w.form, [&]<class Id, class Child, class Weight>() {
        if (w.narrow)
            add_blocks<Id, Child, Weight>(w, w.narrow, query, sums, room);
        else
            add_blocks<Id, Child, Weight>(w, w.wide, query, sums, room);
    });
}

void join_scores(const Transform& transform, bool in_logs, float parent, float scale, const float* offsets,
                 std::int64_t count, float* sums) {
    using L = Lanes<16>;
    using Float = L::Float;
    const Float least = L::same(-3.0e38F);
    const Float most = L::same(3.0e38F);
    for (std::int64_t i = 0; i < count; i += 16) {
        alignas(64) float offset[16] = {};
        const std::int64_t here = count - i < 16 ? count - i : 16;
        __builtin_memcpy(offset, offsets + i, static_cast<std::size_t>(here) * sizeof(float));
        Float h = L::at(sums + i) * scale + L::at(offset);
        switch (transform.kind) {
            case Transform::noop: break;
            case Transform::sigmoid: h = parent * (1.0F / (1.0F + L::exp(-h))); break;
            case Transform::log_sigmoid: h = parent + log_sigmoid<16>(h); break;
            case Transform::log_hinge: h = parent - shortfall<16>(h, transform.power); break;
            case Transform::hinge:
                h = in_logs ? parent - shortfall<16>(h, transform.power)
                            : parent * L::exp(-shortfall<16>(h, transform.power));
                break;
        }
        h = L::min(h, most);
        L::at(sums + i) = h > least ? h : least;  // infinite, or no number at all: last, and no trouble to sorting
    }
}

}  // namespace carya::CARYA_ISA
