#include "packed_weights.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "block_reader.hpp"
#include "packed_blocks.hpp"

namespace carya {

namespace {

// Maximum numbers of chunks and nodes in a level with merged blocks.
constexpr std::size_t kMaxMergedChunks = 16;
constexpr std::int64_t kMaxMergedNodes = 512;

}  // namespace

PackedFormat PackedFormat::of(std::span<const std::int64_t> chunks, WeightDtype dtype, std::int64_t max_bit_chunks) {
    PackedFormat format;
    format.dtype = dtype;
    const std::size_t count = chunks.size() - 1;
    format.merged = count > 1 && count <= kMaxMergedChunks && chunks.back() <= kMaxMergedNodes;
    format.id_bytes = count <= 1 || format.merged ? 0 : count <= 0x100 ? 1 : count <= 0x10000 ? 2 : 4;
    std::int64_t largest = 0;
    for (std::size_t c = 0; c + 1 < chunks.size(); ++c) largest = std::max(largest, chunks[c + 1] - chunks[c]);
    if (format.merged) largest = chunks.back();
    // One bit marks the last child of a chunk, unless there is only a single chunk.
    const int flag_bits = format.id_bytes > 0 ? 1 : 0;
    format.child_bytes = largest <= 0x100 >> flag_bits ? 1 : largest <= 0x10000 >> flag_bits ? 2 : 4;
    format.bitmap_bytes = largest <= 0x8000 ? static_cast<int>((largest + 15) / 16 * 2) : 0;
    const bool can_have_bits = format.id_bytes > 0 && static_cast<std::int64_t>(count) <= max_bit_chunks;
    format.chunk_words = can_have_bits ? static_cast<int>((count + 63) / 64) : 0;
    return format;
}

std::span<const std::uint8_t> PackedView::block(const BlockLocation& location) const {
    return locate_block(location, data);
}

void PackedView::check(std::int64_t chunks, const char* name) const {
    const auto fail = [&](const char* problem) {
        throw std::invalid_argument(std::string(name) + " " + problem + ".");
    };
    if (features() < 0 || static_cast<std::int64_t>(starts.lines.size()) != features() / StartLine::kFeatures + 1)
        fail("must have one block per feature");
    const auto size = static_cast<std::int64_t>(data.size());
    if (std::any_of(starts.lines.begin(), starts.lines.end(),
                    [&](const StartLine& line) { return line.base < 0 || line.base > size; }))
        fail("has a block outside its data");
    std::int64_t end = 0;
    for (std::int64_t f = 0; f < features(); ++f) {
        const BlockLocation location = starts[f];
        if (location.begin != end || location.end < location.begin) fail("must have contiguous blocks");
        end = location.end;
    }
    if (end > size) fail("has a block outside its data");
    const std::int64_t n_scales = format.dtype == WeightDtype::int8 ? chunks : 0;
    if (static_cast<std::int64_t>(scales.size()) != n_scales) fail("has the wrong number of scales");
    if (!std::all_of(scales.begin(), scales.end(), [](float x) { return std::isfinite(x); }))
        fail("has a scale that is NaN or infinite");
}

namespace {

// Returns a sink that appends weights to a matrix.
WeightSink append_to(Csr& out, const PackedView& packed) {
    return [&](std::int32_t column, std::int32_t chunk, const std::uint8_t* weight) {
        const float scale = packed.scales.empty() ? 1.0F : packed.scales[chunk];
        out.indices.push_back(column);
        out.values.push_back(decode_weight(packed.format.dtype, weight) * scale);
    };
}

Csr unpack_filtered(const PackedView& packed, const ChunkAssignment& assignment, const PositionFilter& filter,
                    std::int64_t cols) {
    Csr out;
    out.cols = cols;
    const WeightSink sink = append_to(out, packed);
    const auto reader = BlockReader::create(packed, assignment, filter, sink);
    for (std::int64_t f = 0; f < packed.features(); ++f) {
        reader->read(f);
        out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
    }
    return out;
}

}  // namespace

Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks) {
    return unpack_filtered(packed, ChunkAssignment(packed.format, chunks), PositionFilter(), chunks.back());
}

Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks, std::span<const std::int32_t> positions) {
    const ChunkAssignment assignment(packed.format, chunks);
    const PositionFilter filter(assignment, positions);
    return unpack_filtered(packed, assignment, filter, static_cast<std::int64_t>(positions.size()));
}

std::vector<std::int64_t> chunk_weight_counts(const PackedView& packed, std::span<const std::int64_t> chunks) {
    const ChunkAssignment assignment(packed.format, chunks);
    const PositionFilter filter;
    std::vector<std::int64_t> counts(chunks.size() - 1);
    const WeightSink sink = [&](std::int32_t, std::int32_t chunk, const std::uint8_t*) { ++counts[chunk]; };
    const auto reader = BlockReader::create(packed, assignment, filter, sink);
    for (std::int64_t f = 0; f < packed.features(); ++f) reader->read(f);
    return counts;
}

std::vector<float> weights_at(const PackedView& packed, std::span<const std::int64_t> chunks,
                              std::span<const std::int32_t> features, std::int32_t position) {
    const ChunkAssignment assignment(packed.format, chunks);
    const PositionFilter filter(assignment, {&position, 1});
    std::vector<float> out;
    out.reserve(features.size());
    Csr block;
    const WeightSink sink = append_to(block, packed);
    const auto reader = BlockReader::create(packed, assignment, filter, sink);
    for (const std::int32_t feature : features) {
        if (feature < 0 || feature >= packed.features())
            throw std::invalid_argument("features must be >= 0 and less than the number of features.");
        block.indices.clear();
        block.values.clear();
        reader->read(feature);
        out.push_back(block.values.empty() ? 0.0F : block.values.front());
    }
    return out;
}

}  // namespace carya
