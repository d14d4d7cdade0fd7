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
// Finds the few chunks of a beam among the many of a common feature, a register full at a time.
template <class Id>
class Finder {
public:
    static constexpr std::int64_t kWidth = 64 / sizeof(Id);
    static constexpr std::int64_t kMostWanted = 16;
    using Mask = std::conditional_t<sizeof(Id) == 1, std::uint64_t, std::uint32_t>;

    Finder(const std::int32_t* wanted, std::int64_t count) : count_(count) {
        for (std::int64_t i = 0; i < count; ++i) {
            if constexpr (sizeof(Id) == 1)
                wanted_[i] = _mm512_set1_epi8(static_cast<char>(wanted[i]));
            else
                wanted_[i] = _mm512_set1_epi16(static_cast<short>(wanted[i]));
        }
    }

    // Bit i says that the i-th id is wanted. Ids beyond `left` are not read.
    Mask among(const std::uint8_t* ids, std::int64_t left) const {
        const Mask there = left >= kWidth ? ~Mask{0} : (Mask{1} << left) - 1;
        Mask found = 0;
        if constexpr (sizeof(Id) == 1) {
            const __m512i some = _mm512_maskz_loadu_epi8(there, ids);
            for (std::int64_t i = 0; i < count_; ++i) found |= _mm512_cmpeq_epi8_mask(some, wanted_[i]);
        } else {
            const __m512i some = _mm512_maskz_loadu_epi16(there, ids);
            for (std::int64_t i = 0; i < count_; ++i) found |= _mm512_cmpeq_epi16_mask(some, wanted_[i]);
        }
        return found & there;
    }

    // The sum of the counts, each one less than meant, whose bit is set.
    static std::int64_t sum(const std::uint8_t* counts, Mask which) {
        __m256i quarters;
        if constexpr (sizeof(Id) == 1) {
            const __m512i some = _mm512_sad_epu8(_mm512_maskz_loadu_epi8(which, counts), _mm512_setzero_si512());
            quarters = _mm256_add_epi64(_mm512_castsi512_si256(some), _mm512_maskz_extracti64x4_epi64(0xF, some, 1));
        } else {
            quarters = _mm256_sad_epu8(_mm256_maskz_loadu_epi8(which, counts), _mm256_setzero_si256());
        }
        const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
        return _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1) + __builtin_popcountll(which);
    }

private:
    std::int64_t count_;
    __m512i wanted_[kMostWanted];
};
#define CARYA_FINDER
#endif

// Adds up the weights of one query's features in the chunks that the query asks for.
template <class Id, class Child, class Weight>
class Adder {
public:
    using Form = Block<Id, Child, Weight>;

    Adder(const PackedQuery& query, float* sums, std::int64_t room)
        : query_(query),
          sums_(sums),
          room_(room)
#ifdef CARYA_FINDER
          ,
          find_(kCanFind && query.wanted_count <= Found::kMostWanted && query.wanted_count < query.chunks),
          finder_(query.wanted, find_ ? query.wanted_count : 0)
#endif
    {
    }

    void add(const Form& block, float x) const {
        if constexpr (Form::kOnly) {
            add_weights(block, 0, block.m, x, query_.base[0]);
        } else if (block.n < kCounted) {
            walk(block, x);
        } else {
#ifdef CARYA_FINDER
            if constexpr (kCanFind) {
                if (find_) return find(block, x);
            }
#endif
            count(block, x);
        }
    }

private:
    // The table of places has room for all narrow ids.
    bool is_chunk(std::int64_t chunk) const { return sizeof(Id) <= 2 || chunk < query_.chunks; }

    // Sums have room for any narrow child.
    bool has_room(std::int64_t at) const { return sizeof(Child) <= 2 || at < room_; }

    void add_weight(const Form& block, std::int64_t e, float x, std::uint32_t to) const {
        const std::int64_t at = to + block.child(e);
        if (has_room(at)) sums_[at] += x * block.weight(e);
    }

    void add_weights(const Form& block, std::int64_t begin, std::int64_t end, float x, std::uint32_t to) const {
        if (end > block.m) end = block.m;
        for (std::int64_t e = begin; e < end; ++e) add_weight(block, e, x, to);
    }

    // Few chunks: from the last weight of one to the next.
    void walk(const Form& block, float x) const {
        std::int64_t e = 0;
        for (std::int64_t c = 0; c < block.n; ++c) {
            const std::int64_t chunk = block.chunk(c);
            const std::uint32_t to = is_chunk(chunk) ? query_.base[chunk] : 0;
            bool more = e < block.m;
            while (more) {
                if (to != 0) add_weight(block, e, x, to);
                more = !block.last(e) && e + 1 < block.m;
                ++e;
            }
        }
    }

    // Many chunks: over those not asked for by their counts.
    void count(const Form& block, float x) const {
        std::int64_t at = 0;
        for (std::int64_t c = 0; c < block.n; ++c) {
            const std::int64_t end = at + block.count(c);
            const std::int64_t chunk = block.chunk(c);
            const std::uint32_t to = is_chunk(chunk) ? query_.base[chunk] : 0;
            if (to != 0) add_weights(block, at, end, x, to);
            at = end;
        }
    }

#ifdef CARYA_FINDER
    void find(const Form& block, float x) const {
        std::int64_t at = 0;
        for (std::int64_t c = 0; c < block.n; c += Found::kWidth) {
            const std::uint8_t* counts = block.counts + c;
            const std::uint8_t* ids = block.chunks + c * Form::kIdBytes;
            for (auto found = finder_.among(ids, block.n - c); found; found &= found - 1) {
                const int here = __builtin_ctzll(found);
                const std::int64_t from = at + Found::sum(counts, (typename Found::Mask{1} << here) - 1);
                add_weights(block, from, from + block.count(c + here), x, query_.base[block.chunk(c + here)]);
            }
            if (c + Found::kWidth < block.n) at += Found::sum(counts, ~typename Found::Mask{0});
        }
    }
#endif

    const PackedQuery& query_;
    float* sums_;
    std::int64_t room_;
#ifdef CARYA_FINDER
    static constexpr bool kCanFind = !Form::kOnly && sizeof(Id) <= 2 && sizeof(Child) == 1;
    using Found = Finder<std::conditional_t<kCanFind, Id, std::uint16_t>>;
    bool find_;
    Found finder_;
#endif
};

template <class Id, class Child, class Weight>
void add_blocks(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t room) {
    const Adder<Id, Child, Weight> adder(query, sums, room);
    const BlockStarts& starts = w.starts;
    for (std::int64_t i = 0; i < query.count; ++i) {
        if (i + kStartsAhead < query.count) {
            const std::int32_t ahead = query.features[i + kStartsAhead];
            __builtin_prefetch(starts.within.data() + ahead);
            __builtin_prefetch(starts.groups.data() + ahead / BlockStarts::kGroup);
        }
        if (i + kBlocksAhead < query.count) {
            const std::uint8_t* ahead = w.data.data() + starts[query.features[i + kBlocksAhead]];
            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 64);
        }
        adder.add(Block<Id, Child, Weight>(find_block(starts, w.data, query.features[i])), query.values[i]);
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

void add_packed(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t room) {
    for_form(w.form,
             [&]<class Id, class Child, class Weight>() { add_blocks<Id, Child, Weight>(w, query, sums, room); });
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
