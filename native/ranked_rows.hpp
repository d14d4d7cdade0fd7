// The rankings of many queries as one CSR matrix, written by several threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "matrix.hpp"

namespace carya {

struct Scored {
    std::int32_t node;
    float score;
};

// Ties go to the lower node.
inline bool better(const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.node < b.node;
}

class RankedRows {
public:
    // At most `top_k` labels a row.
    RankedRows(std::int64_t rows, std::int64_t cols, std::int64_t top_k) : top_k_(top_k) {
        out_.cols = cols;
        out_.indptr.assign(static_cast<std::size_t>(rows) + 1, 0);
        out_.indices.resize(static_cast<std::size_t>(rows * top_k));
        out_.values.resize(out_.indices.size());
    }

    void put(std::int64_t row, std::span<const Scored> best) {
        out_.indptr[row + 1] = std::ssize(best);
        for (std::size_t i = 0; i < best.size(); ++i) {
            out_.indices[row * top_k_ + static_cast<std::int64_t>(i)] = best[i].node;
            out_.values[row * top_k_ + static_cast<std::int64_t>(i)] = best[i].score;
        }
    }

    // All of them, the gaps behind rows of fewer labels closed.
    Csr take() {
        std::int64_t filled = 0;
        for (std::size_t row = 0; row + 1 < out_.indptr.size(); ++row) {
            const std::int64_t count = out_.indptr[row + 1];
            const std::int64_t from = static_cast<std::int64_t>(row) * top_k_;
            if (filled != from) {
                std::copy_n(out_.indices.begin() + from, count, out_.indices.begin() + filled);
                std::copy_n(out_.values.begin() + from, count, out_.values.begin() + filled);
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
