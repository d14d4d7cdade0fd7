// Collects the rankings of many queries in one CSR matrix. Threads can write different rows concurrently.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "../core/matrix.hpp"
#include "ranking_order.hpp"

namespace carya {

class RankedRows {
public:
    // `top_k` is the maximum number of labels per row.
    RankedRows(std::int64_t rows, std::int64_t cols, std::int64_t top_k) : top_k_(top_k) {
        out_.cols = cols;
        out_.indptr.assign(static_cast<std::size_t>(rows) + 1, 0);
        out_.indices.resize(static_cast<std::size_t>(rows * top_k));
        out_.values.resize(out_.indices.size());
    }

    void set_row(std::int64_t row, std::span<const ScoredNode> ranking) {
        out_.indptr[row + 1] = std::ssize(ranking);
        for (std::size_t i = 0; i < ranking.size(); ++i) {
            out_.indices[row * top_k_ + static_cast<std::int64_t>(i)] = ranking[i].node;
            out_.values[row * top_k_ + static_cast<std::int64_t>(i)] = ranking[i].score;
        }
    }

    // Closes the gaps after short rows and returns the matrix.
    Csr to_csr() {
        std::int64_t filled = 0;
        for (std::size_t row = 0; row + 1 < out_.indptr.size(); ++row) {
            const std::int64_t count = out_.indptr[row + 1];
            const std::int64_t begin = static_cast<std::int64_t>(row) * top_k_;
            if (filled != begin) {
                std::copy_n(out_.indices.begin() + begin, count, out_.indices.begin() + filled);
                std::copy_n(out_.values.begin() + begin, count, out_.values.begin() + filled);
            }
            out_.indptr[row + 1] = filled += count;
        }
        out_.indices.resize(static_cast<std::size_t>(filled));
        out_.values.resize(static_cast<std::size_t>(filled));
        return std::move(out_);
    }

private:
    std::int64_t top_k_;
    Csr out_;
};

}  // namespace carya
