#include "packing.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "../core/parallel.hpp"
#include "block_reader.hpp"
#include "block_types.hpp"

namespace carya {

namespace {

constexpr int kRangesPerThread = 4;
constexpr std::int64_t kMaxRanges = 64;  // limited because each range reads the counts of all features before it

template <class T>
std::uint8_t* append(std::uint8_t* to, T value) {
    std::memcpy(to, &value, sizeof(T));
    return to + sizeof(T);
}

void set_bit(std::uint8_t* bits, std::int64_t bit) {
    bits[bit / 8] = static_cast<std::uint8_t>(bits[bit / 8] | 1U << bit % 8);
}

// The weights of one feature in one chunk.
struct Run {
    std::uint32_t feature;
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
    std::uint8_t* bytes = nullptr;
    std::uint8_t* next_run = nullptr;  // in a wide block

    void count(const Run& run, const PackedFormat& format) {
        chunks = format.id_bytes > 0 ? chunks + 1 : 1;
        weights += static_cast<std::uint32_t>(run.count);
        mixed_bytes += prefers_bitmap(run.count, format.child_bytes, format.bitmap_bytes)
                           ? format.bitmap_bytes
                           : run.count * format.child_bytes;
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
            set_bit(ids, run.chunk);
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

using RunBody = std::function<void(const Run&)>;

// A source of weights to pack.
class RunSource {
public:
    virtual ~RunSource() = default;

    virtual std::vector<float> scales() const = 0;
    // Calls body(run) for the runs of all features in [first, last). The runs of a feature are sorted by chunk.
    virtual void for_each_run(std::int64_t first, std::int64_t last, const PackedFormat& format,
                              const RunBody& body) const = 0;
};

// Trained weights, chunk by chunk.
class ChunkSource : public RunSource {
public:
    ChunkSource(std::span<const ChunkWeightsView> weights, std::span<const std::int64_t> chunks)
        : weights_(weights), chunks_(chunks) {}

    std::vector<float> scales() const override {
        std::vector<float> out;
        for (const ChunkWeightsView& chunk : weights_) out.push_back(chunk.scale);
        return out;
    }

    void for_each_run(std::int64_t first, std::int64_t last, const PackedFormat& format,
                      const RunBody& body) const override {
        RunReader reader;
        for (std::size_t chunk = 0; chunk < weights_.size(); ++chunk) {
            const ChunkWeightsView& weights = weights_[chunk];
            if (weights.features.empty()) continue;
            // If the nodes of all chunks are merged, children are numbered by position.
            const auto first_child = static_cast<std::uint32_t>(format.merged ? chunks_[chunk] : 0);
            if (weights.index_bytes == 1)
                reader.read<std::uint8_t>(weights, first, last, first_child, format.dtype);
            else if (weights.index_bytes == 2)
                reader.read<std::uint16_t>(weights, first, last, first_child, format.dtype);
            else
                reader.read<std::uint32_t>(weights, first, last, first_child, format.dtype);
            const std::uint32_t* children = reader.children.data();
            const std::uint8_t* values = reader.values;
            for (std::size_t i = 0; i < reader.counts.size(); ++i) {
                const std::int64_t count = reader.counts[i];
                body(Run{reader.features[i], static_cast<std::int64_t>(chunk), count, children, values});
                children += count;
                values += count * weight_bytes(format.dtype);
            }
        }
    }

private:
    // The runs of some features in one chunk, with counts and children as 32-bit integers.
    struct RunReader {
        std::span<const std::uint32_t> features;
        std::vector<std::uint32_t> counts;
        std::vector<std::uint32_t> children;
        const std::uint8_t* values = nullptr;

        template <class Index>
        void read(const ChunkWeightsView& weights, std::int64_t first, std::int64_t last, std::uint32_t first_child,
                  WeightDtype dtype) {
            const auto begin =
                std::lower_bound(weights.features.begin(), weights.features.end(), first) - weights.features.begin();
            const auto end = std::lower_bound(weights.features.begin() + begin, weights.features.end(), last) -
                             weights.features.begin();
            const auto index = [](const std::uint8_t* bytes, std::int64_t i) {
                Index value;
                std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(Index)), sizeof(Index));
                return std::uint32_t{value};
            };
            std::int64_t first_weight = begin;  // stored counts are one less than the number of weights
            for (std::int64_t i = 0; i < begin; ++i) first_weight += index(weights.counts.data(), i);
            features = weights.features.subspan(begin, end - begin);
            counts.resize(end - begin);
            std::int64_t n_weights = 0;
            for (std::int64_t i = begin; i < end; ++i) {
                counts[i - begin] = index(weights.counts.data(), i) + 1;
                n_weights += counts[i - begin];
            }
            children.resize(n_weights);
            const std::uint8_t* bytes =
                weights.children.data() + first_weight * static_cast<std::int64_t>(sizeof(Index));
            for (std::int64_t i = 0; i < n_weights; ++i) children[i] = first_child + index(bytes, i);
            values = weights.values.data() + first_weight * weight_bytes(dtype);
        }
    };

