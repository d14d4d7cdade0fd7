// The few loops that are compiled once for each instruction set and chosen when the library is loaded.
//
// Only plain structures cross this border, and the kernels leave no inline function that is not inlined (.ci/run looks
// for them): one compiled here for AVX-512 must never be the copy that the linker keeps for everyone.
#pragma once

#include <cstdint>

#include "../layouts/packed.hpp"
#include "../transform.hpp"

namespace carya {

inline constexpr int kMaxLanes = 16;
inline constexpr std::int64_t kTouched = 128;

enum class Loss : int { squared_hinge, hinge, logistic };
enum class Penalty : int { l2, l1 };

// One parent's training rows and up to 16 of its children, one child a lane (lane_pass.cpp says what is solved).
struct LaneProblem {
    // The rows: a local CSR over the features that at least two of them share, and a dense block.
    const std::int64_t* offsets;
    const std::uint32_t* columns;
    const float* values;
    const float* dense;           // the caller's whole dense block, row-major
    const std::int32_t* row_ids;  // the rows of `dense` that are meant
    std::int64_t dense_cols;
    const float* norms;     // squared length of each row, over all its features but the bias
    const float* unshared;  // the part of it from features that no other row has

    // The labels: bit l of positive[r] says that row r is a positive of lane l; member (if given) which lanes see r.
    const std::uint16_t* positive;
    const std::uint16_t* member;
    const float* costs;  // rows x lanes, or null: then the two costs below
    float positive_cost;
    float negative_cost;
    float bias;
    Loss loss;

    // The unknowns, all of them lane by lane: features x lanes, dense columns x lanes, rows x lanes.
    float* weights;
    float* dense_weights;
    float* alpha;

    // Bit l of wanted[r] says that lane l is to visit row r; a pass takes the bits off that are settled.
    std::uint16_t* wanted;
};

// What one pass over the rows hands to the next, per lane. `offset` is the bias as it enters a score.
struct alignas(64) LaneState {
    float offset[kMaxLanes];
    float sum[kMaxLanes];            // of y * alpha over all rows
    float old_stiffness[kMaxLanes];  // of the last pass: sum of 1/Q, and of offset/Q, over rows that can move
    float old_anchor[kMaxLanes];
    float stiffness[kMaxLanes];  // of this pass so far
    float anchor[kMaxLanes];
    float settled_stiffness[kMaxLanes];  // the same of rows that passes to come leave out
    float settled_anchor[kMaxLanes];
    float gain[kMaxLanes];         // of the dual objective in this pass
    float enough[kMaxLanes];       // the gain that keeps a row from being settled
    std::int32_t live[kMaxLanes];  // -1 while the lane is being solved, else 0
};

// The same rows and children seen by features, one column a feature (column_pass.cpp says what is solved).
struct ColumnProblem {
    const std::int64_t* offsets;  // where the entries of each sparse column begin
    const std::uint32_t* rows;
    const float* values;
    std::int64_t sparse_columns;
    const float* dense;  // the rest as in LaneProblem
    const std::int32_t* row_ids;
    std::int64_t dense_cols;
    std::int64_t row_count;
    const std::uint16_t* positive;
    const std::uint16_t* member;
    const float* costs;
    float positive_cost;
    float negative_cost;
    Loss loss;       // not the plain hinge, which has corners
    float* weights;  // columns x lanes, dense ones behind sparse ones
    float* scores;   // rows x lanes
};

// The features of a query, and the chunks it asks for.
struct PackedQuery {
    const std::int32_t* features;
    const float* values;
    std::int64_t count;
    const std::int32_t* wanted;  // the chunks asked for
    std::int64_t wanted_count;
    std::int64_t chunks;        // how many there are
    const std::uint32_t* base;  // where the sums of each chunk stand, 0 for those not asked for
};

struct Kernels {
    const char* name;
    // Sets old_stiffness and old_anchor as they are before the first pass, with alpha = 0 everywhere. For the logistic
    // loss `offset` must hold where the descent is to start.
    void (*lane_start)(int lanes, const LaneProblem& problem, LaneState& state, std::int64_t rows);
    // Visits rows order[begin..end) of a pass over `rows` rows. `lanes` is 4, 8 or 16.
    void (*lane_pass)(int lanes, const LaneProblem& problem, LaneState& state, const std::uint32_t* order,
                      std::int64_t begin, std::int64_t end, std::int64_t rows);
    // Moves the weights of columns order[begin..end), and adds to the gain of the state about what the objective fell
    // by.
    void (*column_pass)(int lanes, const ColumnProblem& problem, LaneState& state, const std::uint32_t* order,
                        std::int64_t begin, std::int64_t end);
    // Moves the offsets of the state, and the scores with them.
    void (*column_offset)(int lanes, const ColumnProblem& problem, LaneState& state);
    // Bit l of masks[i] says whether |values[i * lanes + l]| >= thresholds[i], for each of `count` rows of lanes.
    void (*mark_large)(int lanes, const float* values, std::int64_t count, const float* thresholds,
                       std::uint16_t* masks);
    float (*dot)(const float* a, const float* b, std::int64_t count);
    // The same of a sparse vector with a dense one. Columns are below 2^31.
    float (*sparse_dot)(const std::uint32_t* columns, const float* values, std::int64_t count, const float* x);
    // out[j] += scale * x[j]
    void (*add_scaled)(float* out, const float* x, float scale, std::int64_t count);
    // For every feature of a query and every chunk c asked for that the feature has weights in:
    // sums[base[c] + child] += value * weight. `base` has room for all ids of one or two bytes and `sums`, of `room`
    // floats, for all such children behind every base. Maps may add 0 to up to kTouched sums behind a chunk's own.
    void (*add_packed)(const PackedView& weights, const PackedQuery& query, float* sums, std::int64_t room);
    // Raw scores become path scores, in place: h = sums * scale + offsets, joined with the parent's score. `in_logs`
    // says that the hinge form adds logarithms instead of multiplying. `sums` is aligned and has room for whole
    // vectors.
    void (*join_scores)(const Transform& transform, bool in_logs, float parent, float scale, const float* offsets,
                        std::int64_t count, float* sums);
    // Which of `count` scores are at least `least`, ascending; returns how many. `scores` is aligned and has room for
    // whole vectors.
    std::int64_t (*above)(const float* scores, std::int64_t count, float least, std::int32_t* which);
};

// The fastest set this processor runs, or the one named by the environment variable CARYA_ISA (baseline, avx2, avx512).
const Kernels& kernels();

}  // namespace carya
