#include "layout.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "../kernels/kernels.hpp"
#include "runs.hpp"

namespace carya {

namespace {

class PackedLayout final : public Layout {
public:
    PackedLayout(const PackedView& weights, std::span<const std::int64_t> chunks)
        : weights_(weights), chunks_(static_cast<std::int64_t>(chunks.size()) - 1), nodes_(chunks.back()) {}

    void add(const Query& query, std::span<const Part> parts, Scratch& scratch) const override {
        if (weights_.form.whole) return add_whole(query, parts, scratch);
        scratch.wanted.clear();
        scratch.wanted.reserve(parts.size());  // nothing below may fail: places would stay in the table
        for (const Part& part : parts) {
            scratch.base[part.parent] = part.base;
            scratch.wanted.push_back(part.parent);
        }
        const PackedQuery asked{query.indices.data(),
                                query.values.data(),
                                static_cast<std::int64_t>(query.indices.size()),
                                scratch.wanted.data(),
                                static_cast<std::int64_t>(scratch.wanted.size()),
                                chunks_,
                                scratch.base.data()};
        kernels().add_packed(weights_, asked, scratch.sums.reserve(0), scratch.room);
        for (const Part& part : parts) scratch.base[part.parent] = 0;
    }

    float scale(std::int32_t chunk) const override { return weights_.scales.empty() ? 1.0F : weights_.scales[chunk]; }

private:
    // All nodes of the level at once, then those of each part to their place.
    void add_whole(const Query& query, std::span<const Part> parts, Scratch& scratch) const {
        constexpr std::uint32_t kBase = 0;
        const std::int64_t room = nodes_ + padding(weights_.form);
        float* whole = scratch.whole.reserve(static_cast<std::size_t>(room));
        std::fill_n(whole, nodes_ + kTouched, 0.0F);
        const PackedQuery asked{query.indices.data(),
                                query.values.data(),
                                static_cast<std::int64_t>(query.indices.size()),
                                nullptr,
                                0,
                                1,
                                &kBase};
        kernels().add_packed(weights_, asked, whole, room);
        for (const Part& part : parts)
            std::copy_n(whole + part.begin, part.size(), scratch.sums.reserve(0) + part.base);
    }

    PackedView weights_;
    std::int64_t chunks_;
    std::int64_t nodes_;
};

class ByLabel final : public Layout {
public:
    explicit ByLabel(const Csr& weights) : labels_(transpose(weights.view())), features_(labels_.cols) {}

