// Scores of the children of the nodes in a beam: weights are gathered from packed blocks, then joined with the
// parents'.

#include <algorithm>
#include <span>

#include "../layouts/dispatch.hpp"
#include "kernels.hpp"
#include "lanes.hpp"

namespace carya::CARYA_ISA {

namespace {

// Blocks are read at random from memory far larger than the caches: they are asked for this many features ahead.
constexpr std::int64_t kStartsAhead = 16;
constexpr std::int64_t kBlocksAhead = 10;
constexpr std::int64_t kLargeAhead = 5;
constexpr std::int64_t kLargeHead = 512;  // bytes of a large block: its chunks and counts

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
            quarters = _mm256_add_epi64(_mm512_maskz_extracti64x4_epi64(0xF, some, 0),
                                        _mm512_maskz_extracti64x4_epi64(0xF, some, 1));
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
            if (block.n > 0) add_run(run_of(block, 0, 0, block.m, x, query_.base[0]));
        } else if (block.n < kCounted) {
            walk(block, x);
        } else if (block.n >= kSummed && query_.wanted_count * kSumStep < block.n) {
            seek(block, x);
        } else {
#ifdef CARYA_FINDER
            if constexpr (kCanFind) {
                if (find_) return find(block, x);
            }
#endif
            count(block, x);
        }
    }

    // What waits to be added.
    void finish() const {
        for (std::uint64_t i = next_ > kWaiting ? next_ - kWaiting : 0; i < next_; ++i) add_run(waiting_[i % kWaiting]);
    }

private:
    // The table of places has room for all narrow ids.
    bool is_chunk(std::int64_t chunk) const { return sizeof(Id) <= 2 || chunk < query_.chunks; }

    // Sums have room for any narrow child.
    bool has_room(std::int64_t at) const { return sizeof(Child) <= 2 || at < room_; }

    // The weights of one chunk of a block.
    struct Run {
        const std::uint8_t* nodes;  // children, or the map
        const std::uint8_t* weights;
        std::int64_t count;      // with a map: at most
        std::int64_t map_lines;  // 0 for children
        float x;
        std::uint32_t to;
    };

    // That of the c-th chunk, with weights [begin, end).
    static Run run_of(const Form& block, std::int64_t c, std::int64_t begin, std::int64_t end, float x,
                      std::uint32_t to) {
        if (begin > block.m) begin = block.m;
        if (end > block.m || block.map_bytes > 0) end = block.m;
        const std::int64_t at = block.map_bytes > 0 ? c * block.map_bytes : begin * Form::kChildBytes;
        return {block.children + at, block.weights + begin * Form::kWeightBytes, end - begin, block.map_lines(), x, to};
    }

    static float weight(const Run& run, std::int64_t e) {
        return static_cast<float>(load<Weight>(run.weights + e * Form::kWeightBytes));
    }

    void add_child(const Run& run, std::int64_t e) const {
        const std::int64_t at = run.to + Form::place(load<Child>(run.nodes + e * Form::kChildBytes));
        if (has_room(at)) sums_[at] += run.x * weight(run, e);
    }

    // Returns how many weights it had.
    std::int64_t add_run(const Run& run) const {
        if (run.map_lines == 0) {
            for (std::int64_t e = 0; e < run.count; ++e) add_child(run, e);
            return run.count;
        }
        std::int64_t e = 0;
        for (std::int64_t line = 0; line < run.map_lines; ++line) {
            const std::uint32_t map = load<std::uint16_t>(run.nodes + 2 * line);
            const int count = __builtin_popcount(map);
            if (e + count > run.count) break;
            add_line(run, e, map, sums_ + run.to + 16 * line);
            e += count;
        }
        return e;
    }

    static void add_line(const Run& run, std::int64_t e, std::uint32_t map, float* out) {
#ifdef CARYA_FINDER
        const auto all = static_cast<__mmask16>((1U << __builtin_popcount(map)) - 1);
        const __m512 weights = weights_at(all, run.weights + e * Form::kWeightBytes);
        const __m512 spread = _mm512_maskz_expand_ps(static_cast<__mmask16>(map), weights);
        _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_set1_ps(run.x), spread, _mm512_loadu_ps(out)));
