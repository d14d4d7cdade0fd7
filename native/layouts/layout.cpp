#include "layout.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "../kernels/kernels.hpp"
#include "chunk_runs.hpp"

namespace carya {

namespace {

class PackedLayout final : public Layout {
public:
    PackedLayout(const PackedView& weights, std::span<const std::int64_t> chunks)
        : weights_(weights), chunks_(static_cast<std::int64_t>(chunks.size()) - 1), nodes_(chunks.back()) {}

    void add_scores(const Query& query, std::span<const BeamChunk> beam_chunks, Scratch& scratch) const override {
        if (weights_.format.merged) return add_merged(query, beam_chunks, scratch);
        scratch.requested.clear();
        // Reserve memory first: if a statement below threw an exception, entries would remain in scratch.base.
        scratch.requested.reserve(beam_chunks.size());
        for (const BeamChunk& chunk : beam_chunks) {
            scratch.base[chunk.parent] = chunk.base;
            scratch.requested.push_back(chunk.parent);
        }
        const PackedQuery packed_query{query.indices.data(),
                                       query.values.data(),
                                       static_cast<std::int64_t>(query.indices.size()),
                                       scratch.requested.data(),
                                       static_cast<std::int64_t>(scratch.requested.size()),
                                       chunks_,
                                       scratch.base.data()};
        kernels().add_packed_scores(weights_, packed_query, scratch.sums.reserve(0), scratch.capacity);
        for (const BeamChunk& chunk : beam_chunks) scratch.base[chunk.parent] = 0;
    }

    float scale(std::int32_t chunk) const override { return weights_.scales.empty() ? 1.0F : weights_.scales[chunk]; }

private:
    // Scores all nodes of the level in one pass, then copies the scores of the requested chunks.
    void add_merged(const Query& query, std::span<const BeamChunk> beam_chunks, Scratch& scratch) const {
        constexpr std::uint32_t kBase = 0;
        const std::int64_t capacity = nodes_ + sum_padding(weights_.format);
        float* level_sums = scratch.level_sums.reserve(static_cast<std::size_t>(capacity));
        std::fill_n(level_sums, nodes_ + kBitmapPadding, 0.0F);
        const PackedQuery packed_query{query.indices.data(),
                                       query.values.data(),
                                       static_cast<std::int64_t>(query.indices.size()),
                                       nullptr,
                                       0,
                                       1,
                                       &kBase};
        kernels().add_packed_scores(weights_, packed_query, level_sums, capacity);
        for (const BeamChunk& chunk : beam_chunks)
            std::copy_n(level_sums + chunk.begin, chunk.size(), scratch.sums.reserve(0) + chunk.base);
    }

    PackedView weights_;
    std::int64_t chunks_;
    std::int64_t nodes_;
};

class ByLabelLayout final : public Layout {
public:
    explicit ByLabelLayout(const Csr& weights) : labels_(transpose(weights.view(), 1)), features_(labels_.cols) {}

    void add_scores(const Query& query, std::span<const BeamChunk> beam_chunks, Scratch& scratch) const override {
        if (static_cast<std::int64_t>(scratch.dense_query.size()) < features_) scratch.dense_query.resize(features_);
        float* x = scratch.dense_query.data();
        for (std::size_t i = 0; i < query.indices.size(); ++i) x[query.indices[i]] = query.values[i];
        for (const BeamChunk& chunk : beam_chunks) {
            float* out = scratch.sums.reserve(0) + chunk.base;
            for (std::int64_t label = chunk.begin; label < chunk.end; ++label) {
                float sum = 0.0F;
                for (std::int64_t e = labels_.indptr[label]; e < labels_.indptr[label + 1]; ++e)
                    sum += x[labels_.indices[e]] * labels_.values[e];
                *out++ += sum;
            }
        }
        for (const std::int32_t feature : query.indices) x[feature] = 0.0F;
    }

private:
    Csr labels_;  // positions x features
    std::int64_t features_;
};

class ByFeatureLayout final : public Layout {
public:
    explicit ByFeatureLayout(Csr weights) : weights_(std::move(weights)) {}

    void add_scores(const Query& query, std::span<const BeamChunk> beam_chunks, Scratch& scratch) const override {
        float* sums = scratch.sums.reserve(0);
        for (std::size_t i = 0; i < query.indices.size(); ++i) {
            const auto entries = weights_.indices.begin();
            auto first = entries + weights_.indptr[query.indices[i]];
            const auto last = entries + weights_.indptr[query.indices[i] + 1];
            for (const BeamChunk& chunk : beam_chunks) {
                first = std::lower_bound(first, last, static_cast<std::int32_t>(chunk.begin));
                if (first == last) break;
                for (; first != last && *first < chunk.end; ++first)
                    sums[chunk.base + (*first - chunk.begin)] += query.values[i] * weights_.values[first - entries];
            }
        }
    }

private:
    Csr weights_;  // features x positions
};

// The features of each chunk and their weights, used by the hash and search layouts.
struct ChunkRows {
    std::vector<std::int64_t> chunk_starts;  // first index into `features` for each chunk, followed by the end
    std::vector<std::int32_t> features;      // ascending within each chunk
    std::vector<std::int64_t> row_starts;    // first index into `children` for each feature, followed by the end
    std::vector<std::int32_t> children;
    std::vector<float> weights;

