// Insertion of nodes into a packed layer.
#pragma once

#include <cstdint>
#include <span>

#include "chunk_weights.hpp"
#include "packed_weights.hpp"

namespace carya {

// Inserts nodes at the end of each chunk of a packed layer and returns the new packed weights. No weight of another
// node is changed. `chunks` and `new_chunks` contain the first positions of all chunks before and after the insertion;
// `added` contains the float32 weights of the added nodes of each chunk, whose children are numbered from 0.
//
// Weights of type int8 are encoded with the existing scale of their chunk, which limits their magnitude to that of the
// largest weight in the chunk; the scale of a chunk without weights is computed from the added weights.
// `max_bit_chunks` is that of the layer. Throws std::invalid_argument if a weight is NaN or infinite or a block is
// invalid.
Packed insert_nodes(const PackedView& packed, std::span<const std::int64_t> chunks,
                    std::span<const std::int64_t> new_chunks, std::span<const ChunkWeightsView> added,
                    std::int64_t max_bit_chunks, int threads);

}  // namespace carya