    std::span<const ChunkWeightsView> weights_;
    std::span<const std::int64_t> chunks_;
};

// Consecutive chunks of a packed layer, feature by feature.
class PackedSource : public RunSource {
public:
    // `chunks` contains the boundaries of all chunks of the packed layer; `kept_chunks` contains those of the chunks to
    // keep, starting at 0.
    PackedSource(const PackedView& packed, std::span<const std::int64_t> chunks, std::int64_t first_chunk,
                 std::span<const std::int64_t> kept_chunks)
        : packed_(packed),
          first_chunk_(first_chunk),
          kept_chunks_(kept_chunks),
          assignment_(packed.format, chunks),
          filter_(assignment_, positions(chunks[first_chunk], kept_chunks.back())) {}

    std::vector<float> scales() const override {
        const auto begin = packed_.scales.begin() + first_chunk_;
        return {begin, begin + static_cast<std::int64_t>(kept_chunks_.size()) - 1};
    }

    void for_each_run(std::int64_t first, std::int64_t last, const PackedFormat& format,
                      const RunBody& body) const override {
        std::vector<std::uint32_t> children;
        std::vector<std::uint8_t> values;
        std::int32_t run_chunk = -1;
        std::uint32_t feature = 0;
        const auto end_run = [&] {
            if (!children.empty()) body(Run{feature, run_chunk, std::ssize(children), children.data(), values.data()});
            children.clear();
            values.clear();
        };
        const int bytes = weight_bytes(format.dtype);
        const WeightSink sink = [&](std::int32_t column, std::int32_t original_chunk, const std::uint8_t* weight) {
            const auto chunk = static_cast<std::int32_t>(original_chunk - first_chunk_);
            if (chunk != run_chunk) end_run();
            run_chunk = chunk;
            // If the nodes of all chunks are merged, children are numbered by position.
            children.push_back(static_cast<std::uint32_t>(column - (format.merged ? 0 : kept_chunks_[chunk])));
            values.insert(values.end(), weight, weight + bytes);
        };
        const auto reader = BlockReader::create(packed_, assignment_, filter_, sink);
        for (std::int64_t f = first; f < last; ++f) {
            feature = static_cast<std::uint32_t>(f);
            reader->read(f);
            end_run();
        }
    }

private:
    static std::vector<std::int32_t> positions(std::int64_t first, std::int64_t count) {
        std::vector<std::int32_t> out(static_cast<std::size_t>(count));
        std::iota(out.begin(), out.end(), static_cast<std::int32_t>(first));
        return out;
    }

    const PackedView& packed_;
    const std::int64_t first_chunk_;
    std::span<const std::int64_t> kept_chunks_;
    const ChunkAssignment assignment_;
    const PositionFilter filter_;
};

class Packer {
public:
    Packer(const RunSource& source, std::span<const std::int64_t> chunks, std::int64_t n_features, WeightDtype dtype,
           int threads)
        : source_(source), format_(PackedFormat::of(chunks, dtype)), threads_(threads), blocks_(n_features) {}

    template <class Types>
    Packed pack() {
        const auto features = std::ssize(blocks_);
        const std::int64_t n_ranges =
            threads_ == 1 ? 1 : std::min<std::int64_t>(kMaxRanges, std::int64_t{threads_} * kRangesPerThread);
        parallel_for(n_ranges, threads_, nullptr, [&](int, std::int64_t range) {
            source_.for_each_run(features * range / n_ranges, features * (range + 1) / n_ranges, format_,
                                 [&](const Run& run) { blocks_[run.feature].count(run, format_); });
        });
        Packed out;
        out.format = format_;
        out.features = features;
        if (format_.dtype == WeightDtype::int8) out.scales = source_.scales();
        for (const Block& block : blocks_) {
            out.n_weights += block.weights;
            out.n_used += block.weights > 0;
        }
        const std::vector<std::int64_t> first_features = locate<Types>(out, n_ranges);
        parallel_for(n_ranges, threads_, nullptr, [&](int, std::int64_t range) {
            const BlockWriter<Types> writer(format_);
            for (std::int64_t f = first_features[range]; f < first_features[range + 1]; ++f)
                if (blocks_[f].weights > 0) std::memset(blocks_[f].bytes, 0, blocks_[f].template size<Types>(format_));
            source_.for_each_run(first_features[range], first_features[range + 1], format_,
                                 [&](const Run& run) { writer.write(blocks_[run.feature], run); });
        });
        return out;
    }

