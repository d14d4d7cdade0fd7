// Converts term counts to TF-IDF weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../core/matrix.hpp"

namespace carya {

enum class Norm : int { none, l1, l2 };

// Options for computing the weight of a term from its count.
struct Weighting {
    bool binary = false;
    bool sublinear = false;  // use 1 + log(count)
    Norm norm = Norm::l2;
};

// Returns log(n_texts / document frequency) + 1 for each feature. If `smooth` is true, the frequencies are computed as
// if one additional text contained every term.
std::vector<float> inverse_document_frequency(std::span<const std::int64_t> document_frequencies, std::int64_t n_texts,
                                              bool smooth);

// Converts counts to weights in place: applies `weighting`, multiplies by `idf` (one value per feature, or empty) and
// normalizes each row.
void weight_rows(Csr& counts, std::span<const float> idf, const Weighting& weighting, int threads);

// Converts the counts of one row to weights in place.
void weight_row(std::span<const std::int32_t> indices, std::span<float> values, std::span<const float> idf,
                const Weighting& weighting);

}  // namespace carya
