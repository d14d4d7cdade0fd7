// Trains the linear rankers of one or several layers of a label tree (Algorithm 2 of the paper, its inner step).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../matrix.hpp"
#include "../parallel.hpp"
#include "block.hpp"

namespace carya {

struct LayerProblem {
    std::int64_t level = 0;  // of the tree; with the seed and the parent it decides the order of the rows
    std::uint64_t seed = 0;
    CsrView positives;  // labels x training rows; values are costs
    // The labels grouped by parent: parent p has labels order[chunks[p]] ... order[chunks[p + 1] - 1]. The index into
    // `order` is a label's position, and positions are the columns of the weights.
    std::span<const std::int32_t> order;
    std::span<const std::int64_t> chunks;
    CsrView shortlist;       // parents x training rows: which rows each parent's labels are trained on
    bool every_row = false;  // instead of a shortlist, all rows for every parent
};

struct LayerWeights {
    Csr weights;                 // sparse features x positions
    std::vector<float> offsets;  // one a position
    std::vector<float> dense;    // positions x dense features
};

// Layers in one call, of one tree or several, must not depend on each other; they share one pool of tasks. A positive
// outside its parent's shortlist is trained on all the same, by its own label. Labels without positives get no weights
// and the offset -1, or 0 without bias. The result depends on the seeds, not on the number of threads.
std::vector<LayerWeights> train_layers(const Features& features, std::span<const LayerProblem> layers,
                                       const SolverOptions& options, int threads, Monitor& monitor);

}  // namespace carya
