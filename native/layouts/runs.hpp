// The weights of a feature, chunk by chunk: how every layout that thinks in chunks is built.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "../matrix.hpp"

namespace carya {

inline std::vector<std::int32_t> chunk_of_position(std::span<const std::int64_t> chunks) {
    std::vector<std::int32_t> of(chunks.back());
    for (std::size_t c = 0; c + 1 < chunks.size(); ++c)
        std::fill(of.begin() + chunks[c], of.begin() + chunks[c + 1], static_cast<std::int32_t>(c));
    return of;
}

// Calls body(chunk, begin, end) for each chunk that a row of weights (features x positions) has entries [begin, end)
// in.
template <class Body>
void each_run(const CsrView& weights, std::int64_t feature, const std::vector<std::int32_t>& chunk_of,
              const Body& body) {
    const std::int64_t last = weights.end(feature);
    for (std::int64_t e = weights.begin(feature); e < last;) {
        const std::int64_t begin = e;
        const std::int32_t chunk = chunk_of[weights.indices[e]];
        while (e < last && chunk_of[weights.indices[e]] == chunk) ++e;
        body(chunk, begin, e);
    }
}

}  // namespace carya
