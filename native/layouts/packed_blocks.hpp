// Read access to the blocks of a packed layer, used by the search kernels and by unpack().
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "half_float.hpp"
#include "packed_weights.hpp"

namespace carya {
namespace {  // private to each file, because the kernels are compiled for several instruction sets

template <class T>
inline T load(const std::uint8_t* bytes) {  // `bytes` may be unaligned
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
}

struct Half {
    std::uint16_t bits;
    operator float() const { return from_half(bits); }
};

// A weight stored as a signed square root: q represents q |q| times the scale of its chunk. Most weights are small, and
// this encoding has its finest steps near 0: for a weight of 1/50 of the largest weight, the relative error is 6%,
// compared with 20% for uniform steps.
struct SignedSqrt {
    std::int8_t root;
    operator float() const { return static_cast<float>(root * (root < 0 ? -root : root)); }
};

// Returns the bytes of a block. The data must have passed PackedView::check.
inline std::span<const std::uint8_t> locate_block(const BlockLocation& location, std::span<const std::uint8_t> data) {
    const std::span<const std::uint8_t> inline_bytes =
        data.subspan(static_cast<std::size_t>(location.begin), static_cast<std::size_t>(location.end - location.begin));
    if (!location.is_large) [[likely]]
        return inline_bytes;
    if (inline_bytes.size() != 2 * sizeof(std::uint64_t)) return {};
    const auto offset = load<std::uint64_t>(inline_bytes.data());
    const auto size = load<std::uint64_t>(inline_bytes.data() + sizeof(std::uint64_t));
    if (offset > data.size() || size > data.size() - offset) return {};
    return data.subspan(offset, size);
}

// Id type for levels with a single chunk, in which ids take no bytes.
struct SingleChunk {};

// Types of the components of a block.
template <class IdType, class ChildType, class WeightType>
struct BlockTypes {
    using Id = IdType;
    using Child = ChildType;
    using Weight = WeightType;
    static constexpr bool kSingleChunk = std::is_same_v<Id, SingleChunk>;
    static constexpr std::int64_t kIdBytes = kSingleChunk ? 0 : sizeof(Id);
    static constexpr std::int64_t kChildBytes = sizeof(Child);
    static constexpr std::int64_t kWeightBytes = sizeof(Weight);
    // The bit that marks the last child of a chunk in a narrow block. A single chunk needs no mark, because it ends
    // with the block.
    static constexpr auto kLastChild = static_cast<Child>(kSingleChunk ? 0 : Child{1} << (8 * sizeof(Child) - 1));

    // Returns the number of chunks that the start of a block specifies; the number may be wrong if the block is
    // damaged.
    static std::int64_t chunk_count(std::span<const std::uint8_t> bytes) {
        if constexpr (kSingleChunk)
            return 1;
        else
            return static_cast<std::int64_t>(bytes.size()) < kIdBytes ? 1 : std::int64_t{load<Id>(bytes.data())} + 1;
    }
};

// Returns whether a bitmap takes no more bytes than child ids for `count` weights.
constexpr bool prefers_bitmap(std::int64_t count, std::int64_t child_bytes, std::int64_t bitmap_bytes) {
    return bitmap_bytes > 0 && bitmap_bytes <= count * child_bytes;
}

// Blocks with at least this many chunks are wide, so that a search can skip most of their chunks.
constexpr std::int64_t kMinWideChunks = 8;

// The components of a narrow block. Sizes are limited to the size of the block, so that reading a damaged block never
// accesses memory out of bounds.
template <class Types>
struct NarrowBlock {
    using Child = typename Types::Child;

    const std::uint8_t* chunks = nullptr;
    const std::uint8_t* children = nullptr;  // child ids or bitmaps
    const std::uint8_t* weights = nullptr;
    std::int64_t n = 0;             // number of chunks
    std::int64_t m = 0;             // number of weights
    std::int64_t bitmap_bytes = 0;  // per chunk; 0 for a block with child ids

