#include "l1_solver.hpp"

#include <algorithm>
#include <numeric>

#include "../core/random.hpp"

namespace carya {

// Transposes the rows, so that their entries are stored by feature.
void L1Solver::transpose_rows(const LocalRows& rows) {
    n_shared_ = static_cast<std::int64_t>(rows.feature_ids.size());
    const std::size_t singles = rows.single_features.size();
    const auto entries = static_cast<std::size_t>(rows.offsets.back());
    offsets_.assign(rows.feature_ids.size() + singles + 1, 0);
    for (std::size_t e = 0; e < entries; ++e) ++offsets_[rows.columns[e] + 1];
    for (std::size_t e = 0; e < singles; ++e) offsets_[rows.feature_ids.size() + e + 1] = 1;
    std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
    rows_.resize(entries + singles);
    values_.resize(entries + singles);
    std::vector<std::int64_t> next(offsets_.begin(), offsets_.end() - 1);
    const auto append = [&](std::size_t column, std::int64_t row, float value) {
        const auto slot = static_cast<std::size_t>(next[column]++);
        rows_[slot] = static_cast<std::uint32_t>(row);
        values_[slot] = value;
    };
    for (std::int64_t r = 0; r < rows.rows(); ++r) {
        for (std::int64_t e = rows.offsets[r]; e < rows.offsets[r + 1]; ++e) append(rows.columns[e], r, rows.values[e]);
        for (std::int64_t e = rows.single_offsets[r]; e < rows.single_offsets[r + 1]; ++e)
            append(rows.feature_ids.size() + static_cast<std::size_t>(e), r, rows.single_values[e]);
    }
}

void L1Solver::solve(const DualProblem& dual_problem, const LocalRows& rows, int lanes, const L1Options& options,
                     SolverState& state, const std::atomic<bool>& stop) {
    transpose_rows(rows);
    problem_ = {};
    problem_.offsets = offsets_.data();
    problem_.rows = rows_.data();
    problem_.values = values_.data();
    problem_.sparse_columns = static_cast<std::int64_t>(offsets_.size()) - 1;
    problem_.dense = dual_problem.dense;
    problem_.row_ids = dual_problem.row_ids;
    problem_.dense_cols = dual_problem.dense_cols;
    problem_.row_count = rows.rows();
    problem_.positives = dual_problem.positives;
    problem_.included = dual_problem.included;
    problem_.row_costs = dual_problem.row_costs;
    problem_.positive_cost = dual_problem.positive_cost;
    problem_.negative_cost = dual_problem.negative_cost;
    problem_.loss = dual_problem.loss;
    const std::int64_t columns = problem_.sparse_columns + problem_.dense_cols;
    problem_.weights = weights_.zeros(static_cast<std::size_t>(columns * lanes));
    problem_.scores = scores_.zeros(static_cast<std::size_t>(problem_.row_count * lanes));

    order_.resize(static_cast<std::size_t>(columns));
    std::iota(order_.begin(), order_.end(), 0U);
    constexpr std::int64_t columns_per_slice = 1 << 12;  // number of columns between checks of the stop flag
    float gained[kMaxLanes] = {};
    for (int pass = 0; pass < options.max_iter; ++pass) {
        if (options.with_bias) kernels().l1_update_bias(lanes, problem_, state);
        Random(options.seed, options.stream, static_cast<std::uint64_t>(pass))
            .shuffle(order_.data(), static_cast<std::uint32_t>(columns));
        for (std::int64_t begin = 0; begin < columns && !stop.load(std::memory_order_relaxed);
             begin += columns_per_slice)
            kernels().l1_pass(lanes, problem_, state, order_.data(), begin,
                              std::min(columns, begin + columns_per_slice));
        bool any_unconverged = false;
        for (int l = 0; l < lanes; ++l) {
            if (!state.unconverged[l]) continue;
            gained[l] += state.gain[l];
            if (state.gain[l] <= options.tol * gained[l]) state.unconverged[l] = 0;
            state.gain[l] = 0.0F;
            any_unconverged |= state.unconverged[l] != 0;
        }
        if (!any_unconverged || stop.load(std::memory_order_relaxed)) break;
    }
}

}  // namespace carya
