#include "block.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "../random.hpp"

namespace carya {

namespace {

int lanes_for(std::size_t labels) { return labels <= 4 ? 4 : labels <= 8 ? 8 : 16; }

}  // namespace

void BlockSolver::solve(const Block& block, std::vector<Weight>& weights, float* offsets, float* dense_weights) {
    const LocalRows& rows = *block.rows;
    const auto count = static_cast<std::size_t>(rows.rows());
    const std::int64_t dense_cols = block.features->dense.cols;
    labels_ = block.labels.size();
    lanes_ = lanes_for(labels_);

    problem_ = {};
    problem_.offsets = rows.offsets.data();
    problem_.columns = rows.columns.data();
    problem_.values = rows.values.data();
    problem_.dense = block.features->dense.data;
    problem_.row_ids = rows.row_ids.data();
    problem_.dense_cols = dense_cols;
    problem_.norms = rows.norms.data();
    problem_.unshared = rows.unshared.data();
    problem_.positive_cost = options_.positive_cost;
    problem_.negative_cost = options_.negative_cost;
    problem_.bias = options_.bias;
    problem_.loss = options_.loss;

    mark_positives(block);
    const float* dense = nullptr;
    if (options_.penalty == Penalty::l1) {
        state_ = {};
        std::fill_n(state_.live, labels_, -1);
        const ColumnOptions how{options_.tolerance, options_.max_passes, options_.bias > 0.0F, block.seed,
                                block.stream};
        columns_.solve(problem_, rows, lanes_, how, state_, stop_);
        dense = columns_.weights() + columns_.dense() * lanes_;
    } else {
        problem_.weights = weights_.zeros(rows.features.size() * lanes_);
        problem_.dense_weights = dense_weights_.zeros(static_cast<std::size_t>(dense_cols) * lanes_);
        problem_.alpha = alpha_.zeros(count * lanes_);
        start();
        descend(block);
        dense = problem_.dense_weights;
    }
    collect(block, weights);
    for (std::size_t l = 0; l < block.labels.size(); ++l) {
        offsets[block.positions[l]] = state_.offset[l];
        for (std::int64_t j = 0; j < dense_cols; ++j)
            dense_weights[block.positions[l] * dense_cols + j] = dense[j * lanes_ + static_cast<std::int64_t>(l)];
    }
}

// Fills the masks of the lanes, and the costs where positives have their own.
void BlockSolver::mark_positives(const Block& block) {
    const std::vector<std::int32_t>& ids = block.rows->row_ids;
    positive_.assign(ids.size(), 0);
    float* costs = nullptr;
    if (options_.own_costs) {
        costs = costs_.reserve(ids.size() * lanes_);
        std::fill_n(costs, ids.size() * lanes_, options_.negative_cost);
    }
    for (std::size_t l = 0; l < block.labels.size(); ++l) {
        const CsrView& positives = *block.positives;
        auto from = ids.begin();
        for (std::int64_t e = positives.begin(block.labels[l]); e < positives.end(block.labels[l]); ++e) {
            from = std::lower_bound(from, ids.end(), positives.indices[e]);
            const auto row = static_cast<std::size_t>(from - ids.begin());
            positive_[row] = static_cast<std::uint16_t>(positive_[row] | (1U << l));
            if (costs) costs[row * lanes_ + l] = options_.positive_cost * positives.values[e];
        }
    }
    problem_.costs = costs;
    problem_.positive = positive_.data();
    problem_.member = nullptr;
    if (!block.only_positive.empty()) {
        member_.assign(ids.size(), 0xFFFF);
        for (std::size_t r = 0; r < ids.size(); ++r)
            if (block.only_positive[r]) member_[r] = positive_[r];
        problem_.member = member_.data();
    }
}

void BlockSolver::start() {
    state_ = {};
    std::fill_n(state_.live, labels_, -1);
    const auto rows = static_cast<std::int64_t>(positive_.size());
    if (options_.loss == Loss::logistic && options_.bias > 0.0F) {
        for (std::size_t l = 0; l < labels_; ++l) {
            double yes = 0.5;
            double no = 0.5;
            for (std::int64_t r = 0; r < rows; ++r) {
                if (problem_.member && !(member_[r] >> l & 1U)) continue;
                (positive_[r] >> l & 1U ? yes : no) += 1.0;
            }
            state_.offset[l] = static_cast<float>(std::log(yes / no));
        }
    }
    kernels().lane_start(lanes_, problem_, state_, rows);
}

// Passes over the rows, each in a new random order, until no lane gains any more.
void BlockSolver::descend(const Block& block) {
    const auto rows = static_cast<std::int64_t>(positive_.size());
    const float ridge = options_.bias > 0.0F ? 1.0F / (options_.bias * options_.bias) : 0.0F;
    constexpr std::int64_t slice = 1 << 14;  // rows between looks at the stop flag
    constexpr int all_rows_every = 8;        // passes: what has settled is looked at again
    order_.resize(rows);
    std::iota(order_.begin(), order_.end(), 0U);
    float gained[kMaxLanes] = {};
    for (int pass = 0; pass < options_.max_passes; ++pass) {
        const bool all_rows = pass % all_rows_every == 0;
        if (all_rows) wanted_.assign(rows, 0xFFFF);
        problem_.wanted = wanted_.data();
        for (int l = 0; l < lanes_; ++l) {
            if (all_rows) {
                state_.old_stiffness[l] += state_.settled_stiffness[l];
                state_.old_anchor[l] += state_.settled_anchor[l];
                state_.settled_stiffness[l] = state_.settled_anchor[l] = 0.0F;
            }
            state_.stiffness[l] = state_.settled_stiffness[l];
            state_.anchor[l] = state_.settled_anchor[l];
            state_.enough[l] = options_.tolerance * gained[l] / static_cast<float>(rows);  // 0 at first: all stay
        }
        Random(block.seed, block.stream, static_cast<std::uint64_t>(pass))
            .shuffle(order_.data(), static_cast<std::uint32_t>(rows));
        for (std::int64_t begin = 0; begin < rows && !stop_.load(std::memory_order_relaxed); begin += slice)
            kernels().lane_pass(lanes_, problem_, state_, order_.data(), begin, std::min(rows, begin + slice), rows);
        bool any_live = false;
        for (int l = 0; l < lanes_; ++l) {
            if (!state_.live[l]) continue;
            if (options_.bias > 0.0F && options_.loss != Loss::hinge)
                state_.offset[l] = (state_.sum[l] + state_.anchor[l]) / (ridge + state_.stiffness[l]);
            state_.old_stiffness[l] = state_.stiffness[l] - state_.settled_stiffness[l];
            state_.old_anchor[l] = state_.anchor[l] - state_.settled_anchor[l];
            gained[l] += state_.gain[l];
            if (state_.gain[l] <= options_.tolerance * gained[l]) state_.live[l] = 0;
            state_.gain[l] = 0.0F;
            any_live |= state_.live[l] != 0;
        }
        if (!any_live || stop_.load(std::memory_order_relaxed)) break;
    }
}

// Appends the weights of shared features at or above their thresholds, from an array of features x lanes.
void BlockSolver::collect_shared(const Block& block, const float* values, std::vector<Weight>& weights) {
    const std::vector<std::uint32_t>& features = block.rows->features;
    masks_.resize(features.size());
    own_thresholds_.resize(features.size());
    std::transform(features.begin(), features.end(), own_thresholds_.begin(),
                   [&](std::uint32_t f) { return thresholds_[f]; });
    kernels().mark_large(lanes_, values, static_cast<std::int64_t>(features.size()), own_thresholds_.data(),
                         masks_.data());
    for (std::size_t f = 0; f < features.size(); ++f)
        for (unsigned mask = masks_[f]; mask != 0; mask &= mask - 1) {
            const auto lane = static_cast<std::size_t>(std::countr_zero(mask));
            if (lane < labels_) weights.push_back({features[f], block.positions[lane], values[f * lanes_ + lane]});
        }
}

// Appends all weights at or above their thresholds. Those of features with one row come from that row's alpha, or have
// columns of their own.
void BlockSolver::collect(const Block& block, std::vector<Weight>& weights) {
    const LocalRows& rows = *block.rows;
    const std::size_t from = weights.size();
    const auto take = [&](std::uint32_t feature, std::size_t label, float value) {
        if (std::fabs(value) >= thresholds_[feature]) weights.push_back({feature, block.positions[label], value});
    };
    if (options_.penalty == Penalty::l1) {
        collect_shared(block, columns_.weights(), weights);
        const float* singles = columns_.weights() + columns_.singles() * lanes_;
        for (std::size_t e = 0; e < rows.single_features.size(); ++e)
            for (std::size_t l = 0; l < labels_; ++l) take(rows.single_features[e], l, singles[e * lanes_ + l]);
        if (options_.max_weights > 0) keep_largest(weights, from);
        return;
    }
    collect_shared(block, problem_.weights, weights);
    for (std::size_t r = 0; r < positive_.size(); ++r) {
        if (rows.largest_single[r] == 0.0F) continue;
        const float* alpha = problem_.alpha + r * lanes_;
        const float enough = thresholds_.least() / rows.largest_single[r];
        for (std::size_t l = 0; l < labels_; ++l) {
            if (alpha[l] < enough) continue;
            const float signed_alpha = (positive_[r] >> l & 1U) ? alpha[l] : -alpha[l];
            for (std::int64_t e = rows.single_offsets[r]; e < rows.single_offsets[r + 1]; ++e)
                take(rows.single_features[e], l, signed_alpha * rows.single_values[e]);
        }
    }
    if (options_.max_weights > 0) keep_largest(weights, from);
}

// Cuts every label of the block down to its `max_weights` largest weights; ties go to the lower feature.
void BlockSolver::keep_largest(std::vector<Weight>& weights, std::size_t from) {
    const auto begin = weights.begin() + static_cast<std::ptrdiff_t>(from);
    std::sort(begin, weights.end(), [](const Weight& a, const Weight& b) {
        if (a.label != b.label) return a.label < b.label;
        const float x = std::fabs(a.value);
        const float y = std::fabs(b.value);
        return x != y ? x > y : a.feature < b.feature;
    });
    std::size_t kept = from;
    std::int64_t rank = 0;
    std::uint32_t label = 0;
    for (std::size_t i = from; i < weights.size(); ++i) {
        rank = i > from && weights[i].label == label ? rank + 1 : 0;
        label = weights[i].label;
        if (rank < options_.max_weights) weights[kept++] = weights[i];
    }
    weights.resize(kept);
}

}  // namespace carya
