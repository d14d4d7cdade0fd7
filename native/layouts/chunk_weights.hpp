// The weights of the children of one parent, grouped by feature. Trained weights have this compact form in memory and
// in checkpoints until they are packed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../core/matrix.hpp"
#include "packed_weights.hpp"

namespace carya {

// Returns the number of bytes used to store a child index, or a number of weights minus 1, in a chunk of this size.
constexpr int child_index_bytes(std::int64_t chunk_size) {
    return chunk_size <= 0x100 ? 1 : chunk_size <= 0x10000 ? 2 : 4;
}

struct ChunkWeightsView {
    std::span<const std::uint32_t> features;  // ascending
    std::span<const std::uint8_t> counts;     // the number of weights of each feature, minus 1
    std::span<const std::uint8_t> children;  // the index of each weight's node in the chunk, ascending for each feature
    std::span<const std::uint8_t> values;    // the weights in the data type of the layer
    float scale = 1.0F;                      // factor by which int8 weights are multiplied
    int index_bytes = 1;                     // number of bytes per count and per child

    // Throws std::invalid_argument unless the arrays are consistent, the feature indices are ascending and less than
    // `n_features`, and the child indices of each feature are ascending and less than `chunk_size`.
    void check(std::int64_t n_features, std::int64_t chunk_size, WeightDtype dtype) const;
};

struct ChunkWeights {
    RawVector<std::uint32_t> features;
    RawVector<std::uint8_t> counts;
    RawVector<std::uint8_t> children;
    RawVector<std::uint8_t> values;
    float scale = 1.0F;
    int index_bytes = 1;

    ChunkWeightsView view() const { return {features, counts, children, values, scale, index_bytes}; }
};

struct WeightEntry {
    std::uint32_t feature;
    std::uint32_t child;  // index of the node in its chunk
    float value;
};

// Sorts entries by feature; entries with the same feature keep their order. `scratch` can be reused between calls.
void sort_by_feature(std::vector<WeightEntry>& entries, std::vector<WeightEntry>& scratch);

// Builds chunk weights, one chunk at a time. Weights must be appended in ascending order of their feature indices and,
// for each feature, in ascending order of their child indices.
class ChunkWeightsBuilder {
public:
    void begin_feature(std::uint32_t feature) {
        features_.push_back(feature);
        begins_.push_back(children_.size());
    }
    void append(std::uint32_t child, float value) {
        children_.push_back(child);
        values_.push_back(value);
    }
    void append_all(std::span<const WeightEntry> entries);

    // Returns the weights of a chunk with `chunk_size` nodes and starts a new one. With `scale` > 0, int8 weights are
    // encoded with this scale; by default, the scale is computed from the largest weight. Throws std::invalid_argument
    // if a weight is NaN or infinite.
    ChunkWeights finish(std::int64_t chunk_size, WeightDtype dtype, float scale = 0.0F);

private:
    std::vector<std::uint32_t> features_;
    std::vector<std::size_t> begins_;  // index of the first weight of each feature
    std::vector<std::uint32_t> children_;
    std::vector<float> values_;
};

}  // namespace carya
