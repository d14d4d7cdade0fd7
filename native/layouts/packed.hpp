// The weights of a layer as they are saved, mapped and searched: feature by feature, in as few bytes as they need.
//
// Siblings stand together, in chunks. A feature's weights are one block of bytes, without alignment:
//
//     n            how many chunks it has weights in, less one     Id
//
// A *narrow* block, with weights in at most 7 chunks, goes on with
//
//     chunk[n]     which, ascending                                Id each
//     child[m]     the place of each weighted node in its chunk    Child each, ascending in a chunk; the highest bit is
//                                                                  set in the last of each chunk
//  or map[n]       of each chunk which nodes are weighted          a bit a node, in whole pairs of bytes
//     weight[m]    the weights                                     float32, float16, or int8 q for q |q| times the
//                                                                  chunk's scale
//
// and a *wide* one with what lets a search skip most of it:
//
//     chunk[n]     which                                           Id each
//  or bit[]        for each chunk of the level whether it has any  in whole words of 64; in levels of at most 1,024
//                                                                  chunks, where that takes no more bytes
//     sum[]        how many bytes of runs stand before the chunks  4 bytes each
//                  32, 64, … of these, counted from 0
//     count[n]     how many weights in each chunk, less one        Child each
//     run[n]       of each chunk child[] or map, then weight[]
//
// Id has 1 byte up to 256 chunks, 2 up to 65,536, else 4, and none at all (n and chunk are left out, and no child is
// marked as the last) if there is but one chunk. Of a level with few chunks and few nodes a beam wants nearly all: its
// blocks are *whole*, as if all nodes were of one chunk, and only scales are still a chunk's own. Child has 1, 2 or 4,
// as the largest chunk needs; m follows from the size of a narrow block. Narrow blocks, and runs of wide ones, have
// maps where those take no more bytes than children: then one instruction adds 16 weights. A feature without weights
// has no bytes. What a query needs of a rare feature lies in one or two cache lines, and most runs do in one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../matrix.hpp"

namespace carya {

enum class Precision : int { float32, float16, int8 };

int bytes_of(Precision precision);

// The sizes of a packed layer's parts, which follow from the tree.
struct PackedForm {
    int id_bytes = 2;  // 0 if there is one chunk
    int child_bytes = 1;
    int map_bytes = 0;   // of one chunk; 0 if chunks are too large for maps
    int words = 0;       // of 64 bits, one for each chunk; 0 if blocks always have ids
    bool whole = false;  // blocks take all nodes of the level for one chunk
    Precision precision = Precision::float32;

    static constexpr std::int64_t kMostWords = 16;

    static PackedForm of(std::span<const std::int64_t> chunks, Precision precision);
};

// Where the blocks of 28 features lie, in one cache line: each block begins `within` bytes behind `base`, and ends
// where the next one begins. Few blocks are large; those lie behind all others, and where they would be stand their
// offset and their size.
struct StartLine {
    static constexpr std::uint32_t kFeatures = 28;

    std::int64_t base;
    std::uint16_t within[kFeatures];
};
static_assert(sizeof(StartLine) == 64);

// Lines as they are saved, as an array of 16-bit numbers that is aligned to 8 bytes.
inline std::span<const StartLine> start_lines(const std::uint16_t* numbers, std::size_t count) {
    return {reinterpret_cast<const StartLine*>(numbers), count * sizeof(std::uint16_t) / sizeof(StartLine)};
}

// Where one block lies. Of a large one, where it says so.
struct BlockPlace {
    std::int64_t begin;
    std::int64_t end;
    bool large;
    bool mapped;
};

struct BlockStarts {
    static constexpr std::int64_t kMostBytes = 584;  // of a block that is not large: 28 of them stay below 2^14
    // Bits of `within`.
    static constexpr std::uint16_t kLarge = 0x8000;
    static constexpr std::uint16_t kMapped = 0x4000;  // is narrow and has maps
    static constexpr std::uint16_t kOffset = 0x3FFF;

    std::span<const StartLine> lines;  // features / 28 + 1: the entry behind the last feature says where blocks end
    std::int64_t features = 0;

    [[gnu::always_inline]] const StartLine& line(std::int64_t feature) const {
        return lines[static_cast<std::uint32_t>(feature) / StartLine::kFeatures];
    }

    [[gnu::always_inline]] BlockPlace operator[](std::int64_t feature) const {
        const auto number = static_cast<std::uint32_t>(feature);  // a division of 32 bits is a multiplication
        const std::uint32_t slot = number % StartLine::kFeatures;
        const StartLine& here = lines[number / StartLine::kFeatures];
        const std::uint16_t within = here.within[slot];
        const std::int64_t end =
            slot + 1 < StartLine::kFeatures ? here.base + (here.within[slot + 1] & kOffset) : (&here)[1].base;
        return {here.base + (within & kOffset), end, (within & kLarge) != 0, (within & kMapped) != 0};
    }
};

struct PackedView {
    BlockStarts starts;
    std::span<const std::uint8_t> data;
    std::span<const float> scales;  // one a chunk for int8, else none
    PackedForm form;

    std::int64_t features() const { return starts.features; }

    // The bytes of a block. A large block that does not lie in the data is empty.
    std::span<const std::uint8_t> block(const BlockPlace& place) const;

    // Throws std::invalid_argument unless starts grow from 0 to at most the size of the data and there are as many
    // scales as needed. What stands in the blocks may be anything: whoever reads them stays inside them.
    void check(std::int64_t chunks, const char* name) const;
};

struct Packed {
    std::vector<StartLine> lines;
    std::int64_t features = 0;
    std::vector<std::uint8_t> data;
    std::vector<float> scales;
    PackedForm form;

    PackedView view() const { return {{lines, features}, data, scales, form}; }
};

// From weights of features x positions, which must have passed CsrView::check.
Packed pack(const CsrView& weights, std::span<const std::int64_t> chunks, Precision precision, int threads);

// And back. Throws std::invalid_argument if a block is not as described above.
Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks);

// Only some positions, ascending: features x those. Takes the time to pass over all blocks, and the memory of the
// answer. Throws std::invalid_argument as unpack does, as far as it looks, and for what is no position.
Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks, std::span<const std::int32_t> positions);

// The weights of some features at one position, 0 where there is none. Throws as above, and for what is no feature.
std::vector<float> weights_at(const PackedView& packed, std::span<const std::int64_t> chunks,
                              std::span<const std::int32_t> features, std::int32_t position);

}  // namespace carya