#else
        for (; map; map &= map - 1) out[__builtin_ctz(map)] += run.x * weight(run, e++);
#endif
    }

#ifdef CARYA_FINDER
    static __m512 weights_at(__mmask16 which, const std::uint8_t* bytes) {
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
#endif

    // Few chunks: from one to the next, by its map or up to its last weight.
    void walk(const Form& block, float x) const {
        std::int64_t e = 0;
        for (std::int64_t c = 0; c < block.n; ++c) {
            const std::int64_t chunk = block.chunk(c);
            const std::uint32_t to = is_chunk(chunk) ? query_.base[chunk] : 0;
            if (block.map_bytes > 0) {
                e += to != 0 ? add_run(run_of(block, c, e, block.m, x, to)) : block.map_count(c);
                continue;
            }
            const Run run = run_of(block, c, 0, block.m, x, to);
            for (bool more = e < block.m; more; ++e) {
                if (to != 0) add_child(run, e);
                more = !block.last(e) && e + 1 < block.m;
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
            if (to != 0) add_later(run_of(block, c, at, end, x, to));
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
                add_later(
                    run_of(block, c + here, from, from + block.count(c + here), x, query_.base[block.chunk(c + here)]));
            }
            if (c + Found::kWidth < block.n) at += Found::sum(counts, ~typename Found::Mask{0});
        }
    }
#endif

    // Very many chunks: each one asked for by bisection, its weights from the sums.
    void seek(const Form& block, float x) const {
        for (std::int64_t k = 0; k < query_.wanted_count; ++k) {
            const std::int64_t chunk = query_.wanted[k];
            std::int64_t c = 0;
            for (std::int64_t end = block.n; c < end;) {
                const std::int64_t middle = c + (end - c) / 2;
                if (block.chunk(middle) < chunk)
                    c = middle + 1;
                else
                    end = middle;
            }
            if (c == block.n || block.chunk(c) != chunk) continue;
            std::int64_t at = block.sum(c / kSumStep);
            for (std::int64_t before = c / kSumStep * kSumStep; before < c; ++before) at += block.count(before);
            add_later(run_of(block, c, at, at + block.count(c), x, query_.base[chunk]));
        }
    }

    // Runs in the midst of large blocks are asked for when they are found, and added when they have arrived.
    void add_later(const Run& run) const {
        __builtin_prefetch(run.nodes);
        __builtin_prefetch(run.weights);
        Run& oldest = waiting_[next_++ % kWaiting];
        if (next_ > kWaiting) add_run(oldest);
        oldest = run;
    }

    static constexpr std::uint64_t kWaiting = 16;

    const PackedQuery& query_;
    float* sums_;
    std::int64_t room_;
    mutable Run waiting_[kWaiting];
    mutable std::uint64_t next_ = 0;
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
            __builtin_prefetch(&starts.line(query.features[i + kStartsAhead]));
        }
        if (i + kBlocksAhead < query.count) {
            const std::uint8_t* ahead = w.data.data() + starts[query.features[i + kBlocksAhead]].begin;
            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 64);
        }
        if (i + kLargeAhead < query.count) {
            const BlockPlace ahead = starts[query.features[i + kLargeAhead]];
            if (ahead.large) {
                const std::span<const std::uint8_t> block = find_block(ahead, w.data);
                const std::int64_t head = std::min<std::int64_t>(std::ssize(block), kLargeHead);
                for (std::int64_t at = 0; at < head; at += 64) __builtin_prefetch(block.data() + at);
            }
        }
        const BlockPlace place = starts[query.features[i]];
        if (place.begin == place.end) continue;
        const Block<Id, Child, Weight> block(find_block(place, w.data), place.mapped ? w.form.map_bytes : 0);
        adder.add(block, query.values[i]);
    }
    adder.finish();
}

