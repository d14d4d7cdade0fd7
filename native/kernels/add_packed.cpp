// Raw scores of the children of the nodes in a beam: the weights of a query's features, gathered from packed blocks.

#include <algorithm>
#include <span>

#include "../layouts/dispatch.hpp"
#include "kernels.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define CARYA_MASKS
#endif

namespace carya::CARYA_ISA {

namespace {

// Blocks are read at random from memory far larger than the caches: they are asked for this many features ahead.
constexpr std::int64_t kStartsAhead = 16;
constexpr std::int64_t kBlocksAhead = 10;
constexpr std::int64_t kLargeAhead = 5;
constexpr std::int64_t kHead = 320;  // bytes of a block that a search reads first

// Calls cost more than what these do.
#define CARYA_INLINE [[gnu::always_inline]] inline

#ifdef CARYA_MASKS
// Finds the few chunks of a beam among the ids of a block, a register full at a time.
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

private:
    std::int64_t count_;
    __m512i wanted_[kMostWanted];
};
#endif

// Adds up the weights of one query's features in the chunks that the query asks for.
template <class Types>
class Adder {
    using Id = typename Types::Id;
    using Child = typename Types::Child;
    using Weight = typename Types::Weight;
    using Narrow = NarrowBlock<Types>;
    using Wide = WideBlock<Types>;

public:
    Adder(const PackedForm& form, const PackedQuery& query, float* sums, std::int64_t room)
        : form_(form),
          query_(query),
          sums_(sums),
          room_(room)
#ifdef CARYA_MASKS
          ,
          find_(kCanFind && query.wanted_count <= Found::kMostWanted && query.wanted_count < query.chunks),
          finder_(query.wanted, find_ ? query.wanted_count : 0)
#endif
    {
    }

    void add(std::span<const std::uint8_t> bytes, bool mapped, float x) const {
        const std::int64_t map_bytes = mapped ? form_.map_bytes : 0;
        if constexpr (Types::kOnly) {
            const Narrow block(bytes, map_bytes);
            if (block.n > 0) add_run({block.children, block.weights, x, query_.base[0], block.m, block.map_lines()});
        } else if (Types::chunks_in(bytes) < kWide) {
            walk(Narrow(bytes, map_bytes), x);
        } else {
            const Wide block(bytes, form_.map_bytes, form_.words);
            if (block.words > 0) {
                if (query_.wanted_count <= kMostPicked && query_.wanted_count * kPickWorth < block.n)
                    return pick(block, x);
            } else if (query_.wanted_count * kSeekWorth < block.n) {
                return seek(block, x);
            }
#ifdef CARYA_MASKS
            if constexpr (kCanFind) {
                if (find_ && block.words == 0) return find(block, x);
            }
#endif
            count(block, x);
        }
    }

    // What waits to be added.
    void finish() const {
        for (std::uint64_t i = next_ > kWaiting ? next_ - kWaiting : 0; i < next_; ++i) add_run(waiting_[i % kWaiting]);
#ifdef CARYA_MASKS
        add_listed();
#endif
    }

private:
    // The table of places has room for all ids of one or two bytes.
    bool is_chunk(std::int64_t chunk) const { return sizeof(Id) <= 2 || chunk < query_.chunks; }

    std::uint32_t place_of(std::int64_t chunk) const { return is_chunk(chunk) ? query_.base[chunk] : 0; }

    // Sums have room for any child of one or two bytes.
    bool has_room(std::int64_t at) const { return sizeof(Child) <= 2 || at < room_; }

    // The weights of one chunk of a block.
    struct Run {
        const std::uint8_t* nodes;  // children, or the map
        const std::uint8_t* weights;
        float x;
        std::uint32_t to;
        std::int64_t count;      // with a map: at most
        std::int64_t map_lines;  // 0 for children
    };

    static float weight(const std::uint8_t* weights, std::int64_t e) {
        return static_cast<float>(load<Weight>(weights + e * Types::kWeightBytes));
    }

    void add_at(std::int64_t at, float value) const {
        if (has_room(at)) sums_[at] += value;
    }

