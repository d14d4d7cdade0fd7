// Iterates over the weights of a feature, chunk by chunk, to build the chunked layouts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "../core/matrix.hpp"

namespace carya {

inline std::vector<std::int32_t> chunk_of_position(std::span<const std::int64_t> chunks) {
    std::vector<std::int32_t> chunk_ids(chunks.back());
    for (std::size_t c = 0; c + 1 < chunks.size(); ++c)
        std::fill(chunk_ids.begin() + chunks[c], chunk_ids.begin() + chunks[c + 1], static_cast<std::int32_t>(c));
    return chunk_ids;
}

// Calls body(chunk, begin, end) for each chunk in which a feature has weights. `weights` has shape (features,
// positions), and [begin, end) is the range of entries in the feature's row that belong to the chunk.
template <class Body>
void for_each_run(const CsrView& weights, std::int64_t feature, const std::vector<std::int32_t>& chunk_of,
                  const Body& body) {
    const std::int64_t end = weights.end(feature);
    for (std::int64_t e = weights.begin(feature); e < end;) {
        const std::int64_t begin = e;
        const std::int32_t chunk = chunk_of[weights.indices[e]];
        while (e < end && chunk_of[weights.indices[e]] == chunk) ++e;
        body(chunk, begin, e);
    }
}

}  // namespace carya
