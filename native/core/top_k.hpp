// Selection of the k largest entries of each row, and tests for the existence of entries; used by the metrics.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "matrix.hpp"

namespace carya {

// Arrays of shape (rows, k), sorted by descending value; ties are broken in favor of the lower column index. Rows with
// fewer than k entries are padded.
struct TopK {
    std::vector<std::int32_t> columns;  // padded with -1
    std::vector<float> values;          // padded with 0
};

TopK row_topk(const CsrView& matrix, std::int64_t k, int threads);

// Returns whether row i of the matrix has an entry in column columns[i * k + j], for each row i and each j < k. The
// rows of the matrix must be sorted.
std::vector<std::uint8_t> contains(const CsrView& matrix, std::span<const std::int32_t> columns, std::int64_t k,
                                   int threads);

}  // namespace carya
