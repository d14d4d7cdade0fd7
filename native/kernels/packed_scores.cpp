// Computes the raw scores of the children of beam nodes from the packed blocks of a query's features.
//
// The score of a node is the sum of its products in the order of the query's features, and every product is rounded
// before it is added (CMakeLists.txt disables fused multiply-add for this file). A score therefore does not depend on
// the other chunks in the beam or on the type of the block: the scores of a model are bitwise identical even if its
// chunks are distributed over several machines.

#include <algorithm>
#include <span>

#include "../layouts/block_types.hpp"
#include "kernels.hpp"
#include "packed_simd.hpp"

#ifndef CARYA_BASELINE
namespace carya::baseline {
void add_packed_scores(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t capacity);
}
#endif

namespace carya::CARYA_ISA {

namespace {

// Formats with four-byte ids or children (more than 65,536 chunks, or more than 32,768 children per chunk) are rare.
// Because their kernels take as long to compile as all others together, they are compiled only for the baseline
// instruction set.
template <class Types>
constexpr bool is_common() {
    return Types::kIdBytes <= 2 && Types::kChildBytes <= 2;
}

// Prefetch distances, in features. Blocks are accessed randomly in memory that is much larger than the caches.
constexpr std::int64_t kStartsDistance = 16;
constexpr std::int64_t kBlocksDistance = 10;
constexpr std::int64_t kLargeDistance = 5;
constexpr std::int64_t kHeadBytes = 320;  // number of bytes to prefetch at the start of a block

// Accumulates the scores of one query for the requested chunks.
template <class Types>
class ScoreAccumulator {
    using Id = typename Types::Id;
    using Child = typename Types::Child;
    using Weight = typename Types::Weight;
    using Narrow = NarrowBlock<Types>;
    using Wide = WideBlock<Types>;
#ifdef CARYA_PACKED_SIMD
    using Simd = PackedSimd<Types>;
#endif

public:
    ScoreAccumulator(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t capacity)
        : format_(w.format),
          query_(query),
          end_(w.data.data() + w.data.size()),
          sums_(sums),
          capacity_(capacity)
#ifdef CARYA_PACKED_SIMD
          ,
          compare_ids_(kCanCompareIds && query.requested_count <= Finder::kMaxRequested &&
                       query.requested_count < query.chunks),
          finder_(query.requested, compare_ids_ ? query.requested_count : 0)
#endif
    {
    }

    void add(std::span<const std::uint8_t> bytes, bool has_bitmaps, float x) const {
        const std::int64_t bitmap_bytes = has_bitmaps ? format_.bitmap_bytes : 0;
        if constexpr (Types::kSingleChunk) {
            const Narrow block(bytes, bitmap_bytes);
            if (block.n > 0) add_run({block.children, block.weights, x, query_.base[0], block.m, block.bitmap_lines()});
        } else if (Types::chunk_count(bytes) < kMinWideChunks) {
            add_narrow(Narrow(bytes, bitmap_bytes), x);
        } else {
            const Wide block(bytes, format_.bitmap_bytes, format_.chunk_words);
            if (block.ranks != nullptr) {
                if (query_.requested_count * kMinRatioForRank < block.n) return add_by_ranked_bits(block, x);
            } else if (block.chunk_words > 0) {
                if (query_.requested_count <= kMaxRanked && query_.requested_count * kMinRatioForRank < block.n)
                    return add_by_rank(block, x);
            } else if (query_.requested_count * kMinRatioForBisection < block.n) {
                return add_by_bisection(block, x);
            }
#ifdef CARYA_PACKED_SIMD
            if constexpr (kCanCompareIds) {
                if (compare_ids_ && block.chunk_words == 0 && Finder::can_read(block.chunks, block.n, end_))
                    return add_by_comparison(block, x);
            }
#endif
            add_by_scan(block, x);
        }
    }

    // Adds the pending runs.
    void finish() const {
        for (std::uint64_t i = n_deferred_ > kMaxPending ? n_deferred_ - kMaxPending : 0; i < n_deferred_; ++i)
            add_run(pending_[i % kMaxPending]);
#ifdef CARYA_PACKED_SIMD
        flush_queue();
#endif
    }

private:
    // Ids of one or two bytes need no bounds check, because `base` has an entry for every possible id.
    bool is_chunk(std::int64_t chunk) const { return sizeof(Id) <= 2 || chunk < query_.chunks; }

    std::uint32_t base_of(std::int64_t chunk) const { return is_chunk(chunk) ? query_.base[chunk] : 0; }

    // Child indices of one or two bytes need no bounds check, because `sums` has space for every possible index.
    bool in_range(std::int64_t index) const { return sizeof(Child) <= 2 || index < capacity_; }

