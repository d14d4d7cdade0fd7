#include "top_k.hpp"

#include <algorithm>
#include <stdexcept>

#include "parallel.hpp"

namespace carya {

namespace {

constexpr std::int64_t kTopKRowsPerTask = 1024;

}  // namespace

TopK row_topk(const CsrView& matrix, std::int64_t k, int threads) {
    if (k < 1 || k > std::max<std::int64_t>(matrix.cols, 1))
        throw std::invalid_argument("k must be between 1 and the number of columns (" + std::to_string(matrix.cols) +
                                    ").");
    TopK out;
    out.columns.assign(matrix.rows() * k, -1);
    out.values.assign(matrix.rows() * k, 0.0F);
    parallel_each(matrix.rows(), kTopKRowsPerTask, threads, nullptr, [&](int, std::int64_t row) {
        std::vector<std::int64_t> entries(matrix.length(row));
        for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = matrix.begin(row) + static_cast<std::int64_t>(i);
        const auto ranks_before = [&](std::int64_t a, std::int64_t b) {
            const float x = matrix.values[a];
            const float y = matrix.values[b];
            return x != y ? x > y : matrix.indices[a] < matrix.indices[b];
        };
        const auto last_kept = entries.begin() + std::min<std::int64_t>(k, matrix.length(row));
        std::partial_sort(entries.begin(), last_kept, entries.end(), ranks_before);
        for (auto e = entries.begin(); e != last_kept; ++e) {
            out.columns[row * k + (e - entries.begin())] = matrix.indices[*e];
            out.values[row * k + (e - entries.begin())] = matrix.values[*e];
        }
    });
    return out;
}

std::vector<std::uint8_t> contains(const CsrView& matrix, std::span<const std::int32_t> columns, std::int64_t k,
                                   int threads) {
    if (static_cast<std::int64_t>(columns.size()) != matrix.rows() * k)
        throw std::invalid_argument("columns must have k entries per row.");
    std::vector<std::uint8_t> out(columns.size(), 0);
    parallel_each(matrix.rows(), kTopKRowsPerTask, threads, nullptr, [&](int, std::int64_t row) {
        const auto begin = matrix.indices.begin() + matrix.begin(row);
        const auto end = matrix.indices.begin() + matrix.end(row);
        for (std::int64_t i = row * k; i < (row + 1) * k; ++i) out[i] = std::binary_search(begin, end, columns[i]);
    });
    return out;
}

}  // namespace carya
