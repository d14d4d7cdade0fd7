// Writing of packed blocks: their sizes, contents and locations.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "block_types.hpp"
#include "packed_blocks.hpp"
#include "packed_weights.hpp"

namespace carya {
namespace {  // private to each file, like the types of blocks

template <class T>
inline std::uint8_t* append(std::uint8_t* to, T value) {
    std::memcpy(to, &value, sizeof(T));
    return to + sizeof(T);
}

inline void set_bit(std::uint8_t* bits, std::int64_t bit) {
    bits[bit / 8] = static_cast<std::uint8_t>(bits[bit / 8] | 1U << bit % 8);
}

// The weights of one feature in one chunk.
struct Run {
    std::int64_t chunk;
    std::int64_t count;
    const std::uint32_t* children;
    const std::uint8_t* values;
};

// The size and format of a feature's block, and the number of chunks and weights written so far.
struct Block {
    std::uint32_t chunks = 0;
    std::uint32_t weights = 0;
    std::int64_t mixed_bytes = 0;  // bytes of child ids or bitmaps, whichever is smaller for each run
    std::uint32_t chunks_written = 0;
    std::uint32_t weights_written = 0;
    std::int32_t last_group = -1;  // in a wide block with ranks, the group of the last chunk that was written
    std::uint8_t* bytes = nullptr;
    std::uint8_t* next_run = nullptr;  // in a wide block

    // Adds a run with `n` weights.
    void count(std::uint32_t n, const PackedFormat& format) {
        chunks = format.id_bytes > 0 ? chunks + 1 : 1;
        weights += n;
        mixed_bytes += prefers_bitmap(n, format.child_bytes, format.bitmap_bytes)
                           ? format.bitmap_bytes
                           : std::int64_t{n} * format.child_bytes;
    }

    bool is_wide() const { return chunks >= kMinWideChunks; }
    bool has_bitmaps(const PackedFormat& format) const {
        return !is_wide() && prefers_bitmap(weights, format.child_bytes, std::int64_t{chunks} * format.bitmap_bytes);
    }
    std::int64_t node_bytes(const PackedFormat& format) const {
        if (is_wide()) return mixed_bytes;
        return has_bitmaps(format) ? std::int64_t{chunks} * format.bitmap_bytes
                                   : std::int64_t{weights} * format.child_bytes;
    }
    template <class Types>
    std::int64_t size(const PackedFormat& format) const {
        if (weights == 0) return 0;
        const std::int64_t head = is_wide() ? WideBlock<Types>::runs_offset(chunks, format.chunk_words)
                                            : (1 + std::int64_t{chunks}) * Types::kIdBytes;
        return head + node_bytes(format) + std::int64_t{weights} * weight_bytes(format.dtype);
    }
};

// Types of the components of a block other than the weights. Packing copies weights without interpreting them, so their
// size is not a compile-time constant here. This requires only a third as many template instantiations as in the
// kernels.
template <class Id, class Child>
using IndexTypes = BlockTypes<Id, Child, std::uint8_t>;

// Appends runs to zero-initialized blocks. The runs of a feature must be appended in ascending order of their chunks.
template <class Types>
class BlockWriter {
    using Child = typename Types::Child;
    using Wide = WideBlock<Types>;

public:
    explicit BlockWriter(const PackedFormat& format) : format_(format), weight_bytes_(weight_bytes(format.dtype)) {}

    void write(Block& block, const Run& run) const {
        if constexpr (!Types::kSingleChunk) {
            if (block.chunks_written == 0) append(block.bytes, static_cast<typename Types::Id>(block.chunks - 1));
            if (block.is_wide()) return write_wide(block, run);
        }
        write_narrow(block, run);
    }

private:
    void write_narrow(Block& block, const Run& run) const {
        const std::int64_t written = block.weights_written;
        const bool has_bitmaps = block.has_bitmaps(format_);
        std::uint8_t* const ids = block.bytes + Types::kIdBytes;
        std::uint8_t* const nodes = ids + block.chunks * Types::kIdBytes;
        if constexpr (!Types::kSingleChunk)
            append(ids + block.chunks_written * Types::kIdBytes, static_cast<typename Types::Id>(run.chunk));
        append_nodes(nodes + (has_bitmaps ? block.chunks_written * std::int64_t{format_.bitmap_bytes}
                                          : written * Types::kChildBytes),
                     run, has_bitmaps, Types::kLastChild);
        append_values(nodes + block.node_bytes(format_) + written * weight_bytes_, run);
        if constexpr (!Types::kSingleChunk) ++block.chunks_written;
        block.weights_written += static_cast<std::uint32_t>(run.count);
    }

