#include "block.hpp"

#include <algorithm>
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
    lanes_ = lanes_for(block.labels.size());

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
    problem_.weights = weights_.zeros(rows.features.size() * lanes_);
    problem_.dense_weights = dense_weights_.zeros(static_cast<std::size_t>(dense_cols) * lanes_);
    problem_.alpha = alpha_.zeros(count * lanes_);

    mark_positives(block);
    start(block);
    descend(block);
    collect(block, weights);
    for (std::size_t l = 0; l < block.labels.size(); ++l) {
        offsets[block.positions[l]] = state_.offset[l];
        for (std::int64_t j = 0; j < dense_cols; ++j)
            dense_weights[block.positions[l] * dense_cols + j] = problem_.dense_weights[j * lanes_ + l];
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

// With alpha = 0 everywhere a squared-hinge row is content exactly where the offset alone gives it margin 1, at o_i =
// y_i. Those are the first anchors (kernels/lane_pass.cpp), so the first offset already is the best one for rows
// without features in common. A logistic row is never content with alpha = 0: there the offset starts at the log-odds
// of the label, and the rows not yet visited count with the alpha they would have under it.
void BlockSolver::start(const Block& block) {
    state_ = {};
    const auto rows = positive_.size();
    for (std::size_t l = 0; l < block.labels.size(); ++l) {
        state_.live[l] = -1;
        if (options_.loss == Loss::hinge) continue;  // its offset starts at 0, as any other weight
        const auto is_positive = [&](std::size_t r) { return (positive_[r] >> l & 1U) != 0; };
        const auto is_member = [&](std::size_t r) { return !problem_.member || (member_[r] >> l & 1U) != 0; };
        double log_odds = 0.0;
        if (options_.loss == Loss::logistic) {
            std::size_t yes = 0;
            std::size_t no = 0;
            for (std::size_t r = 0; r < rows; ++r)
                if (is_member(r)) ++(is_positive(r) ? yes : no);
            log_odds = std::log((static_cast<double>(yes) + 0.5) / (static_cast<double>(no) + 0.5));
        }
        double stiffness = 0.0;
        double anchor = 0.0;
        for (std::size_t r = 0; r < rows; ++r) {
            if (!is_member(r)) continue;
            const bool yes = is_positive(r);
            const double cost = problem_.costs ? problem_.costs[r * lanes_ + l]
                                               : (yes ? options_.positive_cost : options_.negative_cost);
            const double norm = block.rows->norms[r];
            if (options_.loss == Loss::logistic) {
                const double p = 1.0 / (1.0 + std::exp(yes ? log_odds : -log_odds));
                const double give = 1.0 / (norm + 1.0 / (cost * p * (1.0 - p)));
                stiffness += give;
                anchor += give * log_odds + (yes ? cost * p : -cost * p);
            } else {
                const double give = 1.0 / (norm + 0.5 / cost);
                stiffness += give;
                anchor += yes ? give : -give;
            }
        }
        state_.old_stiffness[l] = static_cast<float>(stiffness);
        state_.old_anchor[l] = static_cast<float>(anchor);
    }
}

// Passes over the rows, each in a new random order, until no lane gains any more.
void BlockSolver::descend(const Block& block) {
    const auto rows = static_cast<std::int64_t>(positive_.size());
    const float ridge = options_.bias > 0.0F ? 1.0F / (options_.bias * options_.bias) : 0.0F;
    constexpr std::int64_t slice = 1 << 14;  // rows between looks at the stop flag
    order_.resize(rows);
    std::iota(order_.begin(), order_.end(), 0U);
    float gained[kMaxLanes] = {};
    for (int pass = 0; pass < options_.max_passes; ++pass) {
        Random(options_.seed, block.stream, static_cast<std::uint64_t>(pass))
            .shuffle(order_.data(), static_cast<std::uint32_t>(rows));
        for (std::int64_t begin = 0; begin < rows && !stop_.load(std::memory_order_relaxed); begin += slice)
            kernels().lane_pass(lanes_, problem_, state_, order_.data(), begin, std::min(rows, begin + slice), rows);
        bool any_live = false;
        for (int l = 0; l < lanes_; ++l) {
            if (!state_.live[l]) continue;
            if (options_.bias > 0.0F && options_.loss != Loss::hinge)
                state_.offset[l] = (state_.sum[l] + state_.anchor[l]) / (ridge + state_.stiffness[l]);
            state_.old_stiffness[l] = state_.stiffness[l];
            state_.old_anchor[l] = state_.anchor[l];
            gained[l] += state_.gain[l];
            if (state_.gain[l] <= options_.tolerance * gained[l]) state_.live[l] = 0;
            state_.stiffness[l] = state_.anchor[l] = state_.gain[l] = 0.0F;
            any_live |= state_.live[l] != 0;
        }
        if (!any_live || stop_.load(std::memory_order_relaxed)) break;
    }
}

// Appends the weights at or above the threshold: those of shared features from the solver's array, those of features
// with one row from that row's alpha.
void BlockSolver::collect(const Block& block, std::vector<Weight>& weights) {
    const LocalRows& rows = *block.rows;
    const std::size_t from = weights.size();
    const auto labels = block.labels.size();
    const float threshold = options_.threshold;
    const auto keep = [&](std::uint32_t feature, std::size_t lane, float value) {
        if (std::fabs(value) >= threshold && value != 0.0F) weights.push_back({feature, block.positions[lane], value});
    };
    for (std::size_t f = 0; f < rows.features.size(); ++f)
        for (std::size_t l = 0; l < labels; ++l) keep(rows.features[f], l, problem_.weights[f * lanes_ + l]);
    for (std::size_t r = 0; r < positive_.size(); ++r) {
        const float* alpha = problem_.alpha + r * lanes_;
        const float most = *std::max_element(alpha, alpha + labels);
        if (most * std::sqrt(rows.unshared[r]) < threshold || most == 0.0F) continue;
        for (std::int64_t e = rows.single_offsets[r]; e < rows.single_offsets[r + 1]; ++e)
            for (std::size_t l = 0; l < labels; ++l)
                keep(rows.single_features[e], l,
                     (positive_[r] >> l & 1U) ? alpha[l] * rows.single_values[e] : -alpha[l] * rows.single_values[e]);
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