    // Returns how many weights it had.
    CARYA_INLINE std::int64_t add_run(const Run run) const {
        if (run.map_lines == 0) {
            add_children(run);
            return run.count;
        }
        std::int64_t e = 0;
        float* const out = sums_ + run.to;
        for (std::int64_t line = 0; line < run.map_lines; ++line) {
            const std::uint32_t map = load<std::uint16_t>(run.nodes + 2 * line);
            const int count = __builtin_popcount(map);
            if (e + count > run.count) break;
            add_line(run, e, map, out + 16 * line);
            e += count;
        }
        return e;
    }

    CARYA_INLINE void add_children(const Run& run) const {
#ifdef CARYA_MASKS
        if constexpr (sizeof(Child) == 1) return list_children(run);
#endif
        for (std::int64_t e = 0; e < run.count; ++e) {
            const auto child = load<Child>(run.nodes + e * Types::kChildBytes);
            add_at(run.to + static_cast<std::int64_t>(child), run.x * weight(run.weights, e));
        }
    }

    CARYA_INLINE static void add_line(const Run& run, std::int64_t e, std::uint32_t map, float* out) {
#ifdef CARYA_MASKS
        const auto all = static_cast<__mmask16>((1U << __builtin_popcount(map)) - 1);
        const __m512 weights = weights_at(all, run.weights + e * Types::kWeightBytes);
        const __m512 spread = _mm512_maskz_expand_ps(static_cast<__mmask16>(map), weights);
        _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_set1_ps(run.x), spread, _mm512_loadu_ps(out)));
#else
        for (; map; map &= map - 1) out[__builtin_ctz(map)] += run.x * weight(run.weights, e++);
#endif
    }

#ifdef CARYA_MASKS
    CARYA_INLINE static __m512 weights_at(__mmask16 which, const std::uint8_t* bytes) {
        if constexpr (std::is_same_v<Weight, Root>) {
            const __m512i root = _mm512_maskz_cvtepi8_epi32(which, _mm_maskz_loadu_epi8(which, bytes));
            const __m512 value = _mm512_maskz_cvtepi32_ps(which, root);
            return _mm512_mul_ps(value, _mm512_abs_ps(value));
        } else if constexpr (std::is_same_v<Weight, Half>) {
            return _mm512_maskz_cvtph_ps(which, _mm256_maskz_loadu_epi16(which, bytes));
        } else {
            return _mm512_maskz_loadu_ps(which, bytes);
        }
    }

    // However short runs are, what they add to which sum stands in one list, and one long loop adds it: the processor
    // foresees the end of a long loop, but not of every short one.
    CARYA_INLINE void list_children(const Run& run) const {
        for (std::int64_t e = 0; e < run.count; e += 16) {
            const std::int64_t some = std::min<std::int64_t>(run.count - e, 16);
            const auto which = static_cast<__mmask16>((1U << some) - 1);
            const __m512i children = _mm512_maskz_cvtepu8_epi32(which, _mm_maskz_loadu_epi8(which, run.nodes + e));
            const __m512 weights = weights_at(which, run.weights + e * Types::kWeightBytes);
            _mm512_storeu_si512(listed_to_ + listed_,
                                _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(run.to)), children));
            _mm512_storeu_ps(listed_values_ + listed_, _mm512_mul_ps(_mm512_set1_ps(run.x), weights));
            listed_ += some;
            if (listed_ > kListed) add_listed();
        }
    }

    CARYA_INLINE void add_listed() const {
        for (std::int64_t i = 0; i < listed_; ++i) sums_[listed_to_[i]] += listed_values_[i];
        listed_ = 0;
    }

    // Where the run of the i-th chunk begins.
    CARYA_INLINE static std::int64_t start_of(const Wide& block, std::int64_t i) {
        if constexpr (sizeof(Child) == 1) {
            const std::int64_t from = i / Wide::kSumStep * Wide::kSumStep;
            const auto before = static_cast<__mmask32>((std::uint64_t{1} << (i - from)) - 1);
            const __m256i counts = _mm256_maskz_loadu_epi8(before, block.counts + from);  // each one less than meant
            const __m256i zero = _mm256_setzero_si256();
            __m256i sums = _mm256_slli_epi64(_mm256_sad_epu8(counts, zero), kWeightShift);
            const __m256i most = _mm256_set1_epi8(static_cast<char>(block.map_bytes - 1));
            sums = _mm256_add_epi64(sums, _mm256_sad_epu8(_mm256_min_epu8(counts, most), zero));
            const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
            return block.sum(i / Wide::kSumStep) + _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1) +
                   (i - from) * (Types::kChildBytes + Types::kWeightBytes);
        } else {
            return block.start(i);
        }
    }
    static constexpr int kWeightShift = Types::kWeightBytes == 1 ? 0 : Types::kWeightBytes == 2 ? 1 : 2;
