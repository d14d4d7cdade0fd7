// Trains the linear rankers of one or more layers of a label tree (the inner step of Algorithm 2 in the paper).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"
#include "block_solver.hpp"

namespace carya {

struct LayerProblem {
    std::int64_t level = 0;  // level in the tree; the order of the rows depends on it, the seed and the parent
    std::uint64_t seed = 0;
    std::int64_t first_parent = 0;  // index of the first parent in the level if the problem is only part of a layer
    CsrView positives;              // labels x training rows; values are costs
    // Labels grouped by parent: the children of parent p are order[chunks[p]] … order[chunks[p + 1] - 1]. The index of
    // a label in `order` is its position, which is also its column in the weights.
    std::span<const std::int32_t> order;
    std::span<const std::int64_t> chunks;
    CsrView shortlist;      // parents x training rows: the rows on which each parent's labels are trained
    bool all_rows = false;  // train on all rows and ignore `shortlist`
};

struct LayerWeights {
    std::vector<ChunkWeights> chunks;  // one per parent
    std::vector<float> biases;         // one per position
    std::vector<float> dense;          // positions x dense features
};

// Trains layers of one or more trees in a single pool of tasks. The layers must not depend on each other. If a positive
// row of a label is not in the shortlist of the label's parent, the row is used only for this label. Labels without
// positives have no weights and a bias of -10,000. The costs of each training row are multiplied by its sample weight,
// which must be positive; if `sample_weights` is empty, all sample weights are 1. The result depends on the seeds, but
// not on the number of threads. Throws std::invalid_argument if the training diverges.
std::vector<LayerWeights> train_layers(const Features& features, std::span<const LayerProblem> layers,
                                       const SolverOptions& options, std::span<const float> sample_weights, int threads,
                                       Monitor& monitor);

}  // namespace carya
