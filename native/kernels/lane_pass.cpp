// One pass of dual coordinate descent over the rows of a parent, for up to 16 sibling labels at once.
//
// For each lane (label) with signs y in {-1, +1} and costs C the problem is
//
//     min over w, o   |w|^2 / 2 + o^2 / (2 bias^2) + sum_i C_i loss(y_i (w.x_i + o))
//
// and its dual in alpha is climbed one row at a time (Hsieh et al. 2008 for the hinges, Yu et al. 2011 for logistic),
// with w = sum_i y_i alpha_i x_i kept up to date. Three things differ from the textbook:
//
// * Siblings share their rows. w is kept feature by feature, its lanes side by side, so one feature of a row loads one
//   cache line and does one multiply-add for all the lanes. A lane never looks at another: its result does not depend
//   on which labels share the block.
//
// * The offset o is not a feature. As a feature it couples every pair of rows with weight bias^2, far above their own
//   similarity, and coordinate descent then needs tens of passes to spread over all rows what the first few took on
//   (Lee and Wright 2019 study exactly this matrix). Here o is held while rows move, and moved by Newton steps on what
//   the rows do in answer: a row whose alpha is free answers a change of o by -y/Q, so with S = sum y alpha, and each
//   row i last seen under the offset o_i,
//
//       o = bias^2 S(o),   S(o) = S - sum_free (o - o_i)/Q_i
//       =>   o = (S + sum_free o_i/Q_i) / (1/bias^2 + sum_free 1/Q_i).
//
//   The two sums are `anchor` and `stiffness`; rows not yet visited in this pass count with the last pass's sums.
//   Three passes then reach what the textbook reaches in ten. Under the plain hinge a row answers all or nothing, there
//   is no such slope to follow, and the offset stays the textbook's feature.
//
// * Rows settle. A row that gained a lane less than its share of what ends the descent is left out of that lane's next
//   passes: most rows are settled after the third. They keep their part in the two sums above, as rows that would
//   answer if they were asked.
//
// A feature that only one row has adds y alpha x^2 to that row's own score and to no other: it needs no weight during
// the descent, only its square in `unshared`.

#include "kernels.hpp"
#include "lanes.hpp"