    // `chunk_bitmap_bytes` is 0 if the block has no bitmaps.
    NarrowBlock(std::span<const std::uint8_t> bytes, std::int64_t chunk_bitmap_bytes)
        : bitmap_bytes(chunk_bitmap_bytes) {
        const auto size = static_cast<std::int64_t>(bytes.size());
        if (size <= Types::kIdBytes) return;
        const std::int64_t claimed = Types::chunk_count(bytes);
        const std::int64_t head = Types::kIdBytes + claimed * Types::kIdBytes;
        if (head + claimed * chunk_bitmap_bytes > size) return;
        n = claimed;
        m = (size - head - n * chunk_bitmap_bytes) /
            (chunk_bitmap_bytes > 0 ? Types::kWeightBytes : Types::kChildBytes + Types::kWeightBytes);
        chunks = bytes.data() + Types::kIdBytes;
        children = bytes.data() + head;
        weights = children + (chunk_bitmap_bytes > 0 ? n * chunk_bitmap_bytes : m * Types::kChildBytes);
    }

    std::int64_t bitmap_lines() const { return bitmap_bytes / 2; }
    std::int64_t bitmap_count(std::int64_t i) const {
        std::int64_t out = 0;
        for (std::int64_t line = 0; line < bitmap_lines(); ++line)
            out += __builtin_popcount(load<std::uint16_t>(children + i * bitmap_bytes + 2 * line));
        return out;
    }
    std::int64_t chunk(std::int64_t i) const {
        if constexpr (Types::kSingleChunk)
            return 0;
        else
            return load<typename Types::Id>(chunks + i * Types::kIdBytes);
    }
    bool is_last(std::int64_t e) const {
        return (load<Child>(children + e * Types::kChildBytes) & Types::kLastChild) != 0;
    }
};

// The weights of one chunk in a wide block.
struct WideRun {
    const std::uint8_t* nodes;  // child ids or a bitmap
    const std::uint8_t* weights;
    std::int64_t count;
    bool has_bitmap;
};

// The components of a wide block. Sizes are limited as in a narrow block.
template <class Types>
struct WideBlock {
    static constexpr std::int64_t kSumStep = 32;    // number of chunks between entries in `sums`
    static constexpr std::int64_t kGroupWords = 8;  // number of words between entries in `ranks`

    const std::uint8_t* ranks = nullptr;   // number of chunks before each group of words; null if there are no ranks
    const std::uint8_t* chunks = nullptr;  // ids, or one bit per chunk of the level
    const std::uint8_t* sums = nullptr;
    const std::uint8_t* counts = nullptr;
    const std::uint8_t* runs = nullptr;
    std::int64_t n = 0;             // number of chunks
    std::int64_t size = 0;          // total bytes of all runs
    std::int64_t bitmap_bytes = 0;  // per chunk
    std::int64_t chunk_words = 0;   // 64-bit words with one bit per chunk of the level; 0 if the block has ids

    static constexpr std::int64_t rank_bytes(std::int64_t level_words) {
        return level_words > PackedFormat::kMaxUnrankedWords ? (level_words + kGroupWords - 1) / kGroupWords * 2 : 0;
    }

    // Returns whether chunk bits and their ranks take no more bytes than ids.
    static constexpr bool has_chunk_bits(std::int64_t n, std::int64_t level_words) {
        return level_words > 0 && rank_bytes(level_words) + level_words * 8 <= n * Types::kIdBytes;
    }

    // Offsets of the components of a block.
    static constexpr std::int64_t sums_offset(std::int64_t n, std::int64_t level_words) {
        return Types::kIdBytes +
               (has_chunk_bits(n, level_words) ? rank_bytes(level_words) + level_words * 8 : n * Types::kIdBytes);
    }
    static constexpr std::int64_t counts_offset(std::int64_t n, std::int64_t level_words) {
        return sums_offset(n, level_words) + (n - 1) / kSumStep * 4;
    }
    static constexpr std::int64_t runs_offset(std::int64_t n, std::int64_t level_words) {
        return counts_offset(n, level_words) + n * Types::kChildBytes;
    }

    static constexpr bool has_bitmap(std::int64_t count, std::int64_t bitmap_bytes) {
        return prefers_bitmap(count, Types::kChildBytes, bitmap_bytes);
    }

    static constexpr std::int64_t run_bytes(std::int64_t count, std::int64_t bitmap_bytes) {
        return (has_bitmap(count, bitmap_bytes) ? bitmap_bytes : count * Types::kChildBytes) +
               count * Types::kWeightBytes;
    }

