#include "insertion.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../core/parallel.hpp"
#include "block_reader.hpp"
#include "block_types.hpp"
#include "block_writer.hpp"

namespace carya {

namespace {

constexpr std::int64_t kFeaturesPerTask = 256;

// The added weights of one feature in one chunk: [begin, begin + count) in AddedWeights.
struct AddedRun {
    std::int32_t chunk;
    std::uint32_t count;
    std::int64_t begin;
};

// The added weights by feature, encoded in the data type of the layer.
struct AddedWeights {
    std::vector<std::int64_t> starts;  // of the runs of each feature
    std::vector<AddedRun> runs;        // for each feature, in ascending order of the chunks
    std::vector<std::uint32_t> children;
    std::vector<std::uint8_t> values;

    std::span<const AddedRun> of_feature(std::int64_t feature) const {
        return std::span(runs).subspan(static_cast<std::size_t>(starts[feature]),
                                       static_cast<std::size_t>(starts[feature + 1] - starts[feature]));
    }
};

std::uint32_t index_at(std::span<const std::uint8_t> bytes, std::int64_t i, int index_bytes) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + i * index_bytes, static_cast<std::size_t>(index_bytes));  // little-endian
    return value;
}

// Groups the added weights by feature, numbers their children like all nodes of the chunk, and encodes them.
AddedWeights group_by_feature(std::span<const ChunkWeightsView> added, std::int64_t n_features, WeightDtype dtype,
                              std::span<const std::int64_t> chunks, std::span<const std::int64_t> new_chunks,
                              std::span<const std::uint8_t> is_empty, std::vector<float>& scales) {
    AddedWeights out;
    out.starts.assign(static_cast<std::size_t>(n_features) + 1, 0);
    for (const ChunkWeightsView& chunk : added)
        for (const std::uint32_t feature : chunk.features) ++out.starts[feature + 1];
    for (std::int64_t f = 0; f < n_features; ++f) out.starts[f + 1] += out.starts[f];
    out.runs.resize(static_cast<std::size_t>(out.starts.back()));
    std::vector<std::int64_t> next(out.starts.begin(), out.starts.end() - 1);
    RawVector<std::uint8_t> encoded;
    for (std::size_t c = 0; c < added.size(); ++c) {
        const ChunkWeightsView& chunk = added[c];
        const auto n_weights = static_cast<std::int64_t>(chunk.values.size() / sizeof(float));
        if (n_weights == 0) continue;
        const auto first_child = static_cast<std::uint32_t>(chunks[c + 1] - chunks[c]);
        std::int64_t begin = std::ssize(out.children);
        std::vector<float> values(static_cast<std::size_t>(n_weights));
        std::memcpy(values.data(), chunk.values.data(), chunk.values.size());
        const float scale = scales.empty() || is_empty[c] ? 0.0F : scales[c];
        const float encoded_scale = encode_weights(values, dtype, scale, encoded);
        if (!scales.empty()) scales[c] = encoded_scale;
        out.values.insert(out.values.end(), encoded.begin(), encoded.end());
        for (std::int64_t e = 0; e < n_weights; ++e) {
            out.children.push_back(first_child + index_at(chunk.children, e, chunk.index_bytes));
            if (out.children.back() >= new_chunks[c + 1] - new_chunks[c])
                throw std::invalid_argument("The added weights do not match the added nodes.");
        }
        for (std::size_t run = 0; run < chunk.features.size(); ++run) {
            const std::uint32_t count = index_at(chunk.counts, static_cast<std::int64_t>(run), chunk.index_bytes) + 1;
            out.runs[next[chunk.features[run]]++] = {static_cast<std::int32_t>(c), count, begin};
            begin += count;
        }
    }
    return out;
}

// The weights of one feature, chunk by chunk.
struct FeatureRuns {
    struct Part {
        std::int32_t chunk;
        std::int64_t begin;
    };
    std::vector<Part> parts;
    std::vector<std::uint32_t> children;
    std::vector<std::uint8_t> values;

    void clear() {
        parts.clear();
        children.clear();
        values.clear();
    }
    void begin_chunk(std::int32_t chunk) { parts.push_back({chunk, std::ssize(children)}); }
    std::int64_t count(std::size_t part) const {
        return (part + 1 < parts.size() ? parts[part + 1].begin : std::ssize(children)) - parts[part].begin;
    }
};

