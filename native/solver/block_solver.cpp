#include "block_solver.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace carya {

namespace {

// Weights up to this size stay in the L2 cache of current processors, so prefetching them would only waste time.
constexpr std::size_t kCacheBytes = std::size_t{1} << 20;

int lanes_for(std::size_t labels) { return labels <= 4 ? 4 : labels <= 8 ? 8 : 16; }

}  // namespace

void BlockSolver::solve(const LabelBlock& block, BlockWeights& weights, float* biases, float* dense_weights) {
    const LocalRows& rows = *block.rows;
    const auto count = static_cast<std::size_t>(rows.rows());
    const std::int64_t dense_cols = block.features->dense.cols;
    n_labels_ = block.labels.size();
    lanes_ = lanes_for(n_labels_);

    problem_ = {};
    problem_.offsets = rows.offsets.data();
    problem_.columns = rows.columns;
    problem_.values = rows.values;
    problem_.dense = block.features->dense.data;
    problem_.row_ids = rows.row_ids.data();
    problem_.dense_cols = dense_cols;
    problem_.squared_norms = rows.squared_norms.data();
    problem_.single_norms = rows.single_norms.data();
    problem_.positive_cost = options_.positive_cost;
    problem_.negative_cost = options_.negative_cost;
    problem_.bias_feature = options_.bias_feature;
    problem_.loss = options_.loss;

    mark_positives(block);
    const float* dense = nullptr;
    if (options_.penalty == Penalty::l1) {
        state_ = {};
        std::fill_n(state_.unconverged, n_labels_, -1);
        const L1Options l1_options{options_.tol, options_.max_iter, options_.bias_feature > 0.0F, block.seed,
                                   block.stream};
        l1_solver_.solve(problem_, rows, lanes_, l1_options, state_, stop_);
        dense = l1_solver_.weights() + l1_solver_.first_dense() * lanes_;
    } else {
        const std::size_t n_weights = rows.feature_ids.size() * lanes_;
        problem_.weights = weights_.zeros(n_weights);
        problem_.prefetch_weights = n_weights * sizeof(float) > kCacheBytes;
        problem_.dense_weights = dense_weights_.zeros(static_cast<std::size_t>(dense_cols) * lanes_);
        problem_.alpha = alpha_.zeros(count * lanes_);
        initialize(block);
        run_passes(block);
        dense = problem_.dense_weights;
    }
    collect_weights(block, weights);
    for (std::size_t l = 0; l < block.labels.size(); ++l) {
        biases[block.positions[l]] = state_.bias[l];
        for (std::int64_t j = 0; j < dense_cols; ++j)
            dense_weights[block.positions[l] * dense_cols + j] = dense[j * lanes_ + static_cast<std::int64_t>(l)];
    }
}

// Sets the bit masks of positive and included rows and, if there are target costs or sample weights, the cost of each
// row.
void BlockSolver::mark_positives(const LabelBlock& block) {
    const std::vector<std::int32_t>& ids = block.rows->row_ids;
    positives_.assign(ids.size(), 0);
    float* costs = nullptr;
    const std::span<const float> sample_weights = block.sample_weights;
    if (options_.use_target_costs || !sample_weights.empty()) {
        costs = row_costs_.reserve(ids.size() * lanes_);
        std::fill_n(costs, ids.size() * lanes_, options_.negative_cost);
    }
    for (std::size_t l = 0; l < block.labels.size(); ++l) {
        const CsrView& positives = *block.positives;
        auto from = ids.begin();
        for (std::int64_t e = positives.begin(block.labels[l]); e < positives.end(block.labels[l]); ++e) {
            from = std::lower_bound(from, ids.end(), positives.indices[e]);
            const auto row = static_cast<std::size_t>(from - ids.begin());
            positives_[row] = static_cast<std::uint16_t>(positives_[row] | (1U << l));
            if (costs)
                costs[row * lanes_ + l] =
                    options_.positive_cost * (options_.use_target_costs ? positives.values[e] : 1.0F);
        }
    }
    if (!sample_weights.empty())
        for (std::size_t r = 0; r < ids.size(); ++r)
            for (int l = 0; l < lanes_; ++l) costs[r * lanes_ + l] *= sample_weights[ids[r]];
    problem_.row_costs = costs;
    problem_.positives = positives_.data();
    problem_.included = nullptr;
    if (!block.positive_only.empty()) {
        included_.assign(ids.size(), 0xFFFF);
        for (std::size_t r = 0; r < ids.size(); ++r)
            if (block.positive_only[r]) included_[r] = positives_[r];
        problem_.included = included_.data();
    }
}

