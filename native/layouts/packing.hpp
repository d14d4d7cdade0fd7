// Conversion of weights to the packed format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "../core/matrix.hpp"
#include "chunk_weights.hpp"
#include "packed_weights.hpp"

namespace carya {

// Packs the weights of all chunks of a layer, which must have passed ChunkWeightsView::check. `chunks` contains the
// first position of each chunk, followed by the end position. If the weights take at least `min_discarded_bytes`, their
// memory pages are released while they are packed, so that the weights and the result are never both completely in
// memory; the weights must not be read afterward.
Packed pack(std::span<const ChunkWeightsView> weights, std::span<const std::int64_t> chunks, std::int64_t n_features,
            WeightDtype dtype, int threads, std::size_t min_discarded_bytes = std::numeric_limits<std::size_t>::max());

// Packs a matrix of shape (features, positions), which must have passed CsrView::check. `scales` contains one scale per
// chunk for int8 weights; weights that were unpacked with these scales are packed without loss. By default, the scales
// are computed.
Packed pack(const CsrView& weights, std::span<const std::int64_t> chunks, WeightDtype dtype, int threads,
            std::span<const float> scales = {});

// Packs the weights of chunks [first, last) of a packed layer, which become chunks 0, 1, …. No weight is changed, and
// only the result requires memory. Throws std::invalid_argument if a block is invalid.
Packed take_chunks(const PackedView& packed, std::span<const std::int64_t> chunks, std::int64_t first,
                   std::int64_t last, int threads);

}  // namespace carya
