// The packed weights of a layer, in the format in which they are saved, memory-mapped and searched: one compact block
// of bytes per feature. See docs/format.md for the specification.
//
// The children of one parent form a *chunk*; their positions are adjacent. Blocks are not aligned. A block starts with
//
//     n            number of chunks with weights, minus 1          Id
//
// A *narrow* block, with weights in at most 7 chunks, continues with
//
//     chunk[n]     ids of the chunks, ascending                    Id each
//     child[m]     the index of each weight's node in its chunk,   Child each; the highest bit marks the last child of
//                  ascending within a chunk                        each chunk
//  or bitmap[n]    the nodes of each chunk that have a weight      one bit per node, rounded up to whole 16-bit words
//     weight[m]    the weights                                     float32, float16, or int8: q represents q |q| times
//                                                                  the chunk's scale
//
// A *wide* block, in which a search can skip most of the chunks, continues with
//
//     chunk[n]     ids of the chunks, ascending                    Id each
//  or rank[]       number of chunks with weights before every      2 bytes each; only in levels with more than 1,024
//                  512th chunk of the level                        chunks
//     bit[]        the chunks of the level that have weights       one bit per chunk, in 64-bit words; used in levels
//                                                                  with at most 65,536 chunks if ranks and bits take
//                                                                  no more bytes than ids
//     sum[]        total bytes of the runs before chunks 32, 64,   4 bytes each
//                  … of the block
//     count[n]     number of weights in each chunk, minus 1        Child each
//     run[n]       child[] or bitmap, then weight[], per chunk
//
// An Id takes 1 byte if the level has at most 256 chunks, 2 bytes if it has at most 65,536, and 4 bytes otherwise. If
// the level has a single chunk, `n` and `chunk` are omitted, and no child is marked as the last. If a level has few
// chunks and few nodes, a beam covers almost all of its nodes. The blocks of such a level are *merged*: they are
// written as if all nodes were in one chunk, except that each original chunk keeps its scale. A Child takes 1, 2 or 4
// bytes, depending on the size of the largest chunk; m is derived from the size of a narrow block. Narrow blocks and
// the runs of wide blocks use bitmaps if these take no more bytes than child ids, because one instruction can then add
// 16 weights. A feature without weights has an empty block. A query reads one or two cache lines per rare feature, and
// one cache line for most runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../core/matrix.hpp"
#include "quantization.hpp"

namespace carya {

// Sizes of the components of a block, which depend on the tree and the data type.
struct PackedFormat {
    int id_bytes = 2;  // 0 for a single chunk
    int child_bytes = 1;
    int bitmap_bytes = 0;  // per chunk; 0 if chunks are too large for bitmaps
    int chunk_words = 0;   // 64-bit words with one bit per chunk; 0 if blocks always have ids
    bool merged = false;   // all nodes of the level are written as one chunk
    WeightDtype dtype = WeightDtype::float32;

    static constexpr std::int64_t kMaxUnrankedWords = 16;  // blocks with more chunk words also contain ranks
    static constexpr std::int64_t kMaxBitChunks = 0x10000;

    // Blocks of levels with more than `max_bit_chunks` chunks have ids.
    static PackedFormat of(std::span<const std::int64_t> chunks, WeightDtype dtype,
                           std::int64_t max_bit_chunks = kMaxBitChunks);
};

// The start offsets of the blocks of 28 features, in one cache line. A block starts at base + offset and ends where the
// next block starts. The few large blocks are stored after all other blocks; in its original place, each of them is
// replaced with 16 bytes that contain its offset and size.
struct StartLine {
    static constexpr std::uint32_t kFeatures = 28;

