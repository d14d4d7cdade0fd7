// One pass of dual coordinate descent over the rows of a parent, for up to 16 sibling labels simultaneously.
//
// For each lane (label) with signs y in {-1, +1} and costs C, the optimization problem is
//
//     min over w, b   |w|^2 / 2 + b^2 / (2 B^2) + sum_i C_i loss(y_i (w.x_i + b))
//
// where B is the value of the constant bias feature. The dual is maximized over one alpha_i at a time (Hsieh et al.
// 2008 for the hinge losses, Yu et al. 2011 for the logistic loss), and w = sum_i y_i alpha_i x_i is kept up to date.
// This implementation differs from the algorithms in these papers in three ways:
//
// * Siblings share their rows. The weights w are stored by feature, with the lanes side by side, so processing one
//   feature of a row requires one cache line and one multiply-add for all lanes. Lanes are independent: the result for
//   a label does not depend on the other labels in its block.
//
// * The bias is not a feature. A bias feature would couple every pair of rows with weight B^2, which is much larger
//   than their similarity, and coordinate descent would need tens of passes (Lee and Wright 2019 study this matrix).
//   Instead, b is constant while rows are updated, and is itself updated by Newton steps that take the response of the
//   rows into account: changing b by d changes the alpha of a free row by -y d / Q. With S = sum y alpha and b_i the
//   bias at the last visit to row i,
//
//       b = B^2 S(b),   S(b) = S - sum_free (b - b_i) / Q_i
//       =>   b = (S + sum_free b_i / Q_i) / (1 / B^2 + sum_free 1 / Q_i).
//
//   The two sums are `bias_over_q_sum` and `inverse_q_sum`; rows that have not yet been visited in a pass contribute
//   through the sums from the previous pass. Three passes then reach the same objective as ten passes with a bias
//   feature. With the (unsquared) hinge loss, the response of alpha is all-or-nothing, so it has no usable derivative;
//   the bias is then treated as a feature, as in the papers.
//
// * Rows are shrunk based on their gain. If visiting a row increases a lane's dual objective by less than the row's
//   share of the stopping tolerance, the lane skips the row in the following passes; most rows are shrunk after the
//   third pass. Shrunk rows remain in the two sums above, because they would respond to a change in the bias if they
//   were visited.
//
// A feature that occurs in a single row adds y alpha x^2 to the score of that row only. It needs no weight during the
// descent; only its squared value contributes, through `single_norms`.

#include "kernels.hpp"
#include "simd.hpp"