    ChunkRows(const Csr& by_feature, std::span<const std::int64_t> chunks) {
        const std::size_t count = chunks.size() - 1;
        const CsrView view = by_feature.view();
        const std::vector<std::int32_t> chunk_of = chunk_of_position(chunks);
        std::vector<std::int64_t> rows(count + 1, 0);
        std::vector<std::int64_t> entries(count + 1, 0);
        for (std::int64_t f = 0; f < view.rows(); ++f)
            for_each_run(view, f, chunk_of, [&](std::int32_t chunk, std::int64_t begin, std::int64_t end) {
                ++rows[chunk + 1];
                entries[chunk + 1] += end - begin;
            });
        for (std::size_t c = 0; c < count; ++c) {
            rows[c + 1] += rows[c];
            entries[c + 1] += entries[c];
        }
        chunk_starts = rows;
        features.resize(rows.back());
        row_starts.resize(rows.back() + 1);
        row_starts.back() = entries.back();
        children.resize(entries.back());
        weights.resize(entries.back());
        for (std::int64_t f = 0; f < view.rows(); ++f)
            for_each_run(view, f, chunk_of, [&](std::int32_t chunk, std::int64_t begin, std::int64_t end) {
                features[rows[chunk]] = static_cast<std::int32_t>(f);
                row_starts[rows[chunk]++] = entries[chunk];
                for (std::int64_t e = begin; e < end; ++e) {
                    children[entries[chunk]] = static_cast<std::int32_t>(view.indices[e] - chunks[chunk]);
                    weights[entries[chunk]++] = view.values[e];
                }
            });
    }

    // Adds a row of a chunk, multiplied by x.
    void add(std::int64_t row, float x, float* out) const {
        for (std::int64_t e = row_starts[row]; e < row_starts[row + 1]; ++e) out[children[e]] += x * weights[e];
    }
};

class SearchLayout final : public Layout {
public:
    SearchLayout(const Csr& weights, std::span<const std::int64_t> chunks) : rows_(weights, chunks) {}

    void add_scores(const Query& query, std::span<const BeamChunk> beam_chunks, Scratch& scratch) const override {
        for (const BeamChunk& chunk : beam_chunks) {
            float* out = scratch.sums.reserve(0) + chunk.base;
            auto first = rows_.features.begin() + rows_.chunk_starts[chunk.parent];
            const auto last = rows_.features.begin() + rows_.chunk_starts[chunk.parent + 1];
            for (std::size_t i = 0; i < query.indices.size() && first != last; ++i) {
                first = std::lower_bound(first, last, query.indices[i]);
                if (first != last && *first == query.indices[i])
                    rows_.add(first - rows_.features.begin(), query.values[i], out);
            }
        }
    }

private:
    ChunkRows rows_;
};

class HashLayout final : public Layout {
public:
    HashLayout(const Csr& weights, std::span<const std::int64_t> chunks) : rows_(weights, chunks) {
        for (std::size_t c = 0; c + 1 < rows_.chunk_starts.size(); ++c) {
            const std::int64_t first = rows_.chunk_starts[c];
            const auto count = static_cast<std::uint64_t>(rows_.chunk_starts[c + 1] - first);
            const std::uint64_t n_slots = std::bit_ceil(std::max<std::uint64_t>(count * 2, 1));
            const std::size_t begin = slots_.size();
            tables_.push_back({static_cast<std::int64_t>(begin), n_slots - 1});
            slots_.resize(begin + n_slots);
            for (std::uint64_t i = 0; i < count; ++i) {
                const std::int32_t feature = rows_.features[first + static_cast<std::int64_t>(i)];
                std::uint64_t slot = hash(feature) & (n_slots - 1);
                while (slots_[begin + slot].feature >= 0) slot = (slot + 1) & (n_slots - 1);
                slots_[begin + slot] = {feature, first + static_cast<std::int64_t>(i)};
            }
        }
    }

    void add_scores(const Query& query, std::span<const BeamChunk> beam_chunks, Scratch& scratch) const override {
        for (const BeamChunk& chunk : beam_chunks) {
            const auto [begin, mask] = tables_[chunk.parent];
            float* out = scratch.sums.reserve(0) + chunk.base;
            for (std::size_t i = 0; i < query.indices.size(); ++i) {
                std::uint64_t slot = hash(query.indices[i]) & mask;
                const Slot* table = slots_.data() + begin;
                while (table[slot].feature >= 0 && table[slot].feature != query.indices[i]) slot = (slot + 1) & mask;
                if (table[slot].feature >= 0) rows_.add(table[slot].row, query.values[i], out);
            }
        }
    }

private:
    struct Slot {
        std::int32_t feature = -1;
        std::int64_t row = 0;
    };
    struct Table {
        std::int64_t begin;
        std::uint64_t mask;
    };

    static std::uint64_t hash(std::int32_t feature) {
        return (static_cast<std::uint64_t>(feature) * 0x9E3779B97F4A7C15ULL) >> 32;
    }

    ChunkRows rows_;
    std::vector<Slot> slots_;  // at most half full, so that unsuccessful lookups stop early
    std::vector<Table> tables_;
};

}  // namespace

std::unique_ptr<Layout> make_layout(std::string_view name, const PackedView& packed,
                                    std::span<const std::int64_t> chunks) {
    if (name == "packed") return std::make_unique<PackedLayout>(packed, chunks);
    Csr weights = unpack(packed, chunks);
    if (name == "by-label") return std::make_unique<ByLabelLayout>(weights);
    if (name == "by-feature") return std::make_unique<ByFeatureLayout>(std::move(weights));
    if (name == "hash") return std::make_unique<HashLayout>(weights, chunks);
    if (name == "search") return std::make_unique<SearchLayout>(weights, chunks);
    throw std::invalid_argument("Unknown layout '" + std::string(name) +
                                "'. Use 'packed', 'by-label', 'by-feature', 'hash' or 'search'.");
}

std::int64_t sum_padding(const PackedFormat& format) { return format.child_bytes == 1 ? 0x100 : 0x10000; }

}  // namespace carya