// The arguments of insert_nodes, and the formats before and after the insertion.
struct Insertion {
    const PackedView& packed;
    std::span<const std::int64_t> chunks;
    std::span<const std::int64_t> new_chunks;
    PackedFormat format;  // after the insertion
    AddedWeights added;
    ChunkAssignment assignment;
    PositionFilter filter;

    const PackedFormat& old_format() const { return packed.format; }
    // Returns whether blocks can be copied, apart from their bitmaps.
    bool keeps_types() const {
        return !format.merged && !old_format().merged && format.child_bytes == old_format().child_bytes &&
               format.id_bytes == old_format().id_bytes;
    }
    bool keeps_bitmaps() const { return format.bitmap_bytes == old_format().bitmap_bytes; }
};

// Builds the new blocks of features, one at a time. Each thread needs its own object.
template <class Types>
class BlockRebuilder {
    using Id = typename Types::Id;
    using Child = typename Types::Child;
    using Wide = WideBlock<Types>;

public:
    explicit BlockRebuilder(const Insertion& insertion)
        : in_(insertion),
          writer_(insertion.format),
          weight_bytes_(weight_bytes(insertion.format.dtype)),
          sink_([this](std::int32_t position, std::int32_t chunk, const std::uint8_t* weight) {
              if (old_.parts.empty() || old_.parts.back().chunk != chunk) old_.begin_chunk(chunk);
              old_.children.push_back(static_cast<std::uint32_t>(position - in_.chunks[chunk]));
              old_.values.insert(old_.values.end(), weight, weight + weight_bytes_);
          }),
          reader_(BlockReader::create(in_.packed, in_.assignment, in_.filter, sink_)) {}
    BlockRebuilder(const BlockRebuilder&) = delete;
    BlockRebuilder& operator=(const BlockRebuilder&) = delete;

    // Builds the block of a feature in `bytes` and `has_bitmaps`, and sets `size`. With `measure_only`, the bytes of a
    // wide block are not built.
    void build(std::int64_t feature, bool measure_only) {
        feature_ = feature;
        measure_only_ = measure_only;
        has_bitmaps = false;
        const std::span<const std::uint8_t> old = in_.packed.block(in_.packed.starts[feature]);
        if constexpr (!Types::kSingleChunk) {
            if (in_.keeps_types() && is_wide(old)) return build_wide(old);
        }
        build_from_runs();
        size = std::ssize(bytes);
    }

    // Returns whether the block of a feature must be rebuilt; otherwise, it is copied.
    bool is_affected(std::int64_t feature) const {
        if (!in_.added.of_feature(feature).empty()) return true;
        const BlockLocation location = in_.packed.starts[feature];
        const std::span<const std::uint8_t> old = in_.packed.block(location);
        if (old.empty()) return location.is_large;  // a large block outside the data, which is reported as invalid
        if (!in_.keeps_types()) return true;
        // Narrow blocks without bitmaps do not depend on the size of bitmaps, which never decreases unless it becomes
        // 0.
        return !in_.keeps_bitmaps() && (location.has_bitmaps || is_wide(old));
    }

    std::vector<std::uint8_t> bytes;
    std::int64_t size = 0;
    bool has_bitmaps = false;

private:
    static bool is_wide(std::span<const std::uint8_t> block) {
        return !block.empty() && Types::chunk_count(block) >= kMinWideChunks;
    }

    void require(bool holds) const {
        if (!holds) throw std::invalid_argument("The block of feature " + std::to_string(feature_) + " is invalid.");
    }

    void add_run(const AddedRun& run) {
        all_.children.insert(all_.children.end(), in_.added.children.begin() + run.begin,
                             in_.added.children.begin() + run.begin + run.count);
        const auto values = in_.added.values.begin() + run.begin * weight_bytes_;
        all_.values.insert(all_.values.end(), values, values + run.count * weight_bytes_);
    }