    // The weights of one chunk in a block.
    struct Run {
        const std::uint8_t* nodes;  // child ids or a bitmap
        const std::uint8_t* weights;
        float x;
        std::uint32_t to;
        std::int64_t count;         // number of weights; for a bitmap, the maximum number
        std::int64_t bitmap_lines;  // 0 for child ids
    };

    static float weight(const std::uint8_t* weights, std::int64_t e) {
        return static_cast<float>(load<Weight>(weights + e * Types::kWeightBytes));
    }

    void add_at(std::int64_t index, float value) const {
        if (in_range(index)) sums_[index] += value;
    }

    // Adds a run and returns its number of weights.
    CARYA_INLINE std::int64_t add_run(const Run run) const {
        if (run.bitmap_lines == 0) {
            add_children(run);
            return run.count;
        }
#ifdef CARYA_PACKED_SIMD
        if constexpr (sizeof(Child) == 1) flush_queue();  // preserves the order of the additions
#endif
        std::int64_t e = 0;
        float* const out = sums_ + run.to;
        for (std::int64_t line = 0; line < run.bitmap_lines; ++line) {
            const std::uint32_t bitmap = load<std::uint16_t>(run.nodes + 2 * line);
            const int count = __builtin_popcount(bitmap);
            if (e + count > run.count) break;
            add_line(run, e, bitmap, out + 16 * line);
            e += count;
        }
        return e;
    }

    CARYA_INLINE void add_line(const Run& run, std::int64_t e, std::uint32_t bitmap, float* out) const {
#ifdef CARYA_PACKED_SIMD
        if (Simd::add_line(run.weights + e * Types::kWeightBytes, end_, bitmap, run.x, out)) [[likely]]
            return;
#endif
        for (; bitmap; bitmap &= bitmap - 1) out[__builtin_ctz(bitmap)] += run.x * weight(run.weights, e++);
    }

    CARYA_INLINE void add_children(const Run& run) const {
        std::int64_t e = 0;
#ifdef CARYA_PACKED_SIMD
        if constexpr (sizeof(Child) == 1) {
            e = queue_children(run);
            if (e == run.count) [[likely]]
                return;
            flush_queue();
        }
#endif
        for (; e < run.count; ++e) {
            const auto child = static_cast<Child>(load<Child>(run.nodes + e * Types::kChildBytes) & ~Types::kLastChild);
            add_at(run.to + static_cast<std::int64_t>(child), run.x * weight(run.weights, e));
        }
    }

#ifdef CARYA_PACKED_SIMD
    // Collects the updates from short runs in a queue that is processed in one long loop, because the branch at the end
    // of every short loop would be mispredicted. Returns how many of the run's weights were queued.
    CARYA_INLINE std::int64_t queue_children(const Run& run) const {
        for (std::int64_t e = 0; e < run.count; e += Simd::kLanes) {
            const std::int64_t count = std::min<std::int64_t>(run.count - e, Simd::kLanes);
            if (!Simd::multiply_children(run.nodes + e, run.weights + e * Types::kWeightBytes, end_, count, run.to,
                                         run.x, queued_indices_ + queued_, queued_values_ + queued_))
                return e;
            queued_ += count;
            if (queued_ > kQueueSize) flush_queue();
        }
        return run.count;
    }

    CARYA_INLINE void flush_queue() const {
        for (std::int64_t i = 0; i < queued_; ++i) sums_[queued_indices_[i]] += queued_values_[i];
        queued_ = 0;
    }
#endif

    // Returns the offset of the i-th chunk's run.
    CARYA_INLINE std::int64_t run_offset(const Wide& block, std::int64_t i) const {
#ifdef CARYA_PACKED_SIMD
        if constexpr (sizeof(Child) == 1) return Simd::run_offset(block, end_, i);
#endif
        return block.run_offset(i);
    }

    // Adds a narrow block by visiting its chunks up to the last requested chunk. A bitmap or the mark on the last child
    // determines where a chunk ends.
    void add_narrow(const Narrow& block, float x) const {
        std::int64_t last = -1;
        for (std::int64_t c = 0; c < block.n; ++c)
            if (base_of(block.chunk(c)) != 0) last = c;
        std::int64_t e = 0;
        for (std::int64_t c = 0; c <= last; ++c) {
            const std::int64_t begin = e;
            const std::uint8_t* nodes = block.children + e * Types::kChildBytes;
            if (block.bitmap_bytes > 0) {
                nodes = block.children + c * block.bitmap_bytes;
                e += block.bitmap_count(c);
                if (e > block.m) return;
            } else {
                for (bool more = e < block.m; more; ++e) more = !block.is_last(e) && e + 1 < block.m;
            }
            const std::uint32_t to = base_of(block.chunk(c));
            if (to != 0)
                defer({nodes, block.weights + begin * Types::kWeightBytes, x, to, e - begin, block.bitmap_lines()});
        }
    }