void BlockSolver::initialize(const LabelBlock& block) {
    state_ = {};
    std::fill_n(state_.unconverged, n_labels_, -1);
    const auto rows = static_cast<std::int64_t>(positives_.size());
    if (options_.loss == Loss::logistic && options_.bias_feature > 0.0F) {
        for (std::size_t l = 0; l < n_labels_; ++l) {
            double n_positive = 0.5;
            double n_negative = 0.5;
            for (std::int64_t r = 0; r < rows; ++r) {
                if (problem_.included && !(included_[r] >> l & 1U)) continue;
                const double weight = block.sample_weights.empty() ? 1.0 : block.sample_weights[block.rows->row_ids[r]];
                (positives_[r] >> l & 1U ? n_positive : n_negative) += weight;
            }
            state_.bias[l] = static_cast<float>(std::log(n_positive / n_negative));
        }
    }
    kernels().dual_start(lanes_, problem_, state_, rows);
}

// Makes passes over the rows, each in a new random order, until all lanes have converged or max_iter is reached.
void BlockSolver::run_passes(const LabelBlock& block) {
    const auto rows = static_cast<std::int64_t>(positives_.size());
    const float bias_penalty =
        options_.bias_feature > 0.0F ? 1.0F / (options_.bias_feature * options_.bias_feature) : 0.0F;
    constexpr std::int64_t rows_per_slice = 1 << 14;  // number of rows between checks of the stop flag
    constexpr int all_rows_interval = 8;              // number of passes after which shrunk rows are visited again
    order_.reset(rows);
    float gained[kMaxLanes] = {};
    for (int pass = 0; pass < options_.max_iter; ++pass) {
        const bool all_rows = pass % all_rows_interval == 0;
        if (all_rows) active_.assign(rows, 0xFFFF);
        problem_.active = active_.data();
        for (int l = 0; l < lanes_; ++l) {
            if (all_rows) {
                state_.previous_inverse_q[l] += state_.shrunk_inverse_q[l];
                state_.previous_bias_over_q[l] += state_.shrunk_bias_over_q[l];
                state_.shrunk_inverse_q[l] = state_.shrunk_bias_over_q[l] = 0.0F;
            }
            state_.inverse_q_sum[l] = state_.shrunk_inverse_q[l];
            state_.bias_over_q_sum[l] = state_.shrunk_bias_over_q[l];
            state_.shrink_below[l] =
                options_.tol * gained[l] / static_cast<float>(rows);  // 0 in the first pass, so that no row is shrunk
        }
        const std::uint32_t* order = order_.shuffle(block.seed, block.stream, pass);
        for (std::int64_t begin = 0; begin < rows && !stop_.load(std::memory_order_relaxed); begin += rows_per_slice)
            kernels().dual_pass(lanes_, problem_, state_, order, begin, std::min(rows, begin + rows_per_slice), rows);
        bool any_unconverged = false;
        for (int l = 0; l < lanes_; ++l) {
            if (!state_.unconverged[l]) continue;
            if (options_.bias_feature > 0.0F && options_.loss != Loss::hinge)
                state_.bias[l] =
                    (state_.signed_alpha_sum[l] + state_.bias_over_q_sum[l]) / (bias_penalty + state_.inverse_q_sum[l]);
            state_.previous_inverse_q[l] = state_.inverse_q_sum[l] - state_.shrunk_inverse_q[l];
            state_.previous_bias_over_q[l] = state_.bias_over_q_sum[l] - state_.shrunk_bias_over_q[l];
            gained[l] += state_.gain[l];
            if (state_.gain[l] <= options_.tol * gained[l]) state_.unconverged[l] = 0;
            state_.gain[l] = 0.0F;
            any_unconverged |= state_.unconverged[l] != 0;
        }
        if (!any_unconverged || stop_.load(std::memory_order_relaxed)) break;
    }
}

