// One block of sibling labels: from their positives and the parent's rows to sparse weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "../buffer.hpp"
#include "../kernels/kernels.hpp"
#include "../matrix.hpp"
#include "columns.hpp"
#include "rows.hpp"
#include "thresholds.hpp"

namespace carya {

struct SolverOptions {
    Loss loss = Loss::squared_hinge;
    Penalty penalty = Penalty::l2;  // l1 goes with squared_hinge and logistic
    float positive_cost = 1.0F;
    float negative_cost = 1.0F;
    float bias = 1.0F;         // value of the constant feature; 0 is none
    float tolerance = 0.005F;  // a label is done when a pass gains less than this share of all gained so far
    int max_passes = 20;
    float threshold = 0.1F;        // smaller weights are dropped
    bool by_effect = false;        // the threshold is that of a feature with values of the usual size (thresholds.hpp)
    std::int64_t max_weights = 0;  // most weights a label keeps, the largest; 0 is no limit
    bool own_costs = false;        // the values of the positives multiply their costs
};

struct Weight {
    std::uint32_t feature;
    std::uint32_t label;  // position in the layer
    float value;
};

struct Block {
    const LocalRows* rows = nullptr;
    const Features* features = nullptr;
    const CsrView* positives = nullptr;        // row l lists the training rows of label l, with their costs
    std::span<const std::int32_t> labels;      // at most 16 of them
    std::span<const std::uint32_t> positions;  // of those labels in the layer
    // Rows of this parent that are there only as positives of some children: other lanes do not see them. May be empty.
    std::span<const std::uint8_t> only_positive;
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;  // with the seed, which random order: the same for all blocks of a parent
};

// Scratch for solving blocks, one a thread.
class BlockSolver {
public:
    BlockSolver(const SolverOptions& options, const Thresholds& thresholds, const std::atomic<bool>& stop)
        : options_(options), thresholds_(thresholds), stop_(stop) {}

    // Appends the block's weights to `weights`; writes the offsets of its labels, and their dense weights, to the
    // arrays over all labels of the layer.
    void solve(const Block& block, std::vector<Weight>& weights, float* offsets, float* dense_weights);

private:
    void mark_positives(const Block& block);
    void start();
    void descend(const Block& block);
    void collect(const Block& block, std::vector<Weight>& weights);
    void collect_shared(const Block& block, const float* values, std::vector<Weight>& weights);
    void keep_largest(std::vector<Weight>& weights, std::size_t from);

    const SolverOptions& options_;
    const Thresholds& thresholds_;
    const std::atomic<bool>& stop_;
    std::size_t labels_ = 0;
    int lanes_ = 0;  // labels_ rounded up to 4, 8 or 16
    LaneProblem problem_{};
    LaneState state_{};
    ColumnDescent columns_;
    Buffer<float> weights_;
    Buffer<float> dense_weights_;
    Buffer<float> alpha_;
    Buffer<float> costs_;
    std::vector<std::uint16_t> positive_;
    std::vector<std::uint16_t> wanted_;
    std::vector<std::uint16_t> member_;
    std::vector<std::uint16_t> masks_;
    std::vector<float> own_thresholds_;  // of the features of a block
    std::vector<std::uint32_t> order_;
};

}  // namespace carya