namespace carya::CARYA_ISA {

namespace {

// Number of rows between updates of the bias. More frequent updates would waste time on divisions; less frequent
// updates would let b lag behind.
constexpr std::int64_t kBiasInterval = 16;

// The active rows are listed in advance, so that skipping the others causes no branch mispredictions.
constexpr std::int64_t kRowsPerList = 1024;  // a multiple of kBiasInterval

// Prefetch distance, in rows. The weights of the next row are prefetched from the addresses in its entries, which must
// already be in the cache.
constexpr std::int64_t kEntriesDistance = 3;
constexpr std::int64_t kEntriesPerLine = 16;

constexpr int kMaxNewtonSteps = 40;  // per row with the logistic loss; rows of norm 1 take three or four steps

constexpr bool bias_is_feature(Loss loss) { return loss == Loss::hinge; }

template <int N>
struct RowState {
    typename Lanes<N>::Float margin;  // y (w.x + b), excluding features that occur only in this row
    typename Lanes<N>::Float alpha;
    typename Lanes<N>::Float cost;
    typename Lanes<N>::Float diagonal;   // 1 / (2 C) for the squared hinge loss
    typename Lanes<N>::Float inverse_q;  // 1/Q
    float squared_norm;
    float single_norm;
};

template <int N>
struct DualStep {
    typename Lanes<N>::Float alpha;           // the updated value
    typename Lanes<N>::Float free_inverse_q;  // 1 / Q in lanes that respond to a change in the bias, otherwise 0
    typename Lanes<N>::Float q;
};

// Returns the optimal alpha of a row for each lane, with all other variables fixed.
template <int N, Loss loss>
inline DualStep<N> best_alpha(const RowState<N>& row) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float zero = L::broadcast(0.0F);
    if constexpr (loss == Loss::squared_hinge) {
        const Float gradient = row.margin - 1.0F + row.alpha * (row.diagonal + row.single_norm);
        const Float next = L::max(row.alpha - gradient * row.inverse_q, zero);
        return {next, L::select(next > 0.0F, row.inverse_q, zero), row.diagonal + row.squared_norm};
    } else if constexpr (loss == Loss::hinge) {
        const Float gradient = row.margin - 1.0F + row.alpha * row.single_norm;
        const Float next = L::min(L::max(row.alpha - gradient * row.inverse_q, zero), row.cost);
        return {next, zero, L::broadcast(row.squared_norm)};
    } else {
        // alpha = C s(t), where s is the logistic function and t solves t + Q (C s(t) - alpha) + margin = 0. The left
        // side increases with t, and `low` and `high` bracket its root. For rows with large norms, it is steep near 0
        // and flat elsewhere, which makes Newton steps oscillate; a step longer than half the bracket is therefore
        // replaced with a bisection step.
        const Float margin = row.margin + row.alpha * row.single_norm;
        const Float fixed = margin - row.squared_norm * row.alpha;
        const Float amplitude = row.squared_norm * row.cost;
        Float high = -fixed;
        Float low = high - amplitude;
        Float t = L::max(L::min(-margin, high), low);
        for (int step = 0; step < kMaxNewtonSteps; ++step) {
            const Float s = 1.0F / (1.0F + L::exp(-t));
            const Float value = t + amplitude * s + fixed;
            high = L::select(value > 0.0F, t, high);
            low = L::select(value > 0.0F, low, t);
            const Float newton = t - value / (1.0F + amplitude * s * (1.0F - s));
            const Float half = 0.5F * (high - low);
            const Float next = L::select((newton - t <= half) & (t - newton <= half), newton, low + half);
            const Float moved = L::max(next - t, t - next);
            t = next;
            if (!L::any(moved > 1e-5F * (1.0F + L::max(t, -t)))) break;
        }
        const Float s = 1.0F / (1.0F + L::exp(-t));
        const Float q = row.squared_norm + 1.0F / L::max(row.cost * s * (1.0F - s), L::broadcast(1e-12F));
        return {row.cost * s, 1.0F / q, q};
    }
}

// Sets the fields that depend on costs. Without per-row costs, there are only two distinct values, and two scalar
// divisions suffice.
template <int N, Loss loss, bool per_row_costs>
inline void set_costs(RowState<N>& row, const DualProblem& p, std::uint32_t r, typename Lanes<N>::Mask positive) {
    using L = Lanes<N>;
    constexpr float tiny = 1e-12F;  // if a row has neither features nor a bias, Q = 0, and alpha jumps to its bound
    if constexpr (per_row_costs) {
        row.cost = L::ref(p.row_costs + std::int64_t{r} * N);
        row.diagonal = loss == Loss::squared_hinge ? 0.5F / row.cost : L::broadcast(tiny);
        row.inverse_q = 1.0F / (row.squared_norm + row.diagonal);
    } else {
        const float diagonal_positive = loss == Loss::squared_hinge ? 0.5F / p.positive_cost : tiny;
        const float diagonal_negative = loss == Loss::squared_hinge ? 0.5F / p.negative_cost : tiny;
        row.cost = L::select(positive, L::broadcast(p.positive_cost), L::broadcast(p.negative_cost));
        row.diagonal = L::select(positive, L::broadcast(diagonal_positive), L::broadcast(diagonal_negative));
        row.inverse_q = L::select(positive, L::broadcast(1.0F / (row.squared_norm + diagonal_positive)),
                                  L::broadcast(1.0F / (row.squared_norm + diagonal_negative)));
    }
}

// Prefetches the data of the rows after listed[visited[v]], because rows are visited in random order. GCC removes calls
// of functions that only prefetch, unless they are inlined.
template <int N>
[[gnu::always_inline]] inline void prefetch_rows(const DualProblem& p, const std::uint32_t* listed,
                                                 const std::uint32_t* visited, std::int64_t v, std::int64_t n_visited) {
    if (v + kEntriesDistance < n_visited) {
        const std::uint32_t row = listed[visited[v + kEntriesDistance]];
        const std::int64_t last_entry = p.offsets[row + 1];
        for (std::int64_t e = p.offsets[row]; e < last_entry; e += kEntriesPerLine) {
            __builtin_prefetch(p.columns + e);
            __builtin_prefetch(p.values + e);
        }
    }
    if (v + 1 < n_visited) {
        const std::uint32_t next = listed[visited[v + 1]];
        __builtin_prefetch(p.alpha + std::int64_t{next} * N, 1, 3);
        if (p.prefetch_weights)
            for (std::int64_t e = p.offsets[next]; e < p.offsets[next + 1]; ++e)
                __builtin_prefetch(p.weights + std::int64_t{p.columns[e]} * N, 1, 2);
    }
}

template <int N, Loss loss, bool per_row_costs>
void run_pass(const DualProblem& p, SolverState& state, const std::uint32_t* order, std::int64_t begin,
              std::int64_t end, std::int64_t rows) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    using Mask = typename L::Mask;
    const Mask unconverged = L::ref(state.unconverged);
    const Float previous_inverse_q = L::ref(state.previous_inverse_q);
    const Float previous_bias_over_q = L::ref(state.previous_bias_over_q);
    Float bias = L::ref(state.bias);
    Float signed_alpha_sum = L::ref(state.signed_alpha_sum);
    Float inverse_q_sum = L::ref(state.inverse_q_sum);
    Float bias_over_q_sum = L::ref(state.bias_over_q_sum);
    Float shrunk_inverse_q = L::ref(state.shrunk_inverse_q);
    Float shrunk_bias_over_q = L::ref(state.shrunk_bias_over_q);
    Float gain = L::ref(state.gain);
    const Float shrink_below = L::ref(state.shrink_below);
    const std::uint32_t unconverged_lanes = L::bits_from_mask(unconverged);
    const Float one = L::broadcast(1.0F);
    const Float zero = L::broadcast(0.0F);
    const float bias_penalty = p.bias_feature > 0.0F ? 1.0F / (p.bias_feature * p.bias_feature) : 0.0F;