namespace carya::CARYA_ISA {

namespace {

// How often the offset follows the rows. Every row costs a division for nothing; rarely, and o lags behind.
constexpr std::int64_t kOffsetEvery = 16;

constexpr int kMostNewton = 40;  // steps of a logistic row; rows of length 1 take three or four

constexpr bool offset_is_feature(Loss loss) { return loss == Loss::hinge; }

template <int N>
struct Row {                          // one row as its lanes see it
    typename Lanes<N>::Float margin;  // y (w.x + o), the row's unshared features left out
    typename Lanes<N>::Float alpha;
    typename Lanes<N>::Float cost;
    typename Lanes<N>::Float slack;    // 1/(2C) of the squared hinge
    typename Lanes<N>::Float inverse;  // 1/Q
    float norm;
    float unshared;
};

template <int N>
struct Step {
    typename Lanes<N>::Float alpha;      // the new value
    typename Lanes<N>::Float give;       // 1/Q in lanes that answer a change of the offset, 0 in others
    typename Lanes<N>::Float curvature;  // Q
};

// The best alpha of one row for every lane, all else fixed.
template <int N, Loss loss>
inline Step<N> best_alpha(const Row<N>& row) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float zero = L::same(0.0F);
    if constexpr (loss == Loss::squared_hinge) {
        const Float gradient = row.margin - 1.0F + row.alpha * (row.slack + row.unshared);
        const Float next = L::max(row.alpha - gradient * row.inverse, zero);
        return {next, next > 0.0F ? row.inverse : zero, row.slack + row.norm};
    } else if constexpr (loss == Loss::hinge) {
        const Float gradient = row.margin - 1.0F + row.alpha * row.unshared;
        const Float next = L::min(L::max(row.alpha - gradient * row.inverse, zero), row.cost);
        return {next, zero, L::same(row.norm)};
    } else {
        // alpha = C s(t), s the logistic function, where t solves t + Q (C s(t) - alpha) + margin = 0. The left side
        // grows with t and has its root between the two bounds; long rows make it steep around 0 and flat elsewhere,
        // where Newton steps jump to and fro, so that a step of more than half the way between the bounds goes to their
        // middle.
        const Float margin = row.margin + row.alpha * row.unshared;
        const Float fixed = margin - row.norm * row.alpha;
        const Float rise = row.norm * row.cost;
        Float high = -fixed;
        Float low = high - rise;
        Float t = L::max(L::min(-margin, high), low);
        for (int step = 0; step < kMostNewton; ++step) {
            const Float s = 1.0F / (1.0F + L::exp(-t));
            const Float value = t + rise * s + fixed;
            high = value > 0.0F ? t : high;
            low = value > 0.0F ? low : t;
            const Float newton = t - value / (1.0F + rise * s * (1.0F - s));
            const Float half = 0.5F * (high - low);
            const Float next = (newton - t <= half) & (t - newton <= half) ? newton : low + half;
            const Float moved = L::max(next - t, t - next);
            t = next;
            if (!L::any(moved > 1e-5F * (1.0F + L::max(t, -t)))) break;
        }
        const Float s = 1.0F / (1.0F + L::exp(-t));
        const Float curvature = row.norm + 1.0F / L::max(row.cost * s * (1.0F - s), L::same(1e-12F));
        return {row.cost * s, 1.0F / curvature, curvature};
    }
}

// Fills in what depends on the row's costs. Without costs of its own a row has two, and two scalar divisions do.
template <int N, Loss loss, bool own_costs>
inline void set_costs(Row<N>& row, const LaneProblem& p, std::uint32_t r, typename Lanes<N>::Mask positive) {
    using L = Lanes<N>;
    constexpr float tiny = 1e-12F;  // a row with neither features nor bias has Q = 0: alpha jumps to its bound
    if constexpr (own_costs) {
        row.cost = L::at(p.costs + std::int64_t{r} * N);
        row.slack = loss == Loss::squared_hinge ? 0.5F / row.cost : L::same(tiny);
        row.inverse = 1.0F / (row.norm + row.slack);
    } else {
        const float slack_yes = loss == Loss::squared_hinge ? 0.5F / p.positive_cost : tiny;
        const float slack_no = loss == Loss::squared_hinge ? 0.5F / p.negative_cost : tiny;
        row.cost = positive ? L::same(p.positive_cost) : L::same(p.negative_cost);
        row.slack = positive ? L::same(slack_yes) : L::same(slack_no);
        row.inverse = positive ? L::same(1.0F / (row.norm + slack_yes)) : L::same(1.0F / (row.norm + slack_no));
    }
}

template <int N, Loss loss, bool own_costs>
void pass(const LaneProblem& p, LaneState& state, const std::uint32_t* order, std::int64_t begin, std::int64_t end,
          std::int64_t rows) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    using Mask = typename L::Mask;
    const Mask live = L::at(state.live);
    const Float old_stiffness = L::at(state.old_stiffness);
    const Float old_anchor = L::at(state.old_anchor);
    Float offset = L::at(state.offset);
    Float sum = L::at(state.sum);
    Float stiffness = L::at(state.stiffness);
    Float anchor = L::at(state.anchor);
    Float settled_stiffness = L::at(state.settled_stiffness);
    Float settled_anchor = L::at(state.settled_anchor);
    Float gain = L::at(state.gain);
    const Float enough = L::at(state.enough);
    const std::uint32_t live_lanes = L::gather(live);
    const Float one = L::same(1.0F);
    const Float zero = L::same(0.0F);
    const float ridge = p.bias > 0.0F ? 1.0F / (p.bias * p.bias) : 0.0F;