// Collects, for the shared features, the weights whose magnitudes reach the thresholds of their features. `values` has
// shape (features, lanes).
void BlockSolver::collect_shared_weights(const LabelBlock& block, const float* values, BlockWeights& out) {
    const RawVector<std::uint32_t>& features = block.rows->feature_ids;
    out.masks.resize(features.size());
    block_thresholds_.resize(features.size());
    std::transform(features.begin(), features.end(), block_thresholds_.begin(),
                   [&](std::uint32_t f) { return thresholds_[f]; });
    kernels().mark_large_weights(lanes_, values, static_cast<std::int64_t>(features.size()), block_thresholds_.data(),
                                 out.masks.data());
    const auto all_lanes = static_cast<std::uint16_t>((1U << n_labels_) - 1);
    for (std::size_t f = 0; f < features.size(); ++f) {
        out.masks[f] &= all_lanes;
        for (unsigned mask = out.masks[f]; mask != 0; mask &= mask - 1)
            out.values.push_back(values[f * lanes_ + static_cast<std::size_t>(std::countr_zero(mask))]);
    }
}

// Collects all weights whose magnitudes reach the thresholds of their features. With L2 regularization, the weight of a
// feature that occurs in only one row is computed from the row's alpha; with L1 regularization, the feature has its own
// column.
void BlockSolver::collect_weights(const LabelBlock& block, BlockWeights& out) {
    const LocalRows& rows = *block.rows;
    out.clear();
    for (std::size_t l = 0; l < n_labels_; ++l)
        out.children[l] = block.positions[l] - static_cast<std::uint32_t>(block.first_position);
    const auto add_weight = [&](std::uint32_t feature, std::size_t label, float value) {
        if (std::fabs(value) >= thresholds_[feature]) out.entries.push_back({feature, out.children[label], value});
    };
    if (options_.penalty == Penalty::l1) {
        collect_shared_weights(block, l1_solver_.weights(), out);
        const float* singles = l1_solver_.weights() + l1_solver_.first_single() * lanes_;
        for (std::size_t e = 0; e < rows.single_features.size(); ++e)
            for (std::size_t l = 0; l < n_labels_; ++l) add_weight(rows.single_features[e], l, singles[e * lanes_ + l]);
    } else {
        collect_shared_weights(block, problem_.weights, out);
        for (std::size_t r = 0; r < positives_.size(); ++r) {
            if (rows.largest_single[r] == 0.0F) continue;
            const float* alpha = problem_.alpha + r * lanes_;
            const float min_alpha = thresholds_.minimum() / rows.largest_single[r];
            for (std::size_t l = 0; l < n_labels_; ++l) {
                if (alpha[l] < min_alpha) continue;
                const float signed_alpha = (positives_[r] >> l & 1U) ? alpha[l] : -alpha[l];
                for (std::int64_t e = rows.single_offsets[r]; e < rows.single_offsets[r + 1]; ++e)
                    add_weight(rows.single_features[e], l, signed_alpha * rows.single_values[e]);
            }
        }
    }
    if (options_.max_weights > 0) keep_largest(block, out);
}

// Keeps the `max_weights` largest weights of each label in the block; ties are broken in favor of the lower feature
// index.
void BlockSolver::keep_largest(const LabelBlock& block, BlockWeights& weights) {
    std::vector<WeightEntry>& entries = weights.entries;
    std::size_t next = 0;
    for (std::size_t f = 0; f < weights.masks.size(); ++f)
        for (unsigned mask = weights.masks[f]; mask != 0; mask &= mask - 1)
            entries.push_back(
                {block.rows->feature_ids[f], weights.children[std::countr_zero(mask)], weights.values[next++]});
    weights.masks.clear();
    weights.values.clear();
    std::sort(entries.begin(), entries.end(), [](const WeightEntry& a, const WeightEntry& b) {
        if (a.child != b.child) return a.child < b.child;
        const float x = std::fabs(a.value);
        const float y = std::fabs(b.value);
        return x != y ? x > y : a.feature < b.feature;
    });
    std::size_t kept = 0;
    std::int64_t rank = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        rank = i > 0 && entries[i].child == entries[i - 1].child ? rank + 1 : 0;
        if (rank < options_.max_weights) entries[kept++] = entries[i];
    }
    entries.resize(kept);
}

}  // namespace carya