using Vector = Lanes<16>;
using Float = Vector::Float;

// Calls body(f) where f(h) = max(0, 1 - h)^p. Small whole powers are by far the most used.
template <class Body>
void with_shortfall(float power, const Body& body) {
    const auto below = [](Float h) { return Vector::max(Vector::same(0.0F), 1.0F - h); };  // of no number: none
    if (power == 2.0F) return body([=](Float h) { return below(h) * below(h); });
    if (power == 3.0F) return body([=](Float h) { return below(h) * below(h) * below(h); });
    if (power == 4.0F) {
        return body([=](Float h) {
            const Float square = below(h) * below(h);
            return square * square;
        });
    }
    body([=](Float h) {
        Float out = below(h);
        for (int l = 0; l < 16; ++l) out[l] = __builtin_powf(out[l], power);
        return out;
    });
}

Float log_sigmoid(Float h) {
    Float out;
    for (int l = 0; l < 16; ++l)
        out[l] = (h[l] < 0.0F ? h[l] : 0.0F) - __builtin_log1pf(__builtin_expf(-__builtin_fabsf(h[l])));
    return out;
}

// sums = joined(sums * scale + offsets), sixteen at a time.
template <class Joined>
void join_all(float scale, const float* offsets, std::int64_t count, float* sums, const Joined& joined) {
    const Float least = Vector::same(-3.0e38F);
    const Float most = Vector::same(3.0e38F);
    const auto join = [&](float* out, Float offset) {
        const Float h = joined(Vector::at(out) * scale + offset);
        // Infinite, or no number at all: that ranks last, and is no trouble to sorting.
        Vector::at(out) = Vector::min(h > least ? h : least, most);
    };
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        Float offset;
        __builtin_memcpy(&offset, offsets + i, sizeof offset);
        join(sums + i, offset);
    }
    if (i == count) return;
    Float offset{};
    __builtin_memcpy(&offset, offsets + i, static_cast<std::size_t>(count - i) * sizeof(float));
    join(sums + i, offset);
}

}  // namespace

void add_packed(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t room) {
    for_form(w.form,
             [&]<class Id, class Child, class Weight>() { add_blocks<Id, Child, Weight>(w, query, sums, room); });
}

void join_scores(const Transform& transform, bool in_logs, float parent, float scale, const float* offsets,
                 std::int64_t count, float* sums) {
    const auto join = [&](const auto& joined) { join_all(scale, offsets, count, sums, joined); };
    switch (transform.kind) {
        case Transform::noop: return join([](Float h) { return h; });
        case Transform::sigmoid: return join([&](Float h) { return parent * (1.0F / (1.0F + Vector::exp(-h))); });
        case Transform::log_sigmoid: return join([&](Float h) { return parent + log_sigmoid(h); });
        case Transform::hinge:
            if (!in_logs) {
                return with_shortfall(transform.power, [&](const auto& shortfall) {
                    join([&](Float h) { return parent * Vector::exp(-shortfall(h)); });
                });
            }
            [[fallthrough]];
        case Transform::log_hinge:
            return with_shortfall(transform.power,
                                  [&](const auto& shortfall) { join([&](Float h) { return parent - shortfall(h); }); });
    }
}

std::int64_t above(const float* scores, std::int64_t count, float least, std::int32_t* which) {
    const Float bound = Vector::same(least);
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < count; i += 16) {
        std::uint32_t some = Vector::gather(Vector::at(scores + i) >= bound);
        if (count - i < 16) some &= (1U << (count - i)) - 1;
        for (; some; some &= some - 1) which[found++] = static_cast<std::int32_t>(i) + __builtin_ctz(some);
    }
    return found;
}

}  // namespace carya::CARYA_ISA