    void write_wide(Block& block, const Run& run) const {
        const std::int64_t n = block.chunks;
        const std::int64_t i = block.chunks_written++;
        std::uint8_t* const runs = block.bytes + Wide::runs_offset(n, format_.chunk_words);
        if (i == 0) block.next_run = runs;
        std::uint8_t* const ids = block.bytes + Types::kIdBytes;
        if (Wide::has_chunk_bits(n, format_.chunk_words))
            set_chunk_bit(block, ids, run.chunk, i);
        else
            append(ids + i * Types::kIdBytes, static_cast<typename Types::Id>(run.chunk));
        if (i > 0 && i % Wide::kSumStep == 0)
            append(block.bytes + Wide::sums_offset(n, format_.chunk_words) + (i / Wide::kSumStep - 1) * 4,
                   static_cast<std::uint32_t>(block.next_run - runs));
        append(block.bytes + Wide::counts_offset(n, format_.chunk_words) + i * Types::kChildBytes,
               static_cast<Child>(run.count - 1));
        block.next_run = append_nodes(block.next_run, run, Wide::has_bitmap(run.count, format_.bitmap_bytes), Child{0});
        block.next_run = append_values(block.next_run, run);
    }

    // Sets the bit of the i-th chunk; the first chunk of a group also determines the rank of the group.
    void set_chunk_bit(Block& block, std::uint8_t* ids, std::int64_t chunk, std::int64_t i) const {
        const std::int64_t rank_bytes = Wide::rank_bytes(format_.chunk_words);
        set_bit(ids + rank_bytes, chunk);
        const auto group = static_cast<std::int32_t>(chunk / (64 * Wide::kGroupWords));
        if (rank_bytes == 0 || group == block.last_group) return;
        append(ids + 2 * std::int64_t{group}, static_cast<std::uint16_t>(i));
        block.last_group = group;
    }

    // Appends the nodes of one chunk. The bits of `last` are set in the last child id.
    std::uint8_t* append_nodes(std::uint8_t* to, const Run& run, bool has_bitmaps, Child last) const {
        if (has_bitmaps) {
            for (std::int64_t e = 0; e < run.count; ++e) set_bit(to, run.children[e]);
            return to + format_.bitmap_bytes;
        }
        for (std::int64_t e = 0; e + 1 < run.count; ++e) to = append(to, static_cast<Child>(run.children[e]));
        return append(to, static_cast<Child>(static_cast<Child>(run.children[run.count - 1]) | last));
    }

    std::uint8_t* append_values(std::uint8_t* to, const Run& run) const {
        const std::int64_t bytes = run.count * weight_bytes_;
        for (std::int64_t i = 0; i < bytes; ++i) to[i] = run.values[i];  // faster than calling memcpy for few bytes
        return to + bytes;
    }

    const PackedFormat& format_;
    const std::int64_t weight_bytes_;
};

// Computes the start offsets of all blocks and allocates their memory. `size_of` and `has_bitmaps` return the size and
// the format of a feature's block; `set_bytes` receives its location, at which the block must be written.
template <class SizeOf, class HasBitmaps, class SetBytes>
void place_blocks(Packed& out, std::int64_t features, const SizeOf& size_of, const HasBitmaps& has_bitmaps,
                  const SetBytes& set_bytes) {
    std::int64_t used = 0;
    std::int64_t large_bytes = 0;
    for (std::int64_t f = 0; f <= features; ++f) {
        if (f % StartLine::kFeatures == 0) out.lines.push_back({used, {}});
        std::uint16_t& entry = out.lines.back().offsets[f % StartLine::kFeatures];
        entry = static_cast<std::uint16_t>(used - out.lines.back().base);
        if (f == features) break;
        const std::int64_t size = size_of(f);
        if (size > std::numeric_limits<std::uint32_t>::max())
            throw std::invalid_argument("The weights of feature " + std::to_string(f) + " exceed the limit of 4 GiB.");
        if (has_bitmaps(f)) entry |= BlockStarts::kBitmapFlag;
        if (size > BlockStarts::kMaxInlineBytes) {
            entry |= BlockStarts::kLargeFlag;
            used += 2 * static_cast<std::int64_t>(sizeof(std::uint64_t));
            large_bytes += size;
        } else {
            used += size;
        }
    }
    out.data.resize(used + large_bytes);
    const BlockStarts starts{out.lines, features};
    std::int64_t next = used;
    for (std::int64_t f = 0; f < features; ++f) {
        const BlockLocation location = starts[f];
        std::uint8_t* bytes = out.data.data() + location.begin;
        if (location.is_large) {
            const std::int64_t size = size_of(f);
            std::uint8_t* to = append(bytes, static_cast<std::uint64_t>(next));
            append(to, static_cast<std::uint64_t>(size));
            bytes = out.data.data() + next;
            next += size;
        }
        set_bytes(f, bytes);
    }
}

}  // namespace
}  // namespace carya