    // Unpacks the block, inserts the added weights and packs all weights.
    void build_from_runs() {
        old_.clear();
        all_.clear();
        reader_->read(feature_);
        const std::span<const AddedRun> added = in_.added.of_feature(feature_);
        std::size_t a = 0;
        for (std::size_t part = 0; part < old_.parts.size(); ++part) {
            const std::int32_t chunk = old_.parts[part].chunk;
            for (; a < added.size() && added[a].chunk < chunk; ++a) {
                all_.begin_chunk(added[a].chunk);
                add_run(added[a]);
            }
            all_.begin_chunk(chunk);
            const std::int64_t begin = old_.parts[part].begin;
            const std::int64_t count = old_.count(part);
            all_.children.insert(all_.children.end(), old_.children.begin() + begin,
                                 old_.children.begin() + begin + count);
            all_.values.insert(all_.values.end(), old_.values.begin() + begin * weight_bytes_,
                               old_.values.begin() + (begin + count) * weight_bytes_);
            if (a < added.size() && added[a].chunk == chunk) add_run(added[a++]);
        }
        for (; a < added.size(); ++a) {
            all_.begin_chunk(added[a].chunk);
            add_run(added[a]);
        }
        if (in_.format.merged)  // children are numbered by position
            for (std::size_t part = 0; part < all_.parts.size(); ++part)
                for (std::int64_t e = 0; e < all_.count(part); ++e)
                    all_.children[all_.parts[part].begin + e] +=
                        static_cast<std::uint32_t>(in_.new_chunks[all_.parts[part].chunk]);
        Block block;
        for (std::size_t part = 0; part < all_.parts.size(); ++part)
            block.count(static_cast<std::uint32_t>(all_.count(part)), in_.format);
        bytes.assign(static_cast<std::size_t>(block.size<Types>(in_.format)), 0);
        has_bitmaps = block.has_bitmaps(in_.format);
        block.bytes = bytes.data();
        for (std::size_t part = 0; part < all_.parts.size(); ++part) {
            const std::int64_t begin = all_.parts[part].begin;
            writer_.write(block, {all_.parts[part].chunk, all_.count(part), all_.children.data() + begin,
                                  all_.values.data() + begin * weight_bytes_});
        }
    }

    std::int64_t run_bytes(std::int64_t count, std::int64_t bitmap_bytes) const {
        return (Wide::has_bitmap(count, bitmap_bytes) ? bitmap_bytes : count * Types::kChildBytes) +
               count * weight_bytes_;
    }

    // Copies a wide block. Only the runs of chunks with added nodes, and those with bitmaps of a different size, are
    // unpacked.
    void build_wide(std::span<const std::uint8_t> old) {
        const PackedFormat& format = in_.format;
        const Wide block(old, in_.old_format().bitmap_bytes, format.chunk_words);
        require(block.n > 0 && (block.chunk_words == 0 || block.bit_count() == block.n));
        ids_.clear();
        counts_.clear();
        runs_.clear();
        n_runs_ = runs_size_ = 0;
        if (block.chunk_words > 0)
            bits_.assign(block.chunks, block.chunks + 8 * block.chunk_words);
        else
            bits_.clear();
        std::int64_t i = 0;
        std::int64_t offset = 0;
        for (const AddedRun& added : in_.added.of_feature(feature_)) {
            copy_runs(block, i, lower_bound(block, i, added.chunk), offset);
            const bool has_run = i < block.n && chunk_at(block, i, added.chunk) == added.chunk;
            if (measure_only_) {
                if (has_run) offset += run_bytes(block.count(i), block.bitmap_bytes);
                add_size((has_run ? block.count(i++) : 0) + added.count);
                continue;
            }
            all_.clear();
            if (has_run) {
                unpack_run(block, i, added.chunk, offset);
                append_id(block, i++);
            } else if (block.chunk_words > 0) {
                set_bit(bits_.data(), added.chunk);
            } else {
                append_value(ids_, static_cast<Id>(added.chunk));
            }
            add_run(added);
            append_run();
        }
        copy_runs(block, i, block.n, offset);
        require(offset == block.size);
        size = Wide::runs_offset(n_runs_, format.chunk_words) + runs_size_;
        if (!measure_only_) join_parts(block);
    }

    // Adds a run to the size of the block.
    void add_size(std::int64_t count) {
        ++n_runs_;
        runs_size_ += run_bytes(count, in_.format.bitmap_bytes);
    }

    // Returns the index of the first run, from `first`, whose chunk is not below `chunk`.
    std::int64_t lower_bound(const Wide& block, std::int64_t first, std::int64_t chunk) const {
        if (block.chunk_words > 0) {
            require(chunk < 64 * block.chunk_words);
            std::int64_t rank = 0;
            for (std::int64_t w = 0; w < chunk / 64; ++w) rank += std::popcount(block.chunk_word(w));
            return rank + std::popcount(block.chunk_word(chunk / 64) & ((std::uint64_t{1} << chunk % 64) - 1));
        }
        std::int64_t last = block.n;
        while (first < last) {
            const std::int64_t middle = (first + last) / 2;
            if (block.id(middle) < chunk)
                first = middle + 1;
            else
                last = middle;
        }
        return first;
    }