    WideBlock(std::span<const std::uint8_t> bytes, std::int64_t chunk_bitmap_bytes, std::int64_t level_words)
        : bitmap_bytes(chunk_bitmap_bytes) {
        const std::int64_t claimed = Types::chunk_count(bytes);
        const std::int64_t head = runs_offset(claimed, level_words);
        if (head > static_cast<std::int64_t>(bytes.size())) return;
        n = claimed;
        chunk_words = has_chunk_bits(n, level_words) ? level_words : 0;
        chunks = bytes.data() + Types::kIdBytes;
        if (chunk_words > PackedFormat::kMaxUnrankedWords) {
            ranks = chunks;
            chunks += rank_bytes(level_words);
        }
        runs = bytes.data() + head;
        counts = bytes.data() + counts_offset(n, level_words);
        sums = bytes.data() + sums_offset(n, level_words);
        size = static_cast<std::int64_t>(bytes.size()) - head;
    }

    std::uint64_t chunk_word(std::int64_t w) const { return load<std::uint64_t>(chunks + 8 * w); }
    std::int64_t id(std::int64_t i) const { return load<typename Types::Id>(chunks + i * Types::kIdBytes); }
    std::int64_t count(std::int64_t i) const {
        return static_cast<std::int64_t>(load<typename Types::Child>(counts + i * Types::kChildBytes)) + 1;
    }
    // Returns the number of bytes in the runs before chunk step * kSumStep.
    std::int64_t run_bytes_before(std::int64_t step) const {
        return step == 0 ? 0 : std::int64_t{load<std::uint32_t>(sums + 4 * (step - 1))};
    }
    // Returns the offset of the i-th chunk's run. `sums` contains the offset of every kSumStep-th run; the sizes of the
    // runs between that run and the i-th one are added.
    std::int64_t run_offset(std::int64_t i) const {
        std::int64_t offset = run_bytes_before(i / kSumStep);
        for (std::int64_t previous = i / kSumStep * kSumStep; previous < i; ++previous)
            offset += run_bytes(count(previous), bitmap_bytes);
        return offset;
    }
    // Returns the i-th chunk's run, given its offset, or an empty run if it would extend beyond the block.
    [[gnu::always_inline]] WideRun run(std::int64_t i, std::int64_t offset) const {
        const std::int64_t k = count(i);
        if (offset + run_bytes(k, bitmap_bytes) > size) return {runs, runs, 0, false};
        const bool bitmap = has_bitmap(k, bitmap_bytes);
        const std::uint8_t* nodes = runs + offset;
        return {nodes, nodes + (bitmap ? bitmap_bytes : k * Types::kChildBytes), k, bitmap};
    }

    // Returns whether the bit of a chunk is set.
    bool has_chunk(std::int64_t chunk) const { return (chunk_word(chunk / 64) >> chunk % 64 & 1) != 0; }
    // Returns the index of a chunk whose bit is set, in a block with ranks. In a damaged block, the index may be wrong.
    // There are no branches, because a search calls this function for chunks in random order.
    std::int64_t ranked_index(std::int64_t chunk) const {
        const std::int64_t group = chunk / (64 * kGroupWords);
        std::int64_t index = load<std::uint16_t>(ranks + 2 * group);
        const std::int64_t bits = chunk % (64 * kGroupWords);  // number of bits before the chunk's own bit
        // The last group can have fewer words; the bytes that are read instead are part of the block and are masked.
        for (std::int64_t w = 0; w < kGroupWords; ++w) {
            const std::int64_t count = std::clamp<std::int64_t>(bits - 64 * w, 0, 64);
            const std::uint64_t mask = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
            index += __builtin_popcountll(chunk_word(group * kGroupWords + w) & mask);
        }
        return index;
    }

    // Returns the number of set bits, which equals the number of chunks in a valid block.
    std::int64_t bit_count() const {
        std::int64_t out = 0;
        for (std::int64_t w = 0; w < chunk_words; ++w) out += __builtin_popcountll(chunk_word(w));
        return out;
    }

    // Calls body(i, chunk) for each chunk in ascending order until body returns false.
    template <class Body>
    void for_each_chunk(const Body& body) const {
        std::int64_t i = 0;
        if (chunk_words == 0) {
            for (; i < n; ++i)
                if (!body(i, id(i))) return;
        } else {
            for (std::int64_t w = 0; w < chunk_words; ++w)
                for (std::uint64_t remaining = chunk_word(w); remaining; remaining &= remaining - 1, ++i)
                    if (i == n || !body(i, 64 * w + __builtin_ctzll(remaining))) return;
        }
    }
};

}  // namespace
}  // namespace carya