    const PackedFormat& format() const { return format_; }

private:
    // Computes the location of each block, and divides the features into ranges whose blocks have about the same total
    // size.
    template <class Types>
    std::vector<std::int64_t> locate(Packed& out, std::int64_t n_ranges) {
        const auto features = std::ssize(blocks_);
        std::int64_t used = 0;
        std::int64_t large_bytes = 0;
        for (std::int64_t f = 0; f <= features; ++f) {
            if (f % StartLine::kFeatures == 0) out.lines.push_back({used, {}});
            std::uint16_t& entry = out.lines.back().offsets[f % StartLine::kFeatures];
            entry = static_cast<std::uint16_t>(used - out.lines.back().base);
            if (f == features) break;
            const std::int64_t size = blocks_[f].template size<Types>(format_);
            if (size > std::numeric_limits<std::uint32_t>::max())
                throw std::invalid_argument("The weights of feature " + std::to_string(f) +
                                            " exceed the limit of 4 GiB.");
            if (blocks_[f].has_bitmaps(format_)) entry |= BlockStarts::kBitmapFlag;
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
        std::vector<std::int64_t> first_features{0};
        std::int64_t next = used;
        std::int64_t located_bytes = 0;
        for (std::int64_t f = 0; f < features; ++f) {
            const BlockLocation location = starts[f];
            blocks_[f].bytes = out.data.data() + location.begin;
            const std::int64_t size = blocks_[f].template size<Types>(format_);
            if (location.is_large) {
                std::uint8_t* to = append(blocks_[f].bytes, static_cast<std::uint64_t>(next));
                append(to, static_cast<std::uint64_t>(size));
                blocks_[f].bytes = out.data.data() + next;
                next += size;
            }
            located_bytes += size;
            if (located_bytes * n_ranges >= (used + large_bytes) * std::ssize(first_features) &&
                std::ssize(first_features) < n_ranges)
                first_features.push_back(f + 1);
        }
        first_features.resize(n_ranges + 1, features);
        first_features.back() = features;
        return first_features;
    }

    const RunSource& source_;
    const PackedFormat format_;
    const int threads_;
    std::vector<Block> blocks_;
};

Packed pack_source(const RunSource& source, std::span<const std::int64_t> chunks, std::int64_t n_features,
                   WeightDtype dtype, int threads) {
    Packer packer(source, chunks, n_features, dtype, threads);
    Packed out;
    dispatch_index_types(packer.format(), [&]<class Id, class Child>() { out = packer.pack<IndexTypes<Id, Child>>(); });
    return out;
}

}  // namespace

Packed pack(std::span<const ChunkWeightsView> weights, std::span<const std::int64_t> chunks, std::int64_t n_features,
            WeightDtype dtype, int threads) {
    if (weights.size() != chunks.size() - 1)
        throw std::invalid_argument("There must be one chunk of weights per parent.");
    const ChunkSource source(weights, chunks);
    return pack_source(source, chunks, n_features, dtype, threads);
}

Packed take_chunks(const PackedView& packed, std::span<const std::int64_t> chunks, std::int64_t first,
                   std::int64_t last, int threads) {
    if (first < 0 || last <= first || last >= static_cast<std::int64_t>(chunks.size()))
        throw std::invalid_argument("The range of chunks must not be empty and must be within the layer.");
    std::vector<std::int64_t> kept(chunks.begin() + first, chunks.begin() + last + 1);
    for (std::int64_t& position : kept) position -= chunks[first];
    const PackedSource source(packed, chunks, first, kept);
    return pack_source(source, kept, packed.features(), packed.format.dtype, threads);
}

Packed pack(const CsrView& weights, std::span<const std::int64_t> chunks, WeightDtype dtype, int threads,
            std::span<const float> scales) {
    const std::size_t n_chunks = chunks.size() - 1;
    if (!scales.empty()) {
        if (dtype != WeightDtype::int8 || scales.size() != n_chunks)
            throw std::invalid_argument("scales must have one entry per chunk of int8 weights.");
        if (!std::all_of(scales.begin(), scales.end(), [](float x) { return std::isfinite(x) && x > 0.0F; }))
            throw std::invalid_argument("scales must be finite and > 0.");
    }
    std::vector<std::vector<WeightEntry>> entries(n_chunks);
    const std::vector<std::int32_t> chunk_of = chunk_of_position(chunks);
    for (std::int64_t f = 0; f < weights.rows(); ++f)
        for (std::int64_t e = weights.begin(f); e < weights.end(f); ++e) {
            const std::int32_t position = weights.indices[e];
            const std::int32_t chunk = chunk_of[position];
            entries[chunk].push_back({static_cast<std::uint32_t>(f),
                                      static_cast<std::uint32_t>(position - chunks[chunk]), weights.values[e]});
        }
    std::vector<ChunkWeights> by_chunk(n_chunks);
    parallel_for(static_cast<std::int64_t>(n_chunks), threads, nullptr, [&](int, std::int64_t chunk) {
        ChunkWeightsBuilder builder;
        builder.append_all(entries[chunk]);
        entries[chunk] = {};
        by_chunk[chunk] =
            builder.finish(chunks[chunk + 1] - chunks[chunk], dtype, scales.empty() ? 0.0F : scales[chunk]);
    });
    std::vector<ChunkWeightsView> views;
    for (const ChunkWeights& chunk : by_chunk) views.push_back(chunk.view());
    return pack(views, chunks, weights.rows(), dtype, threads);
}

}  // namespace carya