    const auto next_wanted = [&](std::int64_t k) {
        while (k < end && !(p.wanted[order[k]] & live_lanes)) ++k;
        return k;
    };
    std::int64_t offset_at = -1;
    std::int64_t upcoming = 0;
    for (std::int64_t k = next_wanted(begin); k < end; k = upcoming) {
        // Where the offset moves depends on the places of the rows, not on which of them other lanes want.
        const std::int64_t place = k - k % kOffsetEvery;
        if (!offset_is_feature(loss) && place > offset_at && p.bias > 0.0F) {
            offset_at = place;
            const float ahead = 1.0F - static_cast<float>(place) / static_cast<float>(rows);
            const Float moved = (sum + anchor + ahead * old_anchor) / (ridge + stiffness + ahead * old_stiffness);
            offset = live ? moved : offset;
        }
        const std::uint32_t r = order[k];
        upcoming = next_wanted(k + 1);
        if (upcoming < end) {  // the weights are read at random: ask for the next row's while this one is worked on
            const std::uint32_t next = order[upcoming];
            __builtin_prefetch(p.alpha + std::int64_t{next} * N, 1, 3);
            for (std::int64_t e = p.offsets[next]; e < p.offsets[next + 1]; ++e)
                __builtin_prefetch(p.weights + std::int64_t{p.columns[e]} * N, 1, 2);
        }
        const std::int64_t first = p.offsets[r];
        const std::int64_t last = p.offsets[r + 1];
        const float* x = p.dense + std::int64_t{p.dense_cols > 0 ? p.row_ids[r] : 0} * p.dense_cols;

        Float a0 = offset, a1 = zero, a2 = zero, a3 = zero;
        std::int64_t e = first;
        for (; e + 4 <= last; e += 4) {
            a0 += L::at(p.weights + std::int64_t{p.columns[e]} * N) * p.values[e];
            a1 += L::at(p.weights + std::int64_t{p.columns[e + 1]} * N) * p.values[e + 1];
            a2 += L::at(p.weights + std::int64_t{p.columns[e + 2]} * N) * p.values[e + 2];
            a3 += L::at(p.weights + std::int64_t{p.columns[e + 3]} * N) * p.values[e + 3];
        }
        for (; e < last; ++e) a0 += L::at(p.weights + std::int64_t{p.columns[e]} * N) * p.values[e];
        std::int64_t j = 0;
        for (; j + 4 <= p.dense_cols; j += 4) {
            a0 += L::at(p.dense_weights + j * N) * x[j];
            a1 += L::at(p.dense_weights + (j + 1) * N) * x[j + 1];
            a2 += L::at(p.dense_weights + (j + 2) * N) * x[j + 2];
            a3 += L::at(p.dense_weights + (j + 3) * N) * x[j + 3];
        }
        for (; j < p.dense_cols; ++j) a0 += L::at(p.dense_weights + j * N) * x[j];
        const Float score = (a0 + a1) + (a2 + a3);

        const Mask positive = L::spread(p.positive[r]);
        const std::uint32_t wanted = p.wanted[r] & live_lanes;
        const Mask seen = L::spread(p.member ? wanted & p.member[r] : wanted);
        const Float y = positive ? one : -one;
        Row<N> row;
        row.margin = y * score;
        row.alpha = L::at(p.alpha + std::int64_t{r} * N);
        row.norm = p.norms[r] + (offset_is_feature(loss) ? p.bias * p.bias : 0.0F);
        row.unshared = p.unshared[r];
        set_costs<N, loss, own_costs>(row, p, r, positive);
        const Step<N> step = best_alpha<N, loss>(row);
        const Float give = seen ? step.give : zero;
        stiffness += give;
        anchor += give * offset;
        const Float delta = seen ? step.alpha - row.alpha : zero;
        const Float gains = step.curvature * delta * delta * 0.5F;
        const Mask keeps = gains >= enough;
        p.wanted[r] = static_cast<std::uint16_t>(wanted & L::gather(keeps));
        settled_stiffness += keeps ? zero : give;
        settled_anchor += keeps ? zero : give * offset;
        if (!L::any(delta != zero)) continue;
        gain += gains;
        L::at(p.alpha + std::int64_t{r} * N) = row.alpha + delta;
        const Float signed_delta = y * delta;
        sum += signed_delta;
        if constexpr (offset_is_feature(loss)) offset += signed_delta * (p.bias * p.bias);
        for (e = first; e < last; ++e) L::at(p.weights + std::int64_t{p.columns[e]} * N) += signed_delta * p.values[e];
        for (j = 0; j < p.dense_cols; ++j) L::at(p.dense_weights + j * N) += signed_delta * x[j];
    }
    L::at(state.offset) = offset;
    L::at(state.sum) = sum;
    L::at(state.stiffness) = stiffness;
    L::at(state.anchor) = anchor;
    L::at(state.settled_stiffness) = settled_stiffness;
    L::at(state.settled_anchor) = settled_anchor;
    L::at(state.gain) = gain;
}

