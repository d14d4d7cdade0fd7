// Coordinate descent over the features for L1-regularized rankers, for up to 16 sibling labels simultaneously.
//
// For each lane (label) with signs y in {-1, +1} and costs C, the optimization problem is
//
//     min over w, b   |w|_1 + sum_i C_i loss(y_i (w.x_i + b))
//
// Dual coordinate descent is not applicable, because the dual does not decompose by row. Instead, the weights are
// updated one at a time, and the scores of all rows are kept up to date. If g and H are the first and second
// derivatives of the total loss with respect to w_j, a Newton step with soft thresholding is
//
//     w_j  =  t - 1/H, t + 1/H or 0,   t = w_j - g/H.
//
// The losses are not quadratic everywhere, so each weight requires several such steps. Each step stays within an
// interval that is known to contain the minimum.
//
// The bias, which is not regularized, is optimized in the same way.

#include "kernels.hpp"
#include "simd.hpp"

namespace carya::CARYA_ISA {

namespace {

constexpr int kMaxBiasSteps = 8;
constexpr int kMaxWeightSteps = 8;
constexpr float kTiny = 1e-12F;
constexpr float kUnbounded = 1e30F;

// First and second derivatives of a row's loss with respect to its score, per lane.
template <int N>
struct LossDerivatives {
    typename Lanes<N>::Float first;
    typename Lanes<N>::Float second;
};

template <int N, Loss loss>
inline LossDerivatives<N> loss_derivatives(const L1Problem& p, std::int64_t r) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float zero = L::broadcast(0.0F);
    const auto positive = L::mask_from_bits(p.positives[r]);
    const Float y = L::select(positive, L::broadcast(1.0F), L::broadcast(-1.0F));
    Float cost = p.row_costs ? L::ref(p.row_costs + r * N)
                             : L::select(positive, L::broadcast(p.positive_cost), L::broadcast(p.negative_cost));
    if (p.included) cost = L::select(L::mask_from_bits(p.included[r]), cost, zero);
    const Float margin = y * L::ref(p.scores + r * N);
    if constexpr (loss == Loss::logistic) {
        const Float probability = 1.0F / (1.0F + L::exp(margin));
        return {-cost * y * probability, cost * probability * (1.0F - probability)};
    } else {
        const Float slack = L::max(1.0F - margin, zero);
        const Float twice = cost * 2.0F;
        return {-twice * y * slack, L::select(slack > 0.0F, twice, zero)};
    }
}

// Calls body(row, value) for each entry of a column. Dense columns follow the sparse columns.
template <class Body>
inline void for_each_entry(const L1Problem& p, std::int64_t column, const Body& body) {
    if (column < p.sparse_columns) {
        for (std::int64_t e = p.offsets[column]; e < p.offsets[column + 1]; ++e) body(p.rows[e], p.values[e]);
    } else {
        const float* x = p.dense + (column - p.sparse_columns);
        for (std::int64_t r = 0; r < p.row_count; ++r) body(r, x[p.row_ids[r] * p.dense_cols]);
    }
}

template <int N, Loss loss>
void update_weights(const L1Problem& p, const std::uint32_t* order, std::int64_t begin, std::int64_t end,
                    SolverState& state) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float zero = L::broadcast(0.0F);
    const Float one = L::broadcast(1.0F);
    const auto unconverged = L::ref(state.unconverged);
    Float gain = L::ref(state.gain);
    for (std::int64_t k = begin; k < end; ++k) {
        const std::int64_t column = order[k];
        Float& w = L::ref(p.weights + column * N);
        Float low = L::broadcast(-kUnbounded);
        Float high = L::broadcast(kUnbounded);
        for (int step = 0; step < kMaxWeightSteps; ++step) {
            Float g = zero;
            Float h = L::broadcast(kTiny);
            for_each_entry(p, column, [&](std::int64_t r, float x) {
                const LossDerivatives<N> derivatives = loss_derivatives<N, loss>(p, r);
                g += derivatives.first * x;
                h += derivatives.second * (x * x);
            });
            low = L::select(g + L::select(w >= 0.0F, one, -one) < 0.0F, w, low);
            high = L::select(g + L::select(w > 0.0F, one, -one) > 0.0F, w, high);
            const Float t = w - g / h;
            Float next = L::max(t - 1.0F / h, zero) + L::min(t + 1.0F / h, zero);
            // A step to a bound is replaced as well, because w has already had this value. Such steps occur with the
            // logistic loss: at the end of an overly long step, its second derivative is almost 0, so the next step can
            // lead back to the bound.
            const auto outside = (next < low) | (next > high) | ((next != w) & ((next == low) | (next == high)));
            const Float lower_bound = L::select(low > -kUnbounded, low, w - 1.0F);
            const Float upper_bound = L::select(high < kUnbounded, high, w + 1.0F);
            next = L::select(outside, (lower_bound + upper_bound) * 0.5F, next);
            const Float delta = L::select(unconverged, next - w, zero);
            if (!L::any(delta != zero)) break;
            gain += delta * delta * h * 0.5F;
            w += delta;
            for_each_entry(p, column, [&](std::int64_t r, float x) { L::ref(p.scores + r * N) += delta * x; });
        }
    }
    L::ref(state.gain) = gain;
}

template <int N, Loss loss>
void update_bias(const L1Problem& p, SolverState& state) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const auto unconverged = L::ref(state.unconverged);
    Float bias = L::ref(state.bias);
    Float low = bias - 64.0F;
    Float high = bias + 64.0F;
    for (int step = 0; step < kMaxBiasSteps; ++step) {
        Float g = L::broadcast(0.0F);
        Float h = L::broadcast(kTiny);
        for (std::int64_t r = 0; r < p.row_count; ++r) {
            const LossDerivatives<N> derivatives = loss_derivatives<N, loss>(p, r);
            g += derivatives.first;
            h += derivatives.second;
        }
        low = L::select(g < 0.0F, bias, low);
        high = L::select(g > 0.0F, bias, high);
        const Float newton = bias - g / h;
        const Float middle = (low + high) * 0.5F;
        Float next = L::select(newton < low, middle, newton);
        next = L::select(newton > high, middle, next);
        const Float delta = L::select(unconverged, next - bias, L::broadcast(0.0F));
        if (!L::any(delta != 0.0F)) break;
        bias += delta;
        for (std::int64_t r = 0; r < p.row_count; ++r) L::ref(p.scores + r * N) += delta;
    }
    L::ref(state.bias) = bias;
}

template <class Body>
void dispatch(int lanes, Loss loss, const Body& body) {
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

void l1_pass(int lanes, const L1Problem& problem, SolverState& state, const std::uint32_t* order, std::int64_t begin,
             std::int64_t end) {
    dispatch(lanes, problem.loss,
             [&]<int N, Loss loss>() { update_weights<N, loss>(problem, order, begin, end, state); });
}

void l1_update_bias(int lanes, const L1Problem& problem, SolverState& state) {
    dispatch(lanes, problem.loss, [&]<int N, Loss loss>() { update_bias<N, loss>(problem, state); });
}

}  // namespace carya::CARYA_ISA
