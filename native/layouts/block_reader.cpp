#include "block_reader.hpp"

#include <bit>
#include <string>

#include "block_types.hpp"

namespace carya {

namespace {

template <class Types>
class TypedBlockReader : public BlockReader {
    using Child = typename Types::Child;

public:
    TypedBlockReader(const PackedView& packed, const ChunkAssignment& assignment, const PositionFilter& filter,
                     const WeightSink& sink)
        : packed_(packed), assignment_(assignment), chunks_(assignment.chunks()), filter_(filter), sink_(sink) {}

    void read(std::int64_t feature) override {
        feature_ = feature;
        previous_ = -1;
        const BlockLocation location = packed_.starts[feature];
        const std::span<const std::uint8_t> bytes = packed_.block(location);
        if (bytes.empty()) {
            require(!location.is_large);
            return;
        }
        if constexpr (!Types::kSingleChunk) {
            if (Types::chunk_count(bytes) >= kMinWideChunks) {
                require(!location.has_bitmaps);
                return read_wide(bytes);
            }
        }
        read_narrow(bytes, location.has_bitmaps);
    }

private:
    void require(bool holds) const {
        if (!holds) throw std::invalid_argument("The block of feature " + std::to_string(feature_) + " is invalid.");
    }

    bool is_chunk(std::int64_t chunk) const { return chunk < static_cast<std::int64_t>(chunks_.size()) - 1; }

    void read_narrow(std::span<const std::uint8_t> bytes, bool has_bitmaps) {
        require(!has_bitmaps || packed_.format.bitmap_bytes > 0);
        const NarrowBlock<Types> block(bytes, has_bitmaps ? packed_.format.bitmap_bytes : 0);
        require(block.n > 0);
        std::int64_t e = 0;
        for (std::int64_t i = 0; i < block.n; ++i) {
            const std::int64_t chunk = block.chunk(i);
            require(is_chunk(chunk));
            if (has_bitmaps) {
                e += read_bitmap(chunk, block.children + i * block.bitmap_bytes,
                                 block.weights + e * Types::kWeightBytes, block.m - e);
                continue;
            }
            for (bool more = true; more; ++e) {
                require(e < block.m);
                const auto child = load<Child>(block.children + e * Types::kChildBytes);
                read_weight(chunk, static_cast<Child>(child & ~Types::kLastChild),
                            block.weights + e * Types::kWeightBytes);
                more = Types::kSingleChunk ? e + 1 < block.m : !block.is_last(e);
            }
        }
        require(e == block.m);
    }

    void read_wide(std::span<const std::uint8_t> bytes) {
        using Wide = WideBlock<Types>;
        const Wide block(bytes, packed_.format.bitmap_bytes, packed_.format.chunk_words);
        require(block.n > 0 && (block.chunk_words == 0 || block.bit_count() == block.n));
        std::int64_t offset = 0;
        block.for_each_chunk([&](std::int64_t i, std::int64_t chunk) {
            require(is_chunk(chunk) && (block.ranks == nullptr || block.ranked_index(chunk) == i) &&
                    (i % Wide::kSumStep != 0 || block.run_bytes_before(i / Wide::kSumStep) == offset));
            const WideRun run = block.run(i, offset);
            require(run.count > 0);
            if (filter_.includes_chunk(chunk)) read_run(chunk, run);
            offset += Wide::run_bytes(run.count, block.bitmap_bytes);
            return true;
        });
        require(offset == block.size);
    }

    void read_run(std::int64_t chunk, const WideRun& run) {
        if (run.has_bitmap) {
            require(read_bitmap(chunk, run.nodes, run.weights, run.count) == run.count);
            return;
        }
        for (std::int64_t e = 0; e < run.count; ++e)
            read_weight(chunk, static_cast<std::int64_t>(load<Child>(run.nodes + e * Types::kChildBytes)),
                        run.weights + e * Types::kWeightBytes);
    }

    // Reads the weights marked in a bitmap and returns their number, which must not exceed `maximum`.
    std::int64_t read_bitmap(std::int64_t chunk, const std::uint8_t* map, const std::uint8_t* weights,
                             std::int64_t maximum) {
        std::int64_t e = 0;
        for (std::int64_t line = 0; line < packed_.format.bitmap_bytes / 2; ++line)
            for (std::uint32_t remaining = load<std::uint16_t>(map + 2 * line); remaining;
                 remaining &= remaining - 1, ++e) {
                require(e < maximum);
                read_weight(chunk, 16 * line + std::countr_zero(remaining), weights + e * Types::kWeightBytes);
            }
        return e;
    }

    void read_weight(std::int64_t chunk, std::int64_t child, const std::uint8_t* weight) {
        const std::int64_t position = chunks_[chunk] + child;
        require(position > previous_ && position < chunks_[chunk + 1]);
        previous_ = position;
        const std::int32_t column = filter_.column(position);
        if (column >= 0) sink_(column, assignment_.scale_chunk_of()[position], weight);
    }

    const PackedView& packed_;
    const ChunkAssignment& assignment_;
    std::span<const std::int64_t> chunks_;
    const PositionFilter& filter_;
    const WeightSink& sink_;
    std::int64_t feature_ = 0;
    std::int64_t previous_ = -1;  // the position of the previous weight in the block
};

}  // namespace

std::unique_ptr<BlockReader> BlockReader::create(const PackedView& packed, const ChunkAssignment& assignment,
                                                 const PositionFilter& filter, const WeightSink& sink) {
    std::unique_ptr<BlockReader> reader;
    dispatch_format(packed.format, [&]<class Types>() {
        reader = std::make_unique<TypedBlockReader<Types>>(packed, assignment, filter, sink);
    });
    return reader;
}

}  // namespace carya