    // Returns the chunk of run i, which is the first run whose chunk is not below `wanted`. If the block has bits, only
    // whether it equals `wanted` is determined.
    std::int64_t chunk_at(const Wide& block, std::int64_t i, std::int64_t wanted) const {
        if (block.chunk_words == 0) return block.id(i);
        return (block.chunk_word(wanted / 64) >> wanted % 64 & 1) != 0 ? wanted : wanted + 1;
    }

    // Copies runs [i, end), and sets `i` to `end` and `offset` to the offset of the next run.
    void copy_runs(const Wide& block, std::int64_t& i, std::int64_t end, std::int64_t& offset) {
        require(end >= i && end <= block.n);
        if (in_.keeps_bitmaps()) {
            const std::int64_t next = end == block.n ? block.size : run_offset(block, end);
            copy_bytes(block, i, end, offset, next);
        } else {
            std::int64_t copied = i;
            std::int64_t next = offset;
            for (; i < end; ++i) {
                const std::int64_t count = block.count(i);
                if (!Wide::has_bitmap(count, block.bitmap_bytes)) {
                    next += run_bytes(count, block.bitmap_bytes);
                    continue;
                }
                copy_bytes(block, copied, i, offset, next);
                if (measure_only_) {
                    offset += run_bytes(count, block.bitmap_bytes);
                    add_size(count);
                } else {
                    all_.clear();
                    unpack_run(block, i, -1, offset);
                    append_id(block, i);
                    append_run();
                }
                next = offset;
                copied = i + 1;
            }
            copy_bytes(block, copied, end, offset, next);
        }
        i = end;
    }

    std::int64_t run_offset(const Wide& block, std::int64_t i) const {
        std::int64_t offset = block.run_bytes_before(i / Wide::kSumStep);
        for (std::int64_t previous = i / Wide::kSumStep * Wide::kSumStep; previous < i; ++previous)
            offset += run_bytes(block.count(previous), block.bitmap_bytes);
        return offset;
    }

    // Copies runs [first, last), which occupy the bytes [offset, next), and sets `offset` to `next`.
    void copy_bytes(const Wide& block, std::int64_t first, std::int64_t last, std::int64_t& offset, std::int64_t next) {
        require(next >= offset && next <= block.size);
        n_runs_ += last - first;
        runs_size_ += next - offset;
        if (measure_only_) {
            offset = next;
            return;
        }
        runs_.insert(runs_.end(), block.runs + offset, block.runs + next);
        counts_.insert(counts_.end(), block.counts + first * Types::kChildBytes,
                       block.counts + last * Types::kChildBytes);
        if (block.chunk_words == 0)
            ids_.insert(ids_.end(), block.chunks + first * Types::kIdBytes, block.chunks + last * Types::kIdBytes);
        offset = next;
    }

    void append_id(const Wide& block, std::int64_t i) {
        if (block.chunk_words == 0)
            ids_.insert(ids_.end(), block.chunks + i * Types::kIdBytes, block.chunks + (i + 1) * Types::kIdBytes);
    }

    // Appends the weights of run i to `all_`. The run belongs to `chunk`, or to any chunk if `chunk` is -1.
    void unpack_run(const Wide& block, std::int64_t i, std::int64_t chunk, std::int64_t& offset) {
        const std::int64_t count = block.count(i);
        const bool has_bitmap = Wide::has_bitmap(count, block.bitmap_bytes);
        const std::int64_t occupied = run_bytes(count, block.bitmap_bytes);
        require(occupied <= block.size - offset);
        const std::uint8_t* nodes = block.runs + offset;
        const std::uint8_t* values = nodes + (has_bitmap ? block.bitmap_bytes : count * Types::kChildBytes);
        if (has_bitmap) {
            for (std::int64_t line = 0; line < block.bitmap_bytes / 2; ++line)
                for (std::uint32_t left = load<std::uint16_t>(nodes + 2 * line); left; left &= left - 1)
                    all_.children.push_back(static_cast<std::uint32_t>(16 * line + std::countr_zero(left)));
        } else {
            for (std::int64_t e = 0; e < count; ++e)
                all_.children.push_back(load<Child>(nodes + e * Types::kChildBytes));
        }
        require(std::ssize(all_.children) == count);
        require(chunk < 0 || all_.children.back() < in_.chunks[chunk + 1] - in_.chunks[chunk]);
        all_.values.insert(all_.values.end(), values, values + count * weight_bytes_);
        offset += occupied;
    }

