// Layouts store the weights of a layer and compute a query's raw scores for the nodes in the requested chunks. A
// *chunk* consists of the children of one parent.
//
// Four of the layouts are described in the paper (Section 3.1). `packed` is the default and the format of saved models.
// All layouts return the same scores up to rounding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "../core/aligned_buffer.hpp"
#include "packed_weights.hpp"

namespace carya {

// The sparse and dense features of one row.
struct Query {
    std::span<const std::int32_t> indices;
    std::span<const float> values;
    const float* dense = nullptr;
};

// A chunk to be scored and the location of its scores.
struct BeamChunk {
    std::int32_t parent;
    float parent_score;
    std::int64_t begin;  // positions [begin, end)
    std::int64_t end;
    std::uint32_t base;  // index of the chunk's first sum; never 0

    std::int64_t size() const { return end - begin; }
};

// Per-thread scratch memory. All elements of `base` and `dense_query` are 0 between uses.
struct Scratch {
    AlignedBuffer<float> sums;
    std::int64_t capacity = 0;            // number of floats in sums
    AlignedBuffer<float> level_sums;      // sums for all nodes of a level; used for merged blocks
    std::vector<std::uint32_t> base;      // index of each chunk's first sum; 0 for chunks that are not requested
    std::vector<std::int32_t> requested;  // the requested chunks
    std::vector<float> dense_query;       // one value per feature; used by layouts that look up features
};

class Layout {
public:
    virtual ~Layout() = default;
    // Computes sums[chunk.base + child] += value * weight for all sparse features. `beam_chunks` must be in ascending
    // order.
    virtual void add_scores(const Query& query, std::span<const BeamChunk> beam_chunks, Scratch& scratch) const = 0;
    // Returns the factor by which the sums of a chunk must be multiplied.
    virtual float scale([[maybe_unused]] std::int32_t chunk) const { return 1.0F; }
};

// Creates the layout with the given name:
//
// by-label     weights by label; each label's features are looked up in the query
// by-feature   weights by feature; the labels of each chunk are located by binary search
// hash         one hash table of features per chunk
// search       one sorted list of features per chunk
// packed       one block of chunks per feature
std::unique_ptr<Layout> make_layout(std::string_view name, const PackedView& packed,
                                    std::span<const std::int64_t> chunks);

// Returns the number of floats required after each base so that no child id in a damaged block is out of bounds.
std::int64_t sum_padding(const PackedFormat& format);

}  // namespace carya