#else
    CARYA_INLINE static std::int64_t start_of(const Wide& block, std::int64_t i) { return block.start(i); }
#endif

    // Few chunks: from one to the next, by its map or up to its last weight.
    void walk(const Narrow& block, float x) const {
        std::int64_t e = 0;
        for (std::int64_t c = 0; c < block.n; ++c) {
            const std::uint32_t to = place_of(block.chunk(c));
            if (block.map_bytes > 0) {
                const Run run{block.children + c * block.map_bytes,
                              block.weights + e * Types::kWeightBytes,
                              x,
                              to,
                              block.m - e,
                              block.map_lines()};
                e += to != 0 ? add_run(run) : block.map_count(c);
                if (e > block.m) return;
                continue;
            }
            for (bool more = e < block.m; more; ++e) {
                const auto child = load<Child>(block.children + e * Types::kChildBytes);
                if (to != 0) add_at(to + static_cast<Child>(child & ~Types::kLast), x * weight(block.weights, e));
                more = !block.last(e) && e + 1 < block.m;
            }
        }
    }

    // Many of the chunks are asked for: over the others by their counts.
    void count(const Wide& block, float x) const {
        std::int64_t at = 0;
        block.each_chunk([&](std::int64_t i, std::int64_t chunk) {
            const std::uint32_t to = place_of(chunk);
            if (to != 0) add_later(block.run(i, at), x, to);
            at += Wide::run_bytes(block.count(i), block.map_bytes);
            return at <= block.size;
        });
    }

    // Few chunks asked for, and a bit for each that there is: its place is the number of bits before it.
    void pick(const Wide& block, float x) const {
        std::uint32_t before[kMostWords];
        std::uint32_t bits = 0;
        for (std::int64_t w = 0; w < block.words; ++w) {
            before[w] = bits;
            bits += static_cast<std::uint32_t>(__builtin_popcountll(block.word(w)));
        }
        std::uint32_t places[kMostPicked];
        std::uint32_t to[kMostPicked];
        std::int64_t found = 0;
        for (std::int64_t k = 0; k < query_.wanted_count; ++k) {
            const std::int32_t chunk = query_.wanted[k];
            const std::uint64_t word = block.word(chunk / 64) >> chunk % 64;  // its lowest bit is the chunk's own
            const int below = __builtin_popcountll(block.word(chunk / 64)) - __builtin_popcountll(word);
            places[found] = before[chunk / 64] + static_cast<std::uint32_t>(below);
            to[found] = query_.base[chunk];
            found += static_cast<std::int64_t>(word & 1);
        }
        for (std::int64_t k = 0; k < found; ++k)
            if (places[k] < block.n) add_later(block.run(places[k], start_of(block, places[k])), x, to[k]);
    }

#ifdef CARYA_MASKS
    void find(const Wide& block, float x) const {
        for (std::int64_t c = 0; c < block.n; c += Found::kWidth) {
            for (auto found = finder_.among(block.chunks + c * Types::kIdBytes, block.n - c); found;
                 found &= found - 1) {
                const std::int64_t i = c + __builtin_ctzll(found);
                add_later(block.run(i, start_of(block, i)), x, query_.base[block.id(i)]);
            }
        }
    }
