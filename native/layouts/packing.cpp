#include "packing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "../core/memory_limit.hpp"
#include "../core/parallel.hpp"
#include "block_reader.hpp"
#include "block_types.hpp"
#include "block_writer.hpp"

namespace carya {

namespace {

constexpr std::int64_t kRangesPerThread = 4;
constexpr std::int64_t kFeaturesPerRange = 1 << 13;  // so that the blocks of a range fit in the L2 cache
constexpr std::int64_t kMaxRanges = 64;              // limited because each range visits all chunks

// The weights of ascending features in one chunk.
struct Runs {
    std::int64_t chunk;
    std::span<const std::uint32_t> features;
    const std::uint32_t* counts;    // number of weights of each feature
    const std::uint32_t* children;  // of all features; null if only the counts were requested
    const std::uint8_t* values;     // like children
};

using RunsBody = std::function<void(const Runs&)>;

// A source of weights to pack. The features are divided into ranges, which are packed in parallel.
class RunSource {
public:
    virtual ~RunSource() = default;

    virtual std::vector<float> scales() const = 0;
    // Divides the features into ranges, which should have about the same number of weights.
    virtual void divide(std::int64_t n_features, std::int64_t n_ranges, [[maybe_unused]] int threads) {
        for (std::int64_t range = 0; range <= n_ranges; ++range) boundaries_.push_back(n_features * range / n_ranges);
    }
    // Calls body(runs) for the runs of all features in a range. The runs of a feature are sorted by chunk.
    virtual void for_each_runs(std::int64_t range, const PackedFormat& format, bool counts_only,
                               const RunsBody& body) const = 0;
    // Whether discard_before releases memory.
    virtual bool discards() const { return false; }
    // Releases the memory of all ranges before `range`, which are not read again.
    virtual void discard_before([[maybe_unused]] std::int64_t range, [[maybe_unused]] const PackedFormat& format,
                                [[maybe_unused]] int threads) {}

    // The first feature of each range, followed by the number of features.
    std::span<const std::int64_t> boundaries() const { return boundaries_; }

protected:
    std::vector<std::int64_t> boundaries_;
};

// Trained weights, chunk by chunk.
class ChunkSource : public RunSource {
public:
    ChunkSource(std::span<const ChunkWeightsView> weights, std::span<const std::int64_t> chunks,
                std::size_t min_discarded_bytes)
        : weights_(weights), chunks_(chunks) {
        std::size_t bytes = 0;
        for (const ChunkWeightsView& chunk : weights)
            bytes += chunk.features.size_bytes() + chunk.counts.size() + chunk.children.size() + chunk.values.size();
        discards_ = bytes >= min_discarded_bytes;
    }

    std::vector<float> scales() const override {
        std::vector<float> out;
        for (const ChunkWeightsView& chunk : weights_) out.push_back(chunk.scale);
        return out;
    }

    void divide(std::int64_t n_features, std::int64_t n_ranges, int threads) override {
        balance_ranges(n_features, n_ranges);
        begins_.resize(weights_.size() * boundaries_.size());
        parallel_each(std::ssize(weights_), kChunksPerTask, threads, nullptr, [&](int, std::int64_t chunk) {
            const ChunkWeightsView& weights = weights_[chunk];
            if (weights.index_bytes == 1)
                locate_ranges<std::uint8_t>(weights, begins_of(chunk));
            else if (weights.index_bytes == 2)
                locate_ranges<std::uint16_t>(weights, begins_of(chunk));
            else
                locate_ranges<std::uint32_t>(weights, begins_of(chunk));
        });
    }

    void for_each_runs(std::int64_t range, const PackedFormat& format, bool counts_only,
                       const RunsBody& body) const override {
        RunReader reader;
        for (std::int64_t chunk = 0; chunk < std::ssize(weights_); ++chunk) {
            const ChunkWeightsView& weights = weights_[chunk];
            const Begin begin = begins_of(chunk)[range];
            const Begin end = begins_of(chunk)[range + 1];
            if (begin.run == end.run) continue;
            if (weights.index_bytes == 1)
                reader.read<std::uint8_t>(weights, begin, end, counts_only);
            else if (weights.index_bytes == 2)
                reader.read<std::uint16_t>(weights, begin, end, counts_only);
            else
                reader.read<std::uint32_t>(weights, begin, end, counts_only);
            // If the nodes of all chunks are merged, children are numbered by position.
            if (format.merged && !counts_only)
                for (std::uint32_t& child : reader.children) child += static_cast<std::uint32_t>(chunks_[chunk]);
            body({chunk, weights.features.subspan(begin.run, end.run - begin.run), reader.counts.data(),
                  counts_only ? nullptr : reader.children.data(),
                  counts_only ? nullptr : weights.values.data() + begin.weight * weight_bytes(format.dtype)});
        }
    }