    // Adds a block by visiting all of its chunks and skipping those that are not requested. Used if many chunks are
    // requested.
    void add_by_scan(const Wide& block, float x) const {
        std::int64_t offset = 0;
        block.for_each_chunk([&](std::int64_t i, std::int64_t chunk) {
            const std::uint32_t to = base_of(chunk);
            if (to != 0) add_deferred(block.run(i, offset), x, to);
            offset += Wide::run_bytes(block.count(i), block.bitmap_bytes);
            return offset <= block.size;
        });
    }

    // Adds a block by computing the index of each requested chunk: the number of set bits before the chunk's own bit.
    // Used for blocks with chunk bits if few chunks are requested.
    void add_by_rank(const Wide& block, float x) const {
        std::uint32_t bits_before[PackedFormat::kMaxUnrankedWords];
        std::uint32_t bits = 0;
        for (std::int64_t w = 0; w < block.chunk_words; ++w) {
            bits_before[w] = bits;
            bits += static_cast<std::uint32_t>(__builtin_popcountll(block.chunk_word(w)));
        }
        std::uint32_t indices[kMaxRanked];
        std::uint32_t to[kMaxRanked];
        std::int64_t n_found = 0;
        for (std::int64_t k = 0; k < query_.requested_count; ++k) {
            const std::int32_t chunk = query_.requested[k];
            // The lowest bit of `word` belongs to the chunk.
            const std::uint64_t word = block.chunk_word(chunk / 64) >> chunk % 64;
            const int preceding = __builtin_popcountll(block.chunk_word(chunk / 64)) - __builtin_popcountll(word);
            indices[n_found] = bits_before[chunk / 64] + static_cast<std::uint32_t>(preceding);
            to[n_found] = query_.base[chunk];
            n_found += static_cast<std::int64_t>(word & 1);
        }
        for (std::int64_t k = 0; k < n_found; ++k)
            if (indices[k] < block.n) add_deferred(block.run(indices[k], run_offset(block, indices[k])), x, to[k]);
    }

    // Adds a block with ranks, in which a search needs only a few cache lines. All chunks are looked up before the
    // first run is added, so that the processor loads these lines in parallel.
    void add_by_ranked_bits(const Wide& block, float x) const {
        constexpr std::int64_t kGroup = 16;
        for (std::int64_t first = 0; first < query_.requested_count; first += kGroup) {
            const std::int64_t last = std::min(first + kGroup, query_.requested_count);
            std::int64_t indices[kGroup];
            std::uint32_t to[kGroup];
            std::int64_t n_found = 0;
            for (std::int64_t k = first; k < last; ++k) {
                const std::int32_t chunk = query_.requested[k];
                indices[n_found] = block.ranked_index(chunk);
                to[n_found] = query_.base[chunk];
                __builtin_prefetch(block.counts + indices[n_found] * Types::kChildBytes);
                __builtin_prefetch(block.sums + indices[n_found] / Wide::kSumStep * 4);
                n_found += block.has_chunk(chunk);
            }
            for (std::int64_t k = 0; k < n_found; ++k)
                if (indices[k] < block.n) add_deferred(block.run(indices[k], run_offset(block, indices[k])), x, to[k]);
        }
    }

#ifdef CARYA_PACKED_SIMD
    // Adds a block by comparing its ids with the requested ids. Used for blocks with ids if few chunks are requested.
    void add_by_comparison(const Wide& block, float x) const {
        for (std::int64_t c = 0; c < block.n; c += Finder::kWidth) {
            for (auto matching = finder_.matches(block.chunks + c * Types::kIdBytes, block.n - c); matching;
                 matching &= matching - 1) {
                const std::int64_t i = c + __builtin_ctzll(matching);
                add_deferred(block.run(i, run_offset(block, i)), x, query_.base[block.id(i)]);
            }
        }
    }
#endif

    // Adds a block by binary search in its ids. Used if the block has many more chunks than are requested.
    void add_by_bisection(const Wide& block, float x) const {
        for (std::int64_t k = 0; k < query_.requested_count; ++k) {
            const std::int64_t chunk = query_.requested[k];
            std::int64_t i = 0;
            for (std::int64_t end = block.n; i < end;) {
                const std::int64_t middle = i + (end - i) / 2;
                if (block.id(middle) < chunk)
                    i = middle + 1;
                else
                    end = middle;
            }
            if (i == block.n || block.id(i) != chunk) continue;
            add_deferred(block.run(i, run_offset(block, i)), x, query_.base[chunk]);
        }
    }

