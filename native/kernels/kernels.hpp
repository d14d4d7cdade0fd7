// Loops that are compiled once per instruction set. The fastest supported version is selected at run time.
//
// Arguments are plain structures, and the compiler must inline all inline functions that the kernels call (.ci/run
// checks this). Otherwise, the linker would keep only one copy of each such function for the whole library, and that
// copy might require AVX-512.
#pragma once

#include <cstdint>

#include "../layouts/packed_weights.hpp"
#include "../search/transform.hpp"

namespace carya {

inline constexpr int kMaxLanes = 16;
inline constexpr std::int64_t kBitmapPadding = 128;

enum class Loss : int { squared_hinge, hinge, logistic };
enum class Penalty : int { l2, l1 };

// The training rows of one parent and up to 16 of its children, with one child per lane. See dual_descent.cpp for the
// optimization problem.
struct DualProblem {
    // Rows: a local CSR matrix of the features that occur in at least two rows, and a dense block.
    const std::int64_t* offsets;
    const std::uint32_t* columns;
    const float* values;
    const float* dense;           // the complete dense block, row-major
    const std::int32_t* row_ids;  // the rows of `dense` that belong to the parent
    std::int64_t dense_cols;
    const float* squared_norms;  // per row, over all features except the bias
    const float* single_norms;   // contribution of features that occur in no other row

    // Labels: bit l of positives[r] is set if row r is a positive example for lane l; bit l of included[r] is set if
    // lane l is trained on row r. If `included` is null, all lanes are trained on all rows.
    const std::uint16_t* positives;
    const std::uint16_t* included;
    const float* row_costs;  // rows x lanes; if null, positive_cost and negative_cost apply
    float positive_cost;
    float negative_cost;
    float bias_feature;
    Loss loss;

    // Variables, with the lanes side by side: features x lanes, dense columns x lanes and rows x lanes.
    float* weights;
    float* dense_weights;
    float* alpha;
    bool prefetch_weights;  // whether the weights are too large for the cache

