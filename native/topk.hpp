// The best columns of each row, and which of them are right: all that the metrics need from native code.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "matrix.hpp"

namespace carya {

struct TopK {
    std::vector<std::int32_t> columns;  // rows x k, best first, ties to the lower column; -1 where the row is shorter
    std::vector<float> values;          // 0 there
};

TopK row_topk(const CsrView& matrix, std::int64_t k, int threads);

// For each row and each of its k columns, whether the matrix has an entry there. `matrix` has sorted rows.
std::vector<std::uint8_t> contains(const CsrView& matrix, std::span<const std::int32_t> columns, std::int64_t k,
                                   int threads);

}  // namespace carya