#endif

    // Very many ids for each that is asked for: each chunk asked for by bisection.
    void seek(const Wide& block, float x) const {
        for (std::int64_t k = 0; k < query_.wanted_count; ++k) {
            const std::int64_t chunk = query_.wanted[k];
            std::int64_t i = 0;
            for (std::int64_t end = block.n; i < end;) {
                const std::int64_t middle = i + (end - i) / 2;
                if (block.id(middle) < chunk)
                    i = middle + 1;
                else
                    end = middle;
            }
            if (i == block.n || block.id(i) != chunk) continue;
            add_later(block.run(i, start_of(block, i)), x, query_.base[chunk]);
        }
    }

    // Runs in the midst of large blocks are asked for when they are found, and added when they have arrived.
    CARYA_INLINE void add_later(const WideRun& run, float x, std::uint32_t to) const {
        __builtin_prefetch(run.nodes);
        __builtin_prefetch(run.weights + run.count * Types::kWeightBytes - 1);
        Run& oldest = waiting_[next_++ % kWaiting];
        if (next_ > kWaiting) add_run(oldest);
        oldest = {run.nodes, run.weights, x, to, run.count, run.mapped ? form_.map_bytes / 2 : 0};
    }

    static constexpr std::uint64_t kWaiting = 16;
    // So many chunks of a block for each one asked for make it worth to look for those.
    static constexpr std::int64_t kPickWorth = 2;
    static constexpr std::int64_t kSeekWorth = 64;
    static constexpr std::int64_t kMostPicked = 64;
    static constexpr std::int64_t kMostWords = PackedForm::kMostWords;

    const PackedForm& form_;
    const PackedQuery& query_;
    float* sums_;
    std::int64_t room_;
    mutable Run waiting_[kWaiting];
    mutable std::uint64_t next_ = 0;
#ifdef CARYA_MASKS
    static constexpr bool kCanFind = !Types::kOnly && sizeof(Id) <= 2 && sizeof(Child) == 1;
    using Found = Finder<std::conditional_t<kCanFind, Id, std::uint16_t>>;
    bool find_;
    Found finder_;
    static constexpr std::int64_t kListed = 256;
    mutable std::int64_t listed_ = 0;
    alignas(64) mutable std::uint32_t listed_to_[kListed + 16];
    alignas(64) mutable float listed_values_[kListed + 16];
#endif
};

void prefetch_head(std::span<const std::uint8_t> block) {
    const std::int64_t head = std::min<std::int64_t>(std::ssize(block), kHead);
    for (std::int64_t at = 0; at < head; at += 64) __builtin_prefetch(block.data() + at);
}

// A block on its way: what is known of it comes in steps, each when what it needs has arrived.
struct Coming {
    BlockPlace place;
    std::span<const std::uint8_t> bytes;
};

template <class Types>
void add_blocks(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t room) {
    constexpr std::int64_t kComing = 16;
    static_assert(kLargeAhead < kBlocksAhead && kBlocksAhead < kStartsAhead && kBlocksAhead < kComing);
    const Adder<Types> adder(w.form, query, sums, room);
    Coming coming[kComing];
    for (std::int64_t i = -kStartsAhead; i < query.count; ++i) {
        if (const std::int64_t ahead = i + kStartsAhead; ahead < query.count)
            __builtin_prefetch(&w.starts.line(query.features[ahead]));
        if (const std::int64_t ahead = i + kBlocksAhead; ahead >= 0 && ahead < query.count) {
            Coming& one = coming[ahead % kComing];
            one.place = w.starts[query.features[ahead]];
            one.bytes = {w.data.data() + one.place.begin, w.data.data() + one.place.end};
            prefetch_head(one.bytes);
        }
        if (const std::int64_t ahead = i + kLargeAhead; ahead >= 0 && ahead < query.count) {
            Coming& one = coming[ahead % kComing];
            if (one.place.large) {
                one.bytes = find_block(one.place, w.data);
                prefetch_head(one.bytes);
            }
        }
        if (i < 0) continue;
        const Coming& one = coming[i % kComing];
        if (!one.bytes.empty()) adder.add(one.bytes, one.place.mapped, query.values[i]);
    }
    adder.finish();
}

}  // namespace

void add_packed(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t room) {
    for_form(w.form, [&]<class Types>() { add_blocks<Types>(w, query, sums, room); });
}

}  // namespace carya::CARYA_ISA