    std::int64_t bias_updated_at = -1;
    std::uint32_t visited[kRowsPerList];
    for (std::int64_t list_begin = begin; list_begin < end; list_begin += kRowsPerList) {
        const std::uint32_t* const listed = order + list_begin;
        const std::int64_t n_listed = end - list_begin < kRowsPerList ? end - list_begin : kRowsPerList;
        std::int64_t n_visited = 0;
        for (std::int64_t i = 0; i < n_listed; ++i) {
            visited[n_visited] = static_cast<std::uint32_t>(i);  // overwritten if the row is not active
            n_visited += (p.active[listed[i]] & unconverged_lanes) != 0;
        }
        for (std::int64_t v = 0; v < n_visited; ++v) {
            // The bias is updated at fixed positions in the row order, regardless of which rows other lanes visit.
            const std::int64_t block_start = (list_begin + visited[v]) / kBiasInterval * kBiasInterval;
            if (!bias_is_feature(loss) && block_start > bias_updated_at && p.bias_feature > 0.0F) {
                bias_updated_at = block_start;
                const float remaining = 1.0F - static_cast<float>(block_start) / static_cast<float>(rows);
                const Float newton = (signed_alpha_sum + bias_over_q_sum + remaining * previous_bias_over_q) /
                                     (bias_penalty + inverse_q_sum + remaining * previous_inverse_q);
                bias = L::select(unconverged, newton, bias);
            }
            prefetch_rows<N>(p, listed, visited, v, n_visited);
            const std::uint32_t r = listed[visited[v]];
            const std::int64_t first = p.offsets[r];
            const std::int64_t last = p.offsets[r + 1];
            const float* x = p.dense + std::int64_t{p.dense_cols > 0 ? p.row_ids[r] : 0} * p.dense_cols;

            Float a0 = bias, a1 = zero, a2 = zero, a3 = zero;
            std::int64_t e = first;
            for (; e + 4 <= last; e += 4) {
                a0 += L::ref(p.weights + std::int64_t{p.columns[e]} * N) * p.values[e];
                a1 += L::ref(p.weights + std::int64_t{p.columns[e + 1]} * N) * p.values[e + 1];
                a2 += L::ref(p.weights + std::int64_t{p.columns[e + 2]} * N) * p.values[e + 2];
                a3 += L::ref(p.weights + std::int64_t{p.columns[e + 3]} * N) * p.values[e + 3];
            }
            for (; e < last; ++e) a0 += L::ref(p.weights + std::int64_t{p.columns[e]} * N) * p.values[e];
            std::int64_t j = 0;
            for (; j + 4 <= p.dense_cols; j += 4) {
                a0 += L::ref(p.dense_weights + j * N) * x[j];
                a1 += L::ref(p.dense_weights + (j + 1) * N) * x[j + 1];
                a2 += L::ref(p.dense_weights + (j + 2) * N) * x[j + 2];
                a3 += L::ref(p.dense_weights + (j + 3) * N) * x[j + 3];
            }
            for (; j < p.dense_cols; ++j) a0 += L::ref(p.dense_weights + j * N) * x[j];
            const Float score = (a0 + a1) + (a2 + a3);

            const Mask positive = L::mask_from_bits(p.positives[r]);
            const std::uint32_t active = p.active[r] & unconverged_lanes;
            const Mask visits = L::mask_from_bits(p.included ? active & p.included[r] : active);
            const Float y = L::select(positive, one, -one);
            RowState<N> row;
            row.margin = y * score;
            row.alpha = L::ref(p.alpha + std::int64_t{r} * N);
            row.squared_norm = p.squared_norms[r] + (bias_is_feature(loss) ? p.bias_feature * p.bias_feature : 0.0F);
            row.single_norm = p.single_norms[r];
            set_costs<N, loss, per_row_costs>(row, p, r, positive);
            const DualStep<N> step = best_alpha<N, loss>(row);
            const Float free_inverse_q = L::select(visits, step.free_inverse_q, zero);
            inverse_q_sum += free_inverse_q;
            bias_over_q_sum += free_inverse_q * bias;
            const Float delta = L::select(visits, step.alpha - row.alpha, zero);
            const Float gains = step.q * delta * delta * 0.5F;
            const Mask stays_active = gains >= shrink_below;
            p.active[r] = static_cast<std::uint16_t>(active & L::bits_from_mask(stays_active));
            shrunk_inverse_q += L::select(stays_active, zero, free_inverse_q);
            shrunk_bias_over_q += L::select(stays_active, zero, free_inverse_q * bias);
            if (!L::any(delta != zero)) continue;
            gain += gains;
            L::ref(p.alpha + std::int64_t{r} * N) = row.alpha + delta;
            const Float signed_delta = y * delta;
            signed_alpha_sum += signed_delta;
            if constexpr (bias_is_feature(loss)) bias += signed_delta * (p.bias_feature * p.bias_feature);
            // Load four weights before storing the first, because a store delays the following loads.
            for (e = first; e + 4 <= last; e += 4) {
                Float& w0 = L::ref(p.weights + std::int64_t{p.columns[e]} * N);
                Float& w1 = L::ref(p.weights + std::int64_t{p.columns[e + 1]} * N);
                Float& w2 = L::ref(p.weights + std::int64_t{p.columns[e + 2]} * N);
                Float& w3 = L::ref(p.weights + std::int64_t{p.columns[e + 3]} * N);
                const Float n0 = w0 + signed_delta * p.values[e];
                const Float n1 = w1 + signed_delta * p.values[e + 1];
                const Float n2 = w2 + signed_delta * p.values[e + 2];
                const Float n3 = w3 + signed_delta * p.values[e + 3];
                w0 = n0;
                w1 = n1;
                w2 = n2;
                w3 = n3;
            }
            for (; e < last; ++e) L::ref(p.weights + std::int64_t{p.columns[e]} * N) += signed_delta * p.values[e];
            for (j = 0; j < p.dense_cols; ++j) L::ref(p.dense_weights + j * N) += signed_delta * x[j];
        }
    }
    L::ref(state.bias) = bias;
    L::ref(state.signed_alpha_sum) = signed_alpha_sum;
    L::ref(state.inverse_q_sum) = inverse_q_sum;
    L::ref(state.bias_over_q_sum) = bias_over_q_sum;
    L::ref(state.shrunk_inverse_q) = shrunk_inverse_q;
    L::ref(state.shrunk_bias_over_q) = shrunk_bias_over_q;
    L::ref(state.gain) = gain;
}

