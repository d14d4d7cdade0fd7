// Reads and validates all weights of packed blocks, or those at selected positions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "chunk_runs.hpp"
#include "packed_weights.hpp"

namespace carya {

// The assignment of positions to chunks. If blocks are merged, all positions are in one chunk, but each original chunk
// keeps its scale.
class ChunkAssignment {
public:
    ChunkAssignment(const PackedFormat& format, std::span<const std::int64_t> chunks)
        : all_{0, chunks.back()}, chunks_(chunks), merged_(format.merged), chunk_of_(chunk_of_position(chunks)) {
        if (merged_) merged_chunk_of_.assign(chunk_of_.size(), 0);
    }

    std::span<const std::int64_t> chunks() const { return merged_ ? std::span<const std::int64_t>(all_) : chunks_; }
    // Returns the chunk of each position.
    const std::vector<std::int32_t>& chunk_of() const { return merged_ ? merged_chunk_of_ : chunk_of_; }
    // Returns the original chunk of each position, which determines its scale.
    const std::vector<std::int32_t>& scale_chunk_of() const { return chunk_of_; }

private:
    std::int64_t all_[2];
    std::span<const std::int64_t> chunks_;
    bool merged_;
    std::vector<std::int32_t> chunk_of_;
    std::vector<std::int32_t> merged_chunk_of_;
};

// The positions to unpack: all positions, or selected positions, which become columns 0, 1, ….
class PositionFilter {
public:
    PositionFilter() = default;

    PositionFilter(const ChunkAssignment& assignment, std::span<const std::int32_t> positions)
        : all_(false), columns_(assignment.chunk_of().size(), -1), chunk_included_(assignment.chunks().size() - 1, 0) {
        for (std::size_t i = 0; i < positions.size(); ++i) {
            const std::int64_t position = positions[i];
            if (position < 0 || position >= static_cast<std::int64_t>(columns_.size()))
                throw std::invalid_argument("positions must be >= 0 and less than the number of nodes.");
            if (i > 0 && position <= positions[i - 1])
                throw std::invalid_argument("positions must be strictly increasing.");
            columns_[position] = static_cast<std::int32_t>(i);
            chunk_included_[assignment.chunk_of()[position]] = 1;
        }
    }

    bool includes_chunk(std::int64_t chunk) const { return all_ || chunk_included_[chunk] != 0; }
    // Returns the column of a position, or -1 if the position is not selected.
    std::int32_t column(std::int64_t position) const {
        return all_ ? static_cast<std::int32_t>(position) : columns_[position];
    }

private:
    bool all_ = true;
    std::vector<std::int32_t> columns_;         // per position
    std::vector<std::uint8_t> chunk_included_;  // per chunk
};

// Called as sink(column, chunk, bytes) for each weight, where `chunk` is the weight's original chunk.
using WeightSink = std::function<void(std::int32_t, std::int32_t, const std::uint8_t*)>;

// Reads the blocks of features and passes each weight at a selected position to a sink. In wide blocks, chunks without
// selected positions are skipped.
class BlockReader {
public:
    // The arguments must outlive the reader.
    static std::unique_ptr<BlockReader> create(const PackedView& packed, const ChunkAssignment& assignment,
                                               const PositionFilter& filter, const WeightSink& sink);
    virtual ~BlockReader() = default;

    // Throws std::invalid_argument if the block is invalid.
    virtual void read(std::int64_t feature) = 0;
};

}  // namespace carya