    // Bit l of active[r] is set if lane l visits row r. A pass clears the bits of the rows that it shrinks.
    std::uint16_t* active;
};

// The solver state of each lane, passed from one pass to the next. The sums of 1/Q and bias/Q are taken over the free
// rows (see dual_descent.cpp).
struct alignas(64) SolverState {
    float bias[kMaxLanes];
    float signed_alpha_sum[kMaxLanes];    // sum of y * alpha over all rows
    float previous_inverse_q[kMaxLanes];  // sums from the previous pass
    float previous_bias_over_q[kMaxLanes];
    float inverse_q_sum[kMaxLanes];  // sums from the current pass so far
    float bias_over_q_sum[kMaxLanes];
    float shrunk_inverse_q[kMaxLanes];  // sums over the rows that are currently shrunk
    float shrunk_bias_over_q[kMaxLanes];
    float gain[kMaxLanes];                // increase in the dual objective in this pass
    float shrink_below[kMaxLanes];        // rows with a smaller gain are shrunk
    std::int32_t unconverged[kMaxLanes];  // -1 until the lane has converged, then 0
};

// The same rows and children as in DualProblem, stored by column (feature). See l1_descent.cpp for
// the optimization problem.
struct L1Problem {
    const std::int64_t* offsets;  // first entry of each sparse column
    const std::uint32_t* rows;
    const float* values;
    std::int64_t sparse_columns;
    const float* dense;  // this and most of the following members are as in DualProblem
    const std::int32_t* row_ids;
    std::int64_t dense_cols;
    std::int64_t row_count;
    const std::uint16_t* positives;
    const std::uint16_t* included;
    const float* row_costs;
    float positive_cost;
    float negative_cost;
    Loss loss;       // squared_hinge or logistic; the hinge loss is not differentiable
    float* weights;  // columns x lanes, sparse columns first
    float* scores;   // rows x lanes
};

// The features of a query and the requested chunks.
struct PackedQuery {
    const std::int32_t* features;
    const float* values;
    std::int64_t count;
    const std::int32_t* requested;  // requested chunks
    std::int64_t requested_count;
    std::int64_t chunks;        // number of chunks in the level
    const std::uint32_t* base;  // index of the first sum of each chunk; 0 if not requested
};

// The features of a set of rows: bit f % 64 of seen[f / 64] is set if feature f occurs in at least one row, and the
// same bit of shared[f / 64] is set if it occurs in at least two rows. ranks[w] is the number of shared features before
// word w.
struct FeatureBits {
    std::uint64_t* seen;
    std::uint64_t* shared;
    std::uint32_t* ranks;
};

// A row split into the features that also occur in other rows and those that do not. The arrays must have space for one
// more entry than the row has.
struct SplitRow {
    std::uint32_t* columns;  // ranks of the shared features
    float* values;
    std::uint32_t* single_features;
    float* single_values;
    std::int64_t n_shared;
    std::int64_t n_single;
    float squared_norm;
    float single_norm;     // contribution of the unshared features to squared_norm
    float largest_single;  // largest absolute value of an unshared feature
};

struct Kernels {
    const char* name;
    // Initializes previous_inverse_q and previous_bias_over_q for alpha = 0. With the logistic loss, `bias` must
    // already be initialized.
    void (*dual_start)(int lanes, const DualProblem& problem, SolverState& state, std::int64_t rows);
    // Visits rows order[begin..end) in a pass over `rows` rows. `lanes` must be 4, 8 or 16.
    void (*dual_pass)(int lanes, const DualProblem& problem, SolverState& state, const std::uint32_t* order,
                      std::int64_t begin, std::int64_t end, std::int64_t rows);
    // Updates the weights of columns order[begin..end) and adds the approximate decrease in the objective to
    // state.gain.
    void (*l1_pass)(int lanes, const L1Problem& problem, SolverState& state, const std::uint32_t* order,
                    std::int64_t begin, std::int64_t end);
    // Updates the biases and adjusts the scores accordingly.
    void (*l1_update_bias)(int lanes, const L1Problem& problem, SolverState& state);
    // For each i in [0, count), sets bit l of masks[i] if |values[i * lanes + l]| >= thresholds[i].
    void (*mark_large_weights)(int lanes, const float* values, std::int64_t count, const float* thresholds,
                               std::uint16_t* masks);
    void (*mark_features)(const std::int32_t* features, std::int64_t count, const FeatureBits& bits);
    // Splits a row whose features are marked in `bits`. Sets all members of `row` except the pointers.
    void (*split_row)(const std::int32_t* features, const float* values, std::int64_t count, const FeatureBits& bits,
                      SplitRow& row);
    float (*dot)(const float* a, const float* b, std::int64_t count);
    // Returns the inner product of a sparse and a dense vector. Columns must be less than 2^31.
    float (*sparse_dot)(const std::uint32_t* columns, const float* values, std::int64_t count, const float* x);
    // Computes the inner products of a sparse vector and each of `lanes` (4 or 8) dense vectors, which are stored side
    // by side: out[l] = sum over i of values[i] * x[columns[i] * lanes + l].
    void (*sparse_dots)(int lanes, const std::uint32_t* columns, const float* values, std::int64_t count,
                        const float* x, float* out);
    // Returns the number of values whose absolute value is at least `threshold`.
    std::int64_t (*count_at_least)(const float* values, std::int64_t count, float threshold);
    // Computes out[j] += scale * x[j].
    void (*add_scaled)(float* out, const float* x, float scale, std::int64_t count);
    // Divides each value by `scale` and writes the signed square root of the quotient, rounded and clamped to the range
    // -127 to 127.
    void (*encode_signed_roots)(const float* values, std::int64_t count, float scale, std::int8_t* roots);
    // Computes sums[base[c] + child] += value * weight for each feature of the query and each requested chunk c. `base`
    // must have an entry for every one-byte or two-byte id. `sums` has `capacity` floats and must have space for every
    // one-byte or two-byte child after each base. Processing a bitmap may also add 0 to up to kBitmapPadding sums that
    // follow the sums of its chunk.
    void (*add_packed_scores)(const PackedView& weights, const PackedQuery& query, float* sums, std::int64_t capacity);
    // Converts raw scores to path scores in place: combines h = sums * scale + biases with the parent's score. If
    // `log_space` is true, the hinge transform adds the logarithms of scores instead of multiplying the scores. `sums`
    // must be aligned and padded to whole vectors.
    void (*combine_scores)(const Transform& transform, bool log_space, float parent_score, float scale,
                           const float* biases, std::int64_t count, float* sums);
    // Writes the indices of all scores >= threshold in ascending order and returns the number of indices. `scores` must
    // be aligned and padded to whole vectors.
    std::int64_t (*select_above)(const float* scores, std::int64_t count, float threshold, std::int32_t* indices);
};

// Returns the fastest kernels that this processor supports, or the kernels selected by the environment variable
// CARYA_ISA (baseline, avx2 or avx512).
const Kernels& kernels();

}  // namespace carya
