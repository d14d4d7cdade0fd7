// Trains a block of up to 16 sibling labels on the rows of their parent.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "../core/aligned_buffer.hpp"
#include "../core/matrix.hpp"
#include "../kernels/kernels.hpp"
#include "l1_solver.hpp"
#include "local_rows.hpp"
#include "row_order.hpp"
#include "weight_collector.hpp"
#include "weight_thresholds.hpp"

namespace carya {

struct SolverOptions {
    Loss loss = Loss::squared_hinge;
    Penalty penalty = Penalty::l2;  // l1 requires the squared hinge or logistic loss
    float positive_cost = 1.0F;
    float negative_cost = 1.0F;
    float bias_feature = 1.0F;  // value of the constant bias feature; 0 disables the bias
    float tol = 0.005F;         // a label has converged when a pass yields at most this fraction of its total gain
    int max_iter = 20;
    float threshold = 0.1F;                 // weights with smaller absolute values are dropped
    bool threshold_by_effect = false;       // scale the threshold by the feature's values (see weight_thresholds.hpp)
    std::int64_t max_weights = 0;           // maximum number of weights per label; 0 means no limit
    bool use_target_costs = false;          // multiply the costs of positives by their values
    WeightDtype dtype = WeightDtype::int8;  // data type of the trained weights
};

struct LabelBlock {
    const LocalRows* rows = nullptr;
    const Features* features = nullptr;
    const CsrView* positives = nullptr;        // row l contains the positive training rows of label l; values are costs
    std::span<const float> sample_weights;     // factor for the costs of each training row; empty means 1
    std::span<const std::int32_t> labels;      // at most 16
    std::span<const std::uint32_t> positions;  // positions of these labels in the layer
    std::int64_t first_position = 0;           // position of the parent's first child
    // For each row, 1 if the row is included only because it is a positive example for some labels, otherwise 0. Rows
    // marked 1 are not used to train the other labels. May be empty.
    std::span<const std::uint8_t> positive_only;
    std::uint64_t seed = 0;
    // Together with the seed, determines the order of the rows. All blocks of a parent have the same stream.
    std::uint64_t stream = 0;
};

// Per-thread solver that owns its workspace.
class BlockSolver {
public:
    BlockSolver(const SolverOptions& options, const WeightThresholds& thresholds, const std::atomic<bool>& stop)
        : options_(options), thresholds_(thresholds), stop_(stop) {}

    // Writes the block's weights to `weights`, and the biases and dense weights of its labels to `biases` and
    // `dense_weights`, which have entries for all labels of the layer.
    void solve(const LabelBlock& block, BlockWeights& weights, float* biases, float* dense_weights);

private:
    void mark_positives(const LabelBlock& block);
    void initialize(const LabelBlock& block);
    void run_passes(const LabelBlock& block);
    void collect_weights(const LabelBlock& block, BlockWeights& out);
    void collect_shared_weights(const LabelBlock& block, const float* values, BlockWeights& out);
    void keep_largest(const LabelBlock& block, BlockWeights& weights);

    const SolverOptions& options_;
    const WeightThresholds& thresholds_;
    const std::atomic<bool>& stop_;
    std::size_t n_labels_ = 0;
    int lanes_ = 0;  // n_labels_ rounded up to 4, 8 or 16
    DualProblem problem_{};
    SolverState state_{};
    L1Solver l1_solver_;
    AlignedBuffer<float> weights_;
    AlignedBuffer<float> dense_weights_;
    AlignedBuffer<float> alpha_;
    AlignedBuffer<float> row_costs_;
    std::vector<std::uint16_t> positives_;
    std::vector<std::uint16_t> active_;
    std::vector<std::uint16_t> included_;
    std::vector<float> block_thresholds_;  // thresholds for the features of the block
    RowOrder order_;
};

}  // namespace carya
