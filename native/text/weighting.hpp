// From how often terms are in texts to weights: TF-IDF.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../matrix.hpp"

namespace carya {

enum class Norm : int { none, l1, l2 };

// From how often a term is in a text to its weight.
struct Weighting {
    bool binary = false;
    bool sublinear = false;  // 1 + log(count)
    Norm norm = Norm::l2;
};

// How much rarer terms tell: log(texts / texts with it) + 1, as if one more text had them all if `smooth`.
std::vector<float> inverse_frequency(std::span<const std::int64_t> with_it, std::int64_t texts, bool smooth);

// Counts become weights, in place: weighted by `idf`, one a feature or empty, and each row normalised.
void weigh_terms(Csr& counts, std::span<const float> idf, const Weighting& weighting, int threads);

// The same for one row.
void weigh_row(std::span<const std::int32_t> indices, std::span<float> values, std::span<const float> idf,
               const Weighting& weighting);

}  // namespace carya
