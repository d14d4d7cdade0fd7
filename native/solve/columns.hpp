// Weights that are 0 wherever they can be: a block of sibling labels solved feature by feature
// (kernels/column_pass.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "../buffer.hpp"
#include "../kernels/kernels.hpp"
#include "rows.hpp"

namespace carya {

struct ColumnOptions {
    float tolerance;
    int max_passes;
    bool with_offset;
    std::uint64_t seed;
    std::uint64_t stream;
};

class ColumnDescent {
public:
    // Solves the labels of `lanes`, whose rows, signs and costs are given; offsets come out in the state. Columns are
    // the shared features of the rows, then the single ones, then the dense ones.
    void solve(const LaneProblem& lanes_problem, const LocalRows& rows, int lanes, const ColumnOptions& options,
               LaneState& state, const std::atomic<bool>& stop);

    const float* weights() const { return problem_.weights; }       // columns x lanes
    std::int64_t singles() const { return shared_; }                // the first single column
    std::int64_t dense() const { return problem_.sparse_columns; }  // the first dense column

private:
    void turn(const LocalRows& rows);

    ColumnProblem problem_{};
    std::int64_t shared_ = 0;
    std::vector<std::int64_t> offsets_;
    std::vector<std::uint32_t> rows_;
    std::vector<float> values_;
    std::vector<std::uint32_t> order_;
    Buffer<float> weights_;
    Buffer<float> scores_;
};

}  // namespace carya