    // Appends the weights in `all_` as a run.
    void append_run() {
        const std::int64_t count = std::ssize(all_.children);
        add_size(count);
        append_value(counts_, static_cast<Child>(count - 1));
        if (Wide::has_bitmap(count, in_.format.bitmap_bytes)) {
            const std::size_t begin = runs_.size();
            runs_.resize(begin + static_cast<std::size_t>(in_.format.bitmap_bytes), 0);
            for (const std::uint32_t child : all_.children) {
                require(child < 8 * static_cast<std::uint32_t>(in_.format.bitmap_bytes));
                set_bit(runs_.data() + begin, child);
            }
        } else {
            for (const std::uint32_t child : all_.children) append_value(runs_, static_cast<Child>(child));
        }
        runs_.insert(runs_.end(), all_.values.begin(), all_.values.end());
    }

    template <class T>
    static void append_value(std::vector<std::uint8_t>& to, T value) {
        const std::size_t begin = to.size();
        to.resize(begin + sizeof(T));
        std::memcpy(to.data() + begin, &value, sizeof(T));
    }

    void join_parts(const Wide& block) {
        const auto n = static_cast<std::int64_t>(counts_.size()) / Types::kChildBytes;
        const std::int64_t words = in_.format.chunk_words;
        const std::int64_t head = Wide::runs_offset(n, words);
        bytes.assign(static_cast<std::size_t>(head), 0);
        append(bytes.data(), static_cast<Id>(n - 1));
        std::uint8_t* const ids = bytes.data() + Types::kIdBytes;
        if (Wide::has_chunk_bits(n, words)) {
            std::uint8_t* const bits = ids + Wide::rank_bytes(words);
            if (block.chunk_words > 0) {
                std::memcpy(bits, bits_.data(), bits_.size());
            } else {
                for (std::int64_t i = 0; i < n; ++i) {
                    const std::int64_t chunk = load<Id>(ids_.data() + i * Types::kIdBytes);
                    require(chunk < 64 * words);
                    set_bit(bits, chunk);
                }
            }
            if (Wide::rank_bytes(words) > 0) write_ranks(ids, bits);
        } else {
            std::memcpy(ids, ids_.data(), ids_.size());
        }
        std::uint8_t* const counts = bytes.data() + Wide::counts_offset(n, words);
        std::memcpy(counts, counts_.data(), counts_.size());
        std::uint8_t* sums = bytes.data() + Wide::sums_offset(n, words);
        std::int64_t offset = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            if (i > 0 && i % Wide::kSumStep == 0) sums = append(sums, static_cast<std::uint32_t>(offset));
            offset +=
                run_bytes(std::int64_t{load<Child>(counts + i * Types::kChildBytes)} + 1, in_.format.bitmap_bytes);
        }
        require(offset == std::ssize(runs_));
        bytes.insert(bytes.end(), runs_.begin(), runs_.end());
    }

    // Writes the rank of each group of chunks with weights; the ranks of other groups are 0.
    void write_ranks(std::uint8_t* ranks, const std::uint8_t* bits) const {
        std::int64_t chunks = 0;
        for (std::int64_t w = 0; w < in_.format.chunk_words; w += Wide::kGroupWords) {
            const std::int64_t before = chunks;
            for (std::int64_t i = w; i < std::min<std::int64_t>(w + Wide::kGroupWords, in_.format.chunk_words); ++i)
                chunks += std::popcount(load<std::uint64_t>(bits + 8 * i));
            if (chunks > before) append(ranks + 2 * (w / Wide::kGroupWords), static_cast<std::uint16_t>(before));
        }
    }

    const Insertion& in_;
    const BlockWriter<Types> writer_;
    const std::int64_t weight_bytes_;
    std::int64_t feature_ = 0;
    bool measure_only_ = false;
    std::int64_t n_runs_ = 0;     // of the new wide block
    std::int64_t runs_size_ = 0;  // total bytes of these runs
    FeatureRuns old_;
    FeatureRuns all_;
    std::vector<std::uint8_t> ids_;  // of the new wide block, unless it is copied with bits
    std::vector<std::uint8_t> bits_;
    std::vector<std::uint8_t> counts_;
    std::vector<std::uint8_t> runs_;
    const WeightSink sink_;
    const std::unique_ptr<BlockReader> reader_;
};