// Computes the initial sums. With the squared hinge loss, a row is optimal at alpha = 0 if the bias alone gives it a
// margin of 1, that is, if b_i = y_i; the initial bias is therefore optimal if no two rows share a feature. With the
// logistic loss, no row is optimal at alpha = 0; unvisited rows contribute the alpha that they would have at the
// initial bias.
template <int N, Loss loss, bool per_row_costs>
void initialize(const DualProblem& p, SolverState& state, std::int64_t rows) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float one = L::broadcast(1.0F);
    const Float zero = L::broadcast(0.0F);
    const Float bias = L::ref(state.bias);
    Float inverse_q_sum = zero;
    Float bias_over_q_sum = zero;
    for (std::int64_t r = 0; r < rows; ++r) {
        const auto positive = L::mask_from_bits(p.positives[r]);
        const Float y = L::select(positive, one, -one);
        RowState<N> row;
        row.squared_norm = p.squared_norms[r];
        set_costs<N, loss, per_row_costs>(row, p, static_cast<std::uint32_t>(r), positive);
        Float free_inverse_q = row.inverse_q;
        Float bias_term = y * free_inverse_q;
        if constexpr (loss == Loss::logistic) {
            const Float probability = 1.0F / (1.0F + L::exp(y * bias));
            free_inverse_q = 1.0F / (row.squared_norm + 1.0F / (row.cost * probability * (1.0F - probability)));
            bias_term = free_inverse_q * bias + y * row.cost * probability;
        }
        const auto visits = p.included ? L::mask_from_bits(p.included[r]) : L::mask_from_bits(0xFFFF);
        inverse_q_sum += L::select(visits, free_inverse_q, zero);
        bias_over_q_sum += L::select(visits, bias_term, zero);
    }
    L::ref(state.previous_inverse_q) = inverse_q_sum;
    L::ref(state.previous_bias_over_q) = bias_over_q_sum;
}

