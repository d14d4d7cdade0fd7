// Coordinate descent on features instead of rows, for weights that are to be 0 wherever they can, up to 16 labels at
// once.
//
// For each lane (label) with signs y in {-1, +1} and costs C the problem is
//
//     min over w, o   |w|_1 + sum_i C_i loss(y_i (w.x_i + o))
//
// Its dual is no help: rows do not come one by one there. So the weights move one by one, with the scores of all rows
// kept up to date. Along one weight the losses have the slope g and bend by H, and where they bend so everywhere the
// least point is
//
//     w_j  =  t - 1/H, t + 1/H or 0,   t = w_j - g/H.
//
// They do not, as rows come to bend and cease to, so a weight takes a few such steps, each kept between the points from
// which the least one is known to be higher and lower.
//
// The offset is not punished; it goes to where the losses are least in the same way.

#include "kernels.hpp"
#include "lanes.hpp"

namespace carya::CARYA_ISA {

namespace {

constexpr int kOffsetSteps = 8;
constexpr int kColumnSteps = 8;
constexpr float kTiny = 1e-12F;
constexpr float kFar = 1e30F;

// What the losses of one row are to its lanes: their slope by the score, and how much they bend.
template <int N>
struct Slope {
    typename Lanes<N>::Float slope;
    typename Lanes<N>::Float bend;
};

template <int N, Loss loss>
inline Slope<N> slope_of(const ColumnProblem& p, std::int64_t r) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float zero = L::same(0.0F);
    const auto positive = L::spread(p.positive[r]);
    const Float y = positive ? L::same(1.0F) : L::same(-1.0F);
    Float cost = p.costs ? L::at(p.costs + r * N) : (positive ? L::same(p.positive_cost) : L::same(p.negative_cost));
    if (p.member) cost = L::spread(p.member[r]) ? cost : zero;
    const Float margin = y * L::at(p.scores + r * N);
    if constexpr (loss == Loss::logistic) {
        const Float s = 1.0F / (1.0F + L::exp(margin));
        return {-cost * y * s, cost * s * (1.0F - s)};
    } else {
        const Float slack = L::max(1.0F - margin, zero);
        const Float twice = cost * 2.0F;
        return {-twice * y * slack, slack > 0.0F ? twice : zero};
    }
}

// body(row, value) for every entry of a column; dense ones stand behind the sparse ones.
template <class Body>
inline void each_entry(const ColumnProblem& p, std::int64_t column, const Body& body) {
    if (column < p.sparse_columns) {
        for (std::int64_t e = p.offsets[column]; e < p.offsets[column + 1]; ++e) body(p.rows[e], p.values[e]);
    } else {
        const float* x = p.dense + (column - p.sparse_columns);
        for (std::int64_t r = 0; r < p.row_count; ++r) body(r, x[p.row_ids[r] * p.dense_cols]);
    }
}

template <int N, Loss loss>
void columns(const ColumnProblem& p, const std::uint32_t* order, std::int64_t begin, std::int64_t end,
             LaneState& state) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float zero = L::same(0.0F);
    const Float one = L::same(1.0F);
    const auto live = L::at(state.live);
    Float gain = L::at(state.gain);
    for (std::int64_t k = begin; k < end; ++k) {
        const std::int64_t column = order[k];
        Float& w = L::at(p.weights + column * N);
        Float low = L::same(-kFar);
        Float high = L::same(kFar);
        for (int step = 0; step < kColumnSteps; ++step) {
            Float g = zero;
            Float h = L::same(kTiny);
            each_entry(p, column, [&](std::int64_t r, float x) {
                const Slope<N> at = slope_of<N, loss>(p, r);
                g += at.slope * x;
                h += at.bend * (x * x);
            });
            low = g + (w >= 0.0F ? one : -one) < 0.0F ? w : low;
            high = g + (w > 0.0F ? one : -one) > 0.0F ? w : high;
            const Float t = w - g / h;
            Float next = L::max(t - 1.0F / h, zero) + L::min(t + 1.0F / h, zero);
            // Back at a bound is no progress: logistic rows hardly bend where steps that are too long lead.
            const auto outside = (next < low) | (next > high) | ((next != w) & ((next == low) | (next == high)));
            const Float from = low > -kFar ? low : w - 1.0F;
            const Float to = high < kFar ? high : w + 1.0F;
            next = outside ? (from + to) * 0.5F : next;
            const Float delta = live ? next - w : zero;
            if (!L::any(delta != zero)) break;
            gain += delta * delta * h * 0.5F;
            w += delta;
            each_entry(p, column, [&](std::int64_t r, float x) { L::at(p.scores + r * N) += delta * x; });
        }
    }
    L::at(state.gain) = gain;
}

template <int N, Loss loss>
void offset(const ColumnProblem& p, LaneState& state) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const auto live = L::at(state.live);
    Float o = L::at(state.offset);
    Float low = o - 64.0F;
    Float high = o + 64.0F;
    for (int step = 0; step < kOffsetSteps; ++step) {
        Float g = L::same(0.0F);
        Float h = L::same(kTiny);
        for (std::int64_t r = 0; r < p.row_count; ++r) {
            const Slope<N> at = slope_of<N, loss>(p, r);
            g += at.slope;
            h += at.bend;
        }
        low = g < 0.0F ? o : low;
        high = g > 0.0F ? o : high;
        const Float newton = o - g / h;
        const Float middle = (low + high) * 0.5F;
        Float next = newton < low ? middle : newton;
        next = newton > high ? middle : next;
        const Float delta = live ? next - o : L::same(0.0F);
        if (!L::any(delta != 0.0F)) break;
        o += delta;
        for (std::int64_t r = 0; r < p.row_count; ++r) L::at(p.scores + r * N) += delta;
    }
    L::at(state.offset) = o;
}

template <class Body>
void for_kind(int lanes, Loss loss, const Body& body) {
    const auto with_loss = [&]<int N>() {
        loss == Loss::logistic ? body.template operator()<N, Loss::logistic>()
                               : body.template operator()<N, Loss::squared_hinge>();
    };
    switch (lanes) {
        case 4: return with_loss.template operator()<4>();
        case 8: return with_loss.template operator()<8>();
        default: return with_loss.template operator()<16>();
    }
}

}  // namespace

void column_pass(int lanes, const ColumnProblem& problem, LaneState& state, const std::uint32_t* order,
                 std::int64_t begin, std::int64_t end) {
    for_kind(lanes, problem.loss, [&]<int N, Loss loss>() { columns<N, loss>(problem, order, begin, end, state); });
}

void column_offset(int lanes, const ColumnProblem& problem, LaneState& state) {
    for_kind(lanes, problem.loss, [&]<int N, Loss loss>() { offset<N, loss>(problem, state); });
}

}  // namespace carya::CARYA_ISA