template <class Types>
void insert(const Insertion& in, Packed& out, int threads) {
    const std::int64_t features = in.packed.features();
    struct NewBlock {
        std::int64_t size = 0;
        std::uint8_t* bytes = nullptr;
        bool has_bitmaps = false;
        bool is_affected = false;
    };
    std::vector<NewBlock> blocks(static_cast<std::size_t>(features));
    std::vector<std::unique_ptr<BlockRebuilder<Types>>> rebuilders;
    for (int i = 0; i < threads; ++i) rebuilders.push_back(std::make_unique<BlockRebuilder<Types>>(in));
    parallel_each(features, kFeaturesPerTask, threads, nullptr, [&](int worker, std::int64_t f) {
        NewBlock& block = blocks[f];
        block.is_affected = rebuilders[worker]->is_affected(f);
        if (block.is_affected) {
            rebuilders[worker]->build(f, true);
            block.size = rebuilders[worker]->size;
            block.has_bitmaps = rebuilders[worker]->has_bitmaps;
        } else {
            const BlockLocation location = in.packed.starts[f];
            block.size = std::ssize(in.packed.block(location));
            block.has_bitmaps = location.has_bitmaps;
        }
    });
    place_blocks(
        out, features, [&](std::int64_t f) { return blocks[f].size; },
        [&](std::int64_t f) { return blocks[f].has_bitmaps; },
        [&](std::int64_t f, std::uint8_t* bytes) { blocks[f].bytes = bytes; });
    // Blocks are built a second time, because keeping them would double the memory.
    parallel_each(features, kFeaturesPerTask, threads, nullptr, [&](int worker, std::int64_t f) {
        if (blocks[f].size == 0) return;
        if (blocks[f].is_affected) {
            rebuilders[worker]->build(f, false);
            if (std::ssize(rebuilders[worker]->bytes) != blocks[f].size)
                throw std::invalid_argument("The weights changed while nodes were inserted.");
            std::memcpy(blocks[f].bytes, rebuilders[worker]->bytes.data(), rebuilders[worker]->bytes.size());
        } else {
            const std::span<const std::uint8_t> old = in.packed.block(in.packed.starts[f]);
            std::memcpy(blocks[f].bytes, old.data(), old.size());
        }
    });
    for (const NewBlock& block : blocks) out.n_used += block.size > 0;
}

// Returns 1 for each chunk without weights to which weights are added.
std::vector<std::uint8_t> empty_chunks(const PackedView& packed, std::span<const std::int64_t> chunks,
                                       std::span<const ChunkWeightsView> added) {
    std::vector<std::uint8_t> out(added.size(), 0);
    if (packed.scales.empty()) return out;
    bool any = false;
    for (std::size_t c = 0; c < added.size(); ++c) {
        out[c] = packed.scales[c] == 1.0F && !added[c].values.empty();  // 1 is the scale of chunks without weights
        any |= out[c] != 0;
    }
    if (!any) return out;
    const std::vector<std::int64_t> counts = chunk_weight_counts(packed, chunks);
    for (std::size_t c = 0; c < added.size(); ++c) out[c] = out[c] != 0 && counts[c] == 0;
    return out;
}

}  // namespace

Packed insert_nodes(const PackedView& packed, std::span<const std::int64_t> chunks,
                    std::span<const std::int64_t> new_chunks, std::span<const ChunkWeightsView> added,
                    std::int64_t max_bit_chunks, int threads) {
    if (new_chunks.size() != chunks.size() || added.size() + 1 != chunks.size())
        throw std::invalid_argument("The added weights must have the same number of chunks as the layer.");
    Packed out;
    out.features = packed.features();
    out.scales.assign(packed.scales.begin(), packed.scales.end());
    out.format = PackedFormat::of(new_chunks, packed.format.dtype, max_bit_chunks);
    const Insertion insertion{packed,
                              chunks,
                              new_chunks,
                              out.format,
                              group_by_feature(added, out.features, packed.format.dtype, chunks, new_chunks,
                                               empty_chunks(packed, chunks, added), out.scales),
                              ChunkAssignment(packed.format, chunks),
                              PositionFilter()};
    for (const AddedRun& run : insertion.added.runs) out.n_weights += run.count;
    dispatch_index_types(out.format,
                         [&]<class Id, class Child>() { insert<IndexTypes<Id, Child>>(insertion, out, threads); });
    return out;
}

}  // namespace carya
