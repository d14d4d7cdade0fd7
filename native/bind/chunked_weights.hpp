// The Python object that holds the weights of consecutive chunks of a layer.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "../layouts/chunk_weights.hpp"
#include "arrays.hpp"

namespace carya::bind {

// The weights of consecutive chunks of a layer, trained or memory-mapped from a checkpoint.
class PyChunkedWeights {
public:
    explicit PyChunkedWeights(std::vector<ChunkWeights>&& chunks) : trained_(std::move(chunks)) {
        for (const ChunkWeights& chunk : trained_) chunks_.push_back(chunk.view());
    }

    PyChunkedWeights(Array<std::int64_t> chunks, std::int64_t n_features, WeightDtype dtype,
                     Array<std::int64_t> run_counts, Array<std::int64_t> weight_counts, Array<std::int32_t> features,
                     Array<std::uint8_t> counts, Array<std::uint8_t> children, Array<std::uint8_t> values,
                     Array<float> scales)
        : features_(std::move(features)),
          counts_(std::move(counts)),
          children_(std::move(children)),
          values_(std::move(values)) {
        const std::size_t n_chunks = chunks.size() - 1;
        if (run_counts.size() != n_chunks || weight_counts.size() != n_chunks || scales.size() != n_chunks)
            throw std::invalid_argument("run_counts, weight_counts and scales must have one entry per chunk.");
        // Feature indices are saved as int32 and read as uint32. A negative index becomes a large unsigned number,
        // which `check` rejects.
        std::span<const std::uint32_t> all_features{reinterpret_cast<const std::uint32_t*>(features_.data()),
                                                    features_.size()};
        std::span<const std::uint8_t> all_counts = span(counts_);
        std::span<const std::uint8_t> all_children = span(children_);
        std::span<const std::uint8_t> all_values = span(values_);
        const auto take = [](auto& from, std::int64_t count) {
            if (count < 0 || static_cast<std::size_t>(count) > from.size())
                throw std::invalid_argument("The weights of a chunk are incomplete.");
            const auto taken = from.first(static_cast<std::size_t>(count));
            from = from.subspan(static_cast<std::size_t>(count));
            return taken;
        };
        for (std::size_t c = 0; c < n_chunks; ++c) {
            const std::int64_t size = span(chunks)[c + 1] - span(chunks)[c];
            const int bytes = child_index_bytes(size);
            const std::int64_t runs = span(run_counts)[c];
            const std::int64_t weights = span(weight_counts)[c];
            if (runs > std::ssize(all_features) || weights > std::ssize(all_children))
                throw std::invalid_argument("The weights of a chunk are incomplete.");
            ChunkWeightsView chunk;
            chunk.features = take(all_features, runs);
            chunk.counts = take(all_counts, runs * bytes);
            chunk.children = take(all_children, weights * bytes);
            chunk.values = take(all_values, weights * weight_bytes(dtype));
            chunk.scale = span(scales)[c];
            chunk.index_bytes = bytes;
            chunk.check(n_features, size, dtype);
            chunks_.push_back(chunk);
        }
    }

    const std::vector<ChunkWeightsView>& chunks() const { return chunks_; }

    // Whether the weights are owned by this object and not memory-mapped from a checkpoint.
    bool owns_weights() const { return !trained_.empty(); }

    void clear() {
        chunks_.clear();
        trained_.clear();
    }

    // Returns the constructor arguments that follow `dtype`.
    nb::dict arrays() const {
        std::vector<std::int64_t> run_counts;
        std::vector<std::int64_t> weight_counts;
        RawVector<std::int32_t> features;
        RawVector<std::uint8_t> counts;
        RawVector<std::uint8_t> children;
        RawVector<std::uint8_t> values;
        std::vector<float> scales;
        for (const ChunkWeightsView& chunk : chunks_) {
            run_counts.push_back(std::ssize(chunk.features));
            weight_counts.push_back(std::ssize(chunk.children) / chunk.index_bytes);
            features.insert(features.end(), chunk.features.begin(), chunk.features.end());
            counts.insert(counts.end(), chunk.counts.begin(), chunk.counts.end());
            children.insert(children.end(), chunk.children.begin(), chunk.children.end());
            values.insert(values.end(), chunk.values.begin(), chunk.values.end());
            scales.push_back(chunk.scale);
        }
        nb::dict out;
        out["run_counts"] = to_numpy(std::move(run_counts));
        out["weight_counts"] = to_numpy(std::move(weight_counts));
        out["features"] = to_numpy(std::move(features));
        out["counts"] = to_numpy(std::move(counts));
        out["children"] = to_numpy(std::move(children));
        out["values"] = to_numpy(std::move(values));
        out["scales"] = to_numpy(std::move(scales));
        return out;
    }

private:
    std::vector<ChunkWeights> trained_;
    Array<std::int32_t> features_;
    Array<std::uint8_t> counts_;
    Array<std::uint8_t> children_;
    Array<std::uint8_t> values_;
    std::vector<ChunkWeightsView> chunks_;
};

}  // namespace carya::bind
