#include "columns.hpp"

#include <algorithm>
#include <numeric>

#include "../random.hpp"

namespace carya {

// The rows, feature by feature.
void ColumnDescent::turn(const LocalRows& rows) {
    shared_ = static_cast<std::int64_t>(rows.features.size());
    const std::size_t singles = rows.single_features.size();
    const auto entries = static_cast<std::size_t>(rows.offsets.back());
    offsets_.assign(rows.features.size() + singles + 1, 0);
    for (std::size_t e = 0; e < entries; ++e) ++offsets_[rows.columns.data()[e] + 1];
    for (std::size_t e = 0; e < singles; ++e) offsets_[rows.features.size() + e + 1] = 1;
    std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
    rows_.resize(entries + singles);
    values_.resize(entries + singles);
    std::vector<std::int64_t> next(offsets_.begin(), offsets_.end() - 1);
    const auto put = [&](std::size_t column, std::int64_t row, float value) {
        const auto at = static_cast<std::size_t>(next[column]++);
        rows_[at] = static_cast<std::uint32_t>(row);
        values_[at] = value;
    };
    for (std::int64_t r = 0; r < rows.rows(); ++r) {
        for (std::int64_t e = rows.offsets[r]; e < rows.offsets[r + 1]; ++e)
            put(rows.columns.data()[e], r, rows.values.data()[e]);
        for (std::int64_t e = rows.single_offsets[r]; e < rows.single_offsets[r + 1]; ++e)
            put(rows.features.size() + static_cast<std::size_t>(e), r, rows.single_values[e]);
    }
}

void ColumnDescent::solve(const LaneProblem& lanes_problem, const LocalRows& rows, int lanes,
                          const ColumnOptions& options, LaneState& state, const std::atomic<bool>& stop) {
    turn(rows);
    problem_ = {};
    problem_.offsets = offsets_.data();
    problem_.rows = rows_.data();
    problem_.values = values_.data();
    problem_.sparse_columns = static_cast<std::int64_t>(offsets_.size()) - 1;
    problem_.dense = lanes_problem.dense;
    problem_.row_ids = lanes_problem.row_ids;
    problem_.dense_cols = lanes_problem.dense_cols;
    problem_.row_count = rows.rows();
    problem_.positive = lanes_problem.positive;
    problem_.member = lanes_problem.member;
    problem_.costs = lanes_problem.costs;
    problem_.positive_cost = lanes_problem.positive_cost;
    problem_.negative_cost = lanes_problem.negative_cost;
    problem_.loss = lanes_problem.loss;
    const std::int64_t columns = problem_.sparse_columns + problem_.dense_cols;
    problem_.weights = weights_.zeros(static_cast<std::size_t>(columns * lanes));
    problem_.scores = scores_.zeros(static_cast<std::size_t>(problem_.row_count * lanes));

    order_.resize(static_cast<std::size_t>(columns));
    std::iota(order_.begin(), order_.end(), 0U);
    constexpr std::int64_t slice = 1 << 12;  // columns between looks at the stop flag
    float gained[kMaxLanes] = {};
    for (int pass = 0; pass < options.max_passes; ++pass) {
        if (options.with_offset) kernels().column_offset(lanes, problem_, state);
        Random(options.seed, options.stream, static_cast<std::uint64_t>(pass))
            .shuffle(order_.data(), static_cast<std::uint32_t>(columns));
        for (std::int64_t begin = 0; begin < columns && !stop.load(std::memory_order_relaxed); begin += slice)
            kernels().column_pass(lanes, problem_, state, order_.data(), begin, std::min(columns, begin + slice));
        bool any_live = false;
        for (int l = 0; l < lanes; ++l) {
            if (!state.live[l]) continue;
            gained[l] += state.gain[l];
            if (state.gain[l] <= options.tolerance * gained[l]) state.live[l] = 0;
            state.gain[l] = 0.0F;
            any_live |= state.live[l] != 0;
        }
        if (!any_live || stop.load(std::memory_order_relaxed)) break;
    }
}

}  // namespace carya