    // Prefetches a run and adds it later, when it is in the cache.
    CARYA_INLINE void add_deferred(const WideRun& run, float x, std::uint32_t to) const {
        __builtin_prefetch(run.nodes);
        __builtin_prefetch(run.weights + run.count * Types::kWeightBytes - 1);
        defer({run.nodes, run.weights, x, to, run.count, run.has_bitmap ? format_.bitmap_bytes / 2 : 0});
    }

    // Adds a run after the runs that were deferred before it.
    CARYA_INLINE void defer(const Run& run) const {
        Run& oldest = pending_[n_deferred_++ % kMaxPending];
        if (n_deferred_ > kMaxPending) add_run(oldest);
        oldest = run;
    }

    static constexpr std::uint64_t kMaxPending = 16;
    // Minimum ratios of the number of chunks in the block to the number of requested chunks.
    static constexpr std::int64_t kMinRatioForRank = 2;
    static constexpr std::int64_t kMinRatioForBisection = 64;
    static constexpr std::int64_t kMaxRanked = 64;

    const PackedFormat& format_;
    const PackedQuery& query_;
    const std::uint8_t* end_;  // end of the data
    float* sums_;
    std::int64_t capacity_;
    mutable Run pending_[kMaxPending];
    mutable std::uint64_t n_deferred_ = 0;
#ifdef CARYA_PACKED_SIMD
    static constexpr bool kCanCompareIds = !Types::kSingleChunk && sizeof(Id) <= 2 && sizeof(Child) == 1;
    using Finder = ChunkFinder<std::conditional_t<kCanCompareIds, Id, std::uint16_t>>;
    bool compare_ids_;
    Finder finder_;
    static constexpr std::int64_t kQueueSize = 256;
    mutable std::int64_t queued_ = 0;
    alignas(64) mutable std::uint32_t queued_indices_[kQueueSize + 16];
    alignas(64) mutable float queued_values_[kQueueSize + 16];
#endif
};

void prefetch_head(std::span<const std::uint8_t> block) {
    const std::int64_t head = std::min<std::int64_t>(std::ssize(block), kHeadBytes);
    for (std::int64_t offset = 0; offset < head; offset += 64) __builtin_prefetch(block.data() + offset);
}

// A block that is being prefetched.
struct PendingBlock {
    BlockLocation location;
    std::span<const std::uint8_t> bytes;
};

template <class Types>
void add_blocks(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t capacity) {
    constexpr std::int64_t kPendingBlocks = 16;
    static_assert(kLargeDistance < kBlocksDistance && kBlocksDistance < kStartsDistance &&
                  kBlocksDistance < kPendingBlocks);
    const ScoreAccumulator<Types> accumulator(w, query, sums, capacity);
    PendingBlock pending[kPendingBlocks];
    for (std::int64_t i = -kStartsDistance; i < query.count; ++i) {
        if (const std::int64_t ahead = i + kStartsDistance; ahead < query.count)
            __builtin_prefetch(&w.starts.line_of(query.features[ahead]));
        if (const std::int64_t ahead = i + kBlocksDistance; ahead >= 0 && ahead < query.count) {
            PendingBlock& block = pending[ahead % kPendingBlocks];
            block.location = w.starts[query.features[ahead]];
            block.bytes = {w.data.data() + block.location.begin, w.data.data() + block.location.end};
            prefetch_head(block.bytes);
        }
        if (const std::int64_t ahead = i + kLargeDistance; ahead >= 0 && ahead < query.count) {
            PendingBlock& block = pending[ahead % kPendingBlocks];
            if (block.location.is_large) {
                block.bytes = locate_block(block.location, w.data);
                prefetch_head(block.bytes);
            }
        }
        if (i < 0) continue;
        const PendingBlock& block = pending[i % kPendingBlocks];
        if (!block.bytes.empty()) accumulator.add(block.bytes, block.location.has_bitmaps, query.values[i]);
    }
    accumulator.finish();
}

}  // namespace

void add_packed_scores(const PackedView& w, const PackedQuery& query, float* sums, std::int64_t capacity) {
    dispatch_format(w.format, [&]<class Types>() {
#ifndef CARYA_BASELINE
        if constexpr (!is_common<Types>()) return baseline::add_packed_scores(w, query, sums, capacity);
#endif
        add_blocks<Types>(w, query, sums, capacity);
    });
}

}  // namespace carya::CARYA_ISA