    bool discards() const override { return discards_; }

    void discard_before(std::int64_t range, const PackedFormat& format, int threads) override {
        const std::size_t value_bytes = weight_bytes(format.dtype);
        parallel_each(std::ssize(weights_), kChunksPerTask, threads, nullptr, [&](int, std::int64_t chunk) {
            const ChunkWeightsView& weights = weights_[chunk];
            const auto runs = static_cast<std::size_t>(begins_of(chunk)[range].run);
            const auto entries = static_cast<std::size_t>(begins_of(chunk)[range].weight);
            discard_pages(weights.features.data(), runs * sizeof(std::uint32_t));
            discard_pages(weights.counts.data(), runs * weights.index_bytes);
            discard_pages(weights.children.data(), entries * weights.index_bytes);
            discard_pages(weights.values.data(), entries * value_bytes);
        });
    }

private:
    static constexpr std::int64_t kChunksPerTask = 64;

    // The first run and the first weight of a range in a chunk.
    struct Begin {
        std::int64_t run;
        std::int64_t weight;
    };

    // The runs of a range in one chunk, with counts and children as 32-bit integers.
    struct RunReader {
        std::vector<std::uint32_t> counts;
        std::vector<std::uint32_t> children;

        template <class Index>
        void read(const ChunkWeightsView& weights, const Begin& begin, const Begin& end, bool counts_only) {
            counts.resize(end.run - begin.run);
            for (std::int64_t i = 0; i < std::ssize(counts); ++i)
                counts[i] = index_at<Index>(weights.counts, begin.run + i) + 1;
            if (counts_only) return;
            children.resize(end.weight - begin.weight);
            for (std::int64_t i = 0; i < std::ssize(children); ++i)
                children[i] = index_at<Index>(weights.children, begin.weight + i);
        }
    };

    template <class Index>
    static std::uint32_t index_at(std::span<const std::uint8_t> bytes, std::int64_t i) {
        Index value;
        std::memcpy(&value, bytes.data() + i * static_cast<std::int64_t>(sizeof(Index)), sizeof(Index));
        return value;
    }

    Begin* begins_of(std::int64_t chunk) { return begins_.data() + chunk * std::ssize(boundaries_); }
    const Begin* begins_of(std::int64_t chunk) const { return begins_.data() + chunk * std::ssize(boundaries_); }

