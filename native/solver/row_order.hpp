// The random order in which the solver visits the rows of a parent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "../core/random.hpp"

namespace carya {

// A new order for each pass. In large problems, runs of consecutive rows are shuffled first, and then the rows within
// windows of many runs. The rows of a window stay in the cache or, if the features are memory-mapped and exceed the
// memory, are read from disk once per pass. Each window is a random sample of the rows, even if the rows are sorted by
// label.
class RowOrder {
public:
    void reset(std::int64_t rows) {
        rows_.resize(static_cast<std::size_t>(rows));
        std::iota(rows_.begin(), rows_.end(), 0U);
    }

    const std::uint32_t* shuffle(std::uint64_t seed, std::uint64_t stream, int pass) {
        Random random(seed, stream, static_cast<std::uint64_t>(pass));
        const auto rows = static_cast<std::uint32_t>(rows_.size());
        if (rows <= kMaxShuffledRows) {
            random.shuffle(rows_.data(), rows);
            return rows_.data();
        }
        runs_.resize((rows + kRunRows - 1) / kRunRows);
        std::iota(runs_.begin(), runs_.end(), 0U);
        random.shuffle(runs_.data(), static_cast<std::uint32_t>(runs_.size()));
        std::uint32_t* next = rows_.data();
        for (const std::uint32_t run : runs_) {
            const std::uint32_t first = run * kRunRows;
            const std::uint32_t count = std::min(kRunRows, rows - first);
            std::iota(next, next + count, first);
            next += count;
        }
        for (std::uint32_t first = 0; first < rows; first += kWindowRows)
            random.shuffle(rows_.data() + first, std::min(kWindowRows, rows - first));
        return rows_.data();
    }

private:
    static constexpr std::uint32_t kRunRows = 64;
    static constexpr std::uint32_t kWindowRows = 1U << 15;
    static constexpr std::uint32_t kMaxShuffledRows = 4 * kWindowRows;

    std::vector<std::uint32_t> rows_;
    std::vector<std::uint32_t> runs_;
};

}  // namespace carya