// Calls body<lanes, loss, per_row_costs>() for the given problem.
template <class Body>
void dispatch(int lanes, const DualProblem& p, const Body& body) {
    const auto with_cost_kind = [&]<int N, Loss loss>() {
        p.row_costs ? body.template operator()<N, loss, true>() : body.template operator()<N, loss, false>();
    };
    const auto with_loss = [&]<int N>() {
        switch (p.loss) {
            case Loss::squared_hinge: return with_cost_kind.template operator()<N, Loss::squared_hinge>();
            case Loss::hinge: return with_cost_kind.template operator()<N, Loss::hinge>();
            case Loss::logistic: return with_cost_kind.template operator()<N, Loss::logistic>();
        }
    };
    switch (lanes) {
        case 4: return with_loss.template operator()<4>();
        case 8: return with_loss.template operator()<8>();
        default: return with_loss.template operator()<16>();
    }
}

}  // namespace

void dual_start(int lanes, const DualProblem& problem, SolverState& state, std::int64_t rows) {
    if (bias_is_feature(problem.loss)) return;  // the bias starts at 0, like any other weight
    dispatch(lanes, problem,
             [&]<int N, Loss loss, bool per_row_costs>() { initialize<N, loss, per_row_costs>(problem, state, rows); });
}

void dual_pass(int lanes, const DualProblem& problem, SolverState& state, const std::uint32_t* order,
               std::int64_t begin, std::int64_t end, std::int64_t rows) {
    dispatch(lanes, problem, [&]<int N, Loss loss, bool per_row_costs>() {
        run_pass<N, loss, per_row_costs>(problem, state, order, begin, end, rows);
    });
}

}  // namespace carya::CARYA_ISA