    // Divides the features so that the ranges have about the same number of runs, which is estimated from a sample.
    void balance_ranges(std::int64_t n_features, std::int64_t n_ranges) {
        constexpr std::size_t sample_step = 8;
        constexpr int max_bin_bits = 16;
        const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n_features)));
        const int shift = std::max(0, bits - max_bin_bits);
        std::vector<std::int64_t> bins((n_features >> shift) + 1, 0);
        std::int64_t total = 0;
        for (const ChunkWeightsView& weights : weights_)
            for (std::size_t run = 0; run < weights.features.size(); run += sample_step, ++total)
                ++bins[weights.features[run] >> shift];
        boundaries_.assign(1, 0);
        std::int64_t sum = 0;
        for (std::int64_t bin = 0; bin < std::ssize(bins) && std::ssize(boundaries_) < n_ranges; ++bin) {
            sum += bins[bin];
            if (sum * n_ranges >= total * std::ssize(boundaries_))
                boundaries_.push_back(std::min(n_features, (bin + 1) << shift));
        }
        boundaries_.resize(n_ranges + 1, n_features);
    }

    template <class Index>
    void locate_ranges(const ChunkWeightsView& weights, Begin* begins) const {
        std::int64_t run = 0;
        std::int64_t weight = 0;
        for (const std::int64_t boundary : boundaries_) {
            const auto from = weights.features.begin() + run;
            const std::int64_t last =
                std::lower_bound(from, weights.features.end(), boundary) - weights.features.begin();
            weight += last - run;  // stored counts are one less than the number of weights
            for (; run < last; ++run) weight += index_at<Index>(weights.counts, run);
            *begins++ = {run, weight};
        }
    }

    std::span<const ChunkWeightsView> weights_;
    std::span<const std::int64_t> chunks_;
    bool discards_;
    std::vector<Begin> begins_;  // chunks x (ranges + 1)
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

    void for_each_runs(std::int64_t range, const PackedFormat& format, [[maybe_unused]] bool counts_only,
                       const RunsBody& body) const override {
        std::vector<std::uint32_t> children;
        std::vector<std::uint8_t> values;
        std::int32_t run_chunk = -1;
        std::uint32_t feature = 0;
        const auto end_run = [&] {
            const auto count = static_cast<std::uint32_t>(children.size());
            if (count > 0) body({run_chunk, {&feature, 1}, &count, children.data(), values.data()});
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
        for (std::int64_t f = boundaries_[range]; f < boundaries_[range + 1]; ++f) {
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
    Packer(RunSource& source, std::span<const std::int64_t> chunks, std::int64_t n_features, WeightDtype dtype,
           int threads)
        : source_(source), format_(PackedFormat::of(chunks, dtype)), threads_(threads), blocks_(n_features) {}

    template <class Types>
    Packed pack() {
        const auto features = std::ssize(blocks_);
        const std::int64_t n_ranges =
            std::min(kMaxRanges, std::max(features / kFeaturesPerRange, kRangesPerThread * threads_));
        source_.divide(features, n_ranges, threads_);
        parallel_for(n_ranges, threads_, nullptr, [&](int, std::int64_t range) {
            source_.for_each_runs(range, format_, true, [&](const Runs& runs) {
                for (std::size_t i = 0; i < runs.features.size(); ++i)
                    blocks_[runs.features[i]].count(runs.counts[i], format_);
            });
        });
        Packed out;
        out.format = format_;
        out.features = features;
        if (format_.dtype == WeightDtype::int8) out.scales = source_.scales();
        for (const Block& block : blocks_) {
            out.n_weights += block.weights;
            out.n_used += block.weights > 0;
        }
        place_blocks(
            out, features, [&](std::int64_t f) { return blocks_[f].template size<Types>(format_); },
            [&](std::int64_t f) { return blocks_[f].has_bitmaps(format_); },
            [&](std::int64_t f, std::uint8_t* bytes) { blocks_[f].bytes = bytes; });
        const std::int64_t step =
            source_.discards() ? std::max<std::int64_t>(n_ranges / kDiscardSteps, threads_) : n_ranges;
        for (std::int64_t first = 0; first < n_ranges; first += step) {
            const std::int64_t last = std::min(first + step, n_ranges);
            parallel_for(last - first, threads_, nullptr, [&](int, std::int64_t i) { write_range<Types>(first + i); });
            if (source_.discards()) source_.discard_before(last, format_, threads_);
        }
        return out;
    }

    const PackedFormat& format() const { return format_; }

private:
    static constexpr std::int64_t kDiscardSteps = 8;

    template <class Types>
    void write_range(std::int64_t range) {
        const BlockWriter<Types> writer(format_);
        const std::span<const std::int64_t> boundaries = source_.boundaries();
        for (std::int64_t f = boundaries[range]; f < boundaries[range + 1]; ++f)
            if (blocks_[f].weights > 0) std::memset(blocks_[f].bytes, 0, blocks_[f].template size<Types>(format_));
        source_.for_each_runs(range, format_, false, [&](const Runs& runs) { write(writer, runs); });
    }

    template <class Types>
    void write(const BlockWriter<Types>& writer, const Runs& runs) {
        const std::uint32_t* children = runs.children;
        const std::uint8_t* values = runs.values;
        const int bytes = weight_bytes(format_.dtype);
        for (std::size_t i = 0; i < runs.features.size(); ++i) {
            const std::int64_t count = runs.counts[i];
            writer.write(blocks_[runs.features[i]], {runs.chunk, count, children, values});
            children += count;
            values += count * bytes;
        }
    }

    RunSource& source_;
    const PackedFormat format_;
    const int threads_;
    std::vector<Block> blocks_;
};

Packed pack_source(RunSource& source, std::span<const std::int64_t> chunks, std::int64_t n_features, WeightDtype dtype,
                   int threads) {
    Packer packer(source, chunks, n_features, dtype, threads);
    Packed out;
    dispatch_index_types(packer.format(), [&]<class Id, class Child>() { out = packer.pack<IndexTypes<Id, Child>>(); });
    return out;
}

}  // namespace

Packed pack(std::span<const ChunkWeightsView> weights, std::span<const std::int64_t> chunks, std::int64_t n_features,
            WeightDtype dtype, int threads, std::size_t min_discarded_bytes) {
    if (weights.size() != chunks.size() - 1)
        throw std::invalid_argument("There must be one chunk of weights per parent.");
    ChunkSource source(weights, chunks, min_discarded_bytes);
    return pack_source(source, chunks, n_features, dtype, threads);
}

Packed take_chunks(const PackedView& packed, std::span<const std::int64_t> chunks, std::int64_t first,
                   std::int64_t last, int threads) {
    if (first < 0 || last <= first || last >= static_cast<std::int64_t>(chunks.size()))
        throw std::invalid_argument("The range of chunks must not be empty and must be within the layer.");
    std::vector<std::int64_t> kept(chunks.begin() + first, chunks.begin() + last + 1);
    for (std::int64_t& position : kept) position -= chunks[first];
    PackedSource source(packed, chunks, first, kept);
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