// With alpha = 0 a squared-hinge row is content exactly where the offset alone gives it margin 1, at o_i = y_i: those
// are the first anchors, so the first offset already is the best one for rows without features in common. A logistic
// row is never content with alpha = 0: rows not yet visited count with the alpha they would have under the first
// offset.
template <int N, Loss loss, bool own_costs>
void start(const LaneProblem& p, LaneState& state, std::int64_t rows) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float one = L::same(1.0F);
    const Float zero = L::same(0.0F);
    const Float offset = L::at(state.offset);
    Float stiffness = zero;
    Float anchor = zero;
    for (std::int64_t r = 0; r < rows; ++r) {
        const auto positive = L::spread(p.positive[r]);
        const Float y = positive ? one : -one;
        Row<N> row;
        row.norm = p.norms[r];
        set_costs<N, loss, own_costs>(row, p, static_cast<std::uint32_t>(r), positive);
        Float give = row.inverse;
        Float pull = y * give;
        if constexpr (loss == Loss::logistic) {
            const Float share = 1.0F / (1.0F + L::exp(y * offset));
            give = 1.0F / (row.norm + 1.0F / (row.cost * share * (1.0F - share)));
            pull = give * offset + y * row.cost * share;
        }
        const auto seen = p.member ? L::spread(p.member[r]) : L::spread(0xFFFF);
        stiffness += seen ? give : zero;
        anchor += seen ? pull : zero;
    }
    L::at(state.old_stiffness) = stiffness;
    L::at(state.old_anchor) = anchor;
}

// Calls body<lanes, loss, own_costs>() for the values a problem has.
template <class Body>
void for_kind(int lanes, const LaneProblem& p, const Body& body) {
    const auto with_costs = [&]<int N, Loss loss>() {
        p.costs ? body.template operator()<N, loss, true>() : body.template operator()<N, loss, false>();
    };
    const auto with_loss = [&]<int N>() {
        switch (p.loss) {
            case Loss::squared_hinge: return with_costs.template operator()<N, Loss::squared_hinge>();
            case Loss::hinge: return with_costs.template operator()<N, Loss::hinge>();
            case Loss::logistic: return with_costs.template operator()<N, Loss::logistic>();
        }
    };
    switch (lanes) {
        case 4: return with_loss.template operator()<4>();
        case 8: return with_loss.template operator()<8>();
        default: return with_loss.template operator()<16>();
    }
}

}  // namespace

void lane_start(int lanes, const LaneProblem& problem, LaneState& state, std::int64_t rows) {
    if (offset_is_feature(problem.loss)) return;  // it starts at 0, as any other weight
    for_kind(lanes, problem,
             [&]<int N, Loss loss, bool own_costs>() { start<N, loss, own_costs>(problem, state, rows); });
}

void lane_pass(int lanes, const LaneProblem& problem, LaneState& state, const std::uint32_t* order, std::int64_t begin,
               std::int64_t end, std::int64_t rows) {
    for_kind(lanes, problem, [&]<int N, Loss loss, bool own_costs>() {
        pass<N, loss, own_costs>(problem, state, order, begin, end, rows);
    });
}

}  // namespace carya::CARYA_ISA