    std::int64_t base;
    std::uint16_t offsets[kFeatures];
};
static_assert(sizeof(StartLine) == 64);

// Returns a view of saved start lines. They are an array of 16-bit integers, which must be aligned to 8 bytes.
inline std::span<const StartLine> start_lines(const std::uint16_t* values, std::size_t count) {
    return {reinterpret_cast<const StartLine*>(values), count * sizeof(std::uint16_t) / sizeof(StartLine)};
}

// The location of one block; for a large block, the location of its offset and size.
struct BlockLocation {
    std::int64_t begin;
    std::int64_t end;
    bool is_large;
    bool has_bitmaps;
};

struct BlockStarts {
    // Blocks above this size are large. 28 blocks of this size take less than 2^14 bytes.
    static constexpr std::int64_t kMaxInlineBytes = 584;
    // Flags in StartLine::offsets, and the mask for the offset itself.
    static constexpr std::uint16_t kLargeFlag = 0x8000;
    static constexpr std::uint16_t kBitmapFlag = 0x4000;  // a narrow block with bitmaps
    static constexpr std::uint16_t kOffsetMask = 0x3FFF;

    // There are features / 28 + 1 lines. The entry after the last feature is the end of the last block.
    std::span<const StartLine> lines;
    std::int64_t features = 0;

    [[gnu::always_inline]] const StartLine& line_of(std::int64_t feature) const {
        return lines[static_cast<std::uint32_t>(feature) / StartLine::kFeatures];
    }

    [[gnu::always_inline]] BlockLocation operator[](std::int64_t feature) const {
        // For 32-bit operands, the compiler replaces the division with a multiplication.
        const auto index = static_cast<std::uint32_t>(feature);
        const std::uint32_t slot = index % StartLine::kFeatures;
        const StartLine& line = lines[index / StartLine::kFeatures];
        const std::uint16_t entry = line.offsets[slot];
        const std::int64_t end =
            slot + 1 < StartLine::kFeatures ? line.base + (line.offsets[slot + 1] & kOffsetMask) : (&line)[1].base;
        return {line.base + (entry & kOffsetMask), end, (entry & kLargeFlag) != 0, (entry & kBitmapFlag) != 0};
    }
};

struct PackedView {
    BlockStarts starts;
    std::span<const std::uint8_t> data;
    std::span<const float> scales;  // one per chunk for int8, otherwise empty
    PackedFormat format;

    std::int64_t features() const { return starts.features; }

    // Returns the bytes of a block, or an empty span for a large block outside the data.
    std::span<const std::uint8_t> block(const BlockLocation& location) const;

    // Throws std::invalid_argument unless the offsets of the blocks start at 0, never decrease and do not exceed the
    // size of the data, the number of scales is correct, and all scales are finite. Blocks may contain arbitrary bytes;
    // readers never access memory outside a block.
    void check(std::int64_t chunks, const char* name) const;
};

struct Packed {
    std::vector<StartLine> lines;
    std::int64_t features = 0;
    RawVector<std::uint8_t> data;
    std::vector<float> scales;
    PackedFormat format;
    std::int64_t n_weights = 0;
    std::int64_t n_used = 0;  // number of features with weights

    PackedView view() const { return {{lines, features}, data, scales, format}; }
};

// Unpacks all weights. Throws std::invalid_argument if a block is invalid.
Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks);

// Unpacks the weights at the given ascending positions into a matrix of shape (features, given positions). Reads all
// blocks, but allocates memory only for the result. Throws std::invalid_argument if a position does not exist or a
// visited block is invalid.
Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks, std::span<const std::int32_t> positions);

// Returns the number of weights in each chunk. Throws std::invalid_argument if a block is invalid.
std::vector<std::int64_t> chunk_weight_counts(const PackedView& packed, std::span<const std::int64_t> chunks);

// Returns the weights of the given features at one position, with 0 for missing weights. Throws std::invalid_argument
// if a feature or the position does not exist or if a block is invalid.
std::vector<float> weights_at(const PackedView& packed, std::span<const std::int64_t> chunks,
                              std::span<const std::int32_t> features, std::int32_t position);

}  // namespace carya
