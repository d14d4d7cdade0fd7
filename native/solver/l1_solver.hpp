// L1-regularized training of a block of sibling labels by coordinate descent over the features (see
// kernels/l1_descent.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "../core/aligned_buffer.hpp"
#include "../kernels/kernels.hpp"
#include "local_rows.hpp"

namespace carya {

struct L1Options {
    float tol;
    int max_iter;
    bool with_bias;
    std::uint64_t seed;
    std::uint64_t stream;
};

class L1Solver {
public:
    // Trains the labels in `dual_problem`, which provides rows, signs and costs, and stores the biases in `state`. The
    // columns are the shared features of the rows, followed by their single features (see local_rows.hpp) and the dense
    // features.
    void solve(const DualProblem& dual_problem, const LocalRows& rows, int lanes, const L1Options& options,
               SolverState& state, const std::atomic<bool>& stop);

    const float* weights() const { return problem_.weights; }             // columns x lanes
    std::int64_t first_single() const { return n_shared_; }               // first column of the single features
    std::int64_t first_dense() const { return problem_.sparse_columns; }  // first dense column

private:
    void transpose_rows(const LocalRows& rows);

    L1Problem problem_{};
    std::int64_t n_shared_ = 0;
    std::vector<std::int64_t> offsets_;
    std::vector<std::uint32_t> rows_;
    std::vector<float> values_;
    std::vector<std::uint32_t> order_;
    AlignedBuffer<float> weights_;
    AlignedBuffer<float> scores_;
};

}  // namespace carya