    void add(const Query& query, std::span<const Part> parts, Scratch& scratch) const override {
        if (static_cast<std::int64_t>(scratch.query.size()) < features_) scratch.query.resize(features_);
        float* x = scratch.query.data();
        for (std::size_t i = 0; i < query.indices.size(); ++i) x[query.indices[i]] = query.values[i];
        for (const Part& part : parts) {
            float* out = scratch.sums.reserve(0) + part.base;
            for (std::int64_t label = part.begin; label < part.end; ++label) {
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

class ByFeature final : public Layout {
public:
    explicit ByFeature(Csr weights) : weights_(std::move(weights)) {}

    void add(const Query& query, std::span<const Part> parts, Scratch& scratch) const override {
        float* sums = scratch.sums.reserve(0);
        for (std::size_t i = 0; i < query.indices.size(); ++i) {
            const auto at = weights_.indices.begin();
            auto first = at + weights_.indptr[query.indices[i]];
            const auto last = at + weights_.indptr[query.indices[i] + 1];
            for (const Part& part : parts) {
                first = std::lower_bound(first, last, static_cast<std::int32_t>(part.begin));
                if (first == last) break;
                for (; first != last && *first < part.end; ++first)
                    sums[part.base + (*first - part.begin)] += query.values[i] * weights_.values[first - at];
            }
        }
    }

private:
    Csr weights_;  // features x positions
};

// The features of each chunk, and the weights of each of them: what both doubly sparse layouts share.
struct ChunkRows {
    std::vector<std::int64_t> chunk_starts;  // into features
    std::vector<std::int32_t> features;      // ascending in each chunk
    std::vector<std::int64_t> row_starts;    // into children, one more than features
    std::vector<std::int32_t> children;
    std::vector<float> weights;

    ChunkRows(const Csr& by_feature, std::span<const std::int64_t> chunks) {
        const std::size_t count = chunks.size() - 1;
        const CsrView view = by_feature.view();
        const std::vector<std::int32_t> chunk_of = chunk_of_position(chunks);
        std::vector<std::int64_t> rows(count + 1, 0);
        std::vector<std::int64_t> entries(count + 1, 0);
        for (std::int64_t f = 0; f < view.rows(); ++f)
            each_run(view, f, chunk_of, [&](std::int32_t chunk, std::int64_t begin, std::int64_t end) {
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
            each_run(view, f, chunk_of, [&](std::int32_t chunk, std::int64_t begin, std::int64_t end) {
                features[rows[chunk]] = static_cast<std::int32_t>(f);
                row_starts[rows[chunk]++] = entries[chunk];
                for (std::int64_t e = begin; e < end; ++e) {
                    children[entries[chunk]] = static_cast<std::int32_t>(view.indices[e] - chunks[chunk]);
                    weights[entries[chunk]++] = view.values[e];
                }
            });
    }

    // Adds one row of a chunk, times x.
    void add(std::int64_t row, float x, float* out) const {
        for (std::int64_t e = row_starts[row]; e < row_starts[row + 1]; ++e) out[children[e]] += x * weights[e];
    }
};

class BySearch final : public Layout {
public:
    BySearch(const Csr& weights, std::span<const std::int64_t> chunks) : rows_(weights, chunks) {}

    void add(const Query& query, std::span<const Part> parts, Scratch& scratch) const override {
        for (const Part& part : parts) {
            float* out = scratch.sums.reserve(0) + part.base;
            auto first = rows_.features.begin() + rows_.chunk_starts[part.parent];
            const auto last = rows_.features.begin() + rows_.chunk_starts[part.parent + 1];
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

class ByHash final : public Layout {
public:
    ByHash(const Csr& weights, std::span<const std::int64_t> chunks) : rows_(weights, chunks) {
        for (std::size_t c = 0; c + 1 < rows_.chunk_starts.size(); ++c) {
            const std::int64_t first = rows_.chunk_starts[c];
            const auto count = static_cast<std::uint64_t>(rows_.chunk_starts[c + 1] - first);
            const std::uint64_t room = std::bit_ceil(std::max<std::uint64_t>(count * 2, 1));
            const std::size_t begin = slots_.size();
            tables_.push_back({static_cast<std::int64_t>(begin), room - 1});
            slots_.resize(begin + room);
            for (std::uint64_t i = 0; i < count; ++i) {
                const std::int32_t feature = rows_.features[first + static_cast<std::int64_t>(i)];
                std::uint64_t at = hash(feature) & (room - 1);
                while (slots_[begin + at].feature >= 0) at = (at + 1) & (room - 1);
                slots_[begin + at] = {feature, first + static_cast<std::int64_t>(i)};
            }
        }
    }

    void add(const Query& query, std::span<const Part> parts, Scratch& scratch) const override {
        for (const Part& part : parts) {
            const auto [begin, mask] = tables_[part.parent];
            float* out = scratch.sums.reserve(0) + part.base;
            for (std::size_t i = 0; i < query.indices.size(); ++i) {
                std::uint64_t at = hash(query.indices[i]) & mask;
                const Slot* table = slots_.data() + begin;
                while (table[at].feature >= 0 && table[at].feature != query.indices[i]) at = (at + 1) & mask;
                if (table[at].feature >= 0) rows_.add(table[at].row, query.values[i], out);
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
    std::vector<Slot> slots_;  // at most half full, so that a probe for a missing feature ends soon
    std::vector<Table> tables_;
};

}  // namespace

std::unique_ptr<Layout> make_layout(std::string_view name, const PackedView& packed,
                                    std::span<const std::int64_t> chunks) {
    if (name == "packed") return std::make_unique<PackedLayout>(packed, chunks);
    Csr weights = unpack(packed, chunks);
    if (name == "by-label") return std::make_unique<ByLabel>(weights);
    if (name == "by-feature") return std::make_unique<ByFeature>(std::move(weights));
    if (name == "hash") return std::make_unique<ByHash>(weights, chunks);
    if (name == "search") return std::make_unique<BySearch>(weights, chunks);
    throw std::invalid_argument("there is no layout '" + std::string(name) + "'");
}

std::int64_t padding(const PackedForm& form) { return form.child_bytes == 1 ? 0x100 : 0x10000; }

}  // namespace carya
