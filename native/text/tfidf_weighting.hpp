// Converts term counts to TF-IDF weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../core/matrix.hpp"

namespace carya {

// The number of matrix rows per task of a parallel loop.
inline constexpr std::int64_t kTextRowsPerTask = 256;

enum class Norm : int { none, l1, l2 };

// Options for computing the weight of a term from its count.
struct Weighting {
    bool binary = false;
    bool sublinear = false;  // use 1 + log(count)
    Norm norm = Norm::l2;
    double lead_weight = 0.0;  // weight of the first `lead_words` words relative to the complete text
    int lead_words = 0;

    // Returns the number of words in the lead, or 0 if the lead has no weight.
    int active_lead_words() const { return lead_weight > 0.0 ? lead_words : 0; }
};

// Returns log(n_texts / document frequency) + 1 for each feature. If `smooth` is true, the frequencies are computed as
// if one additional text contained every term.
std::vector<float> inverse_document_frequency(std::span<const std::int64_t> document_frequencies, std::int64_t n_texts,
                                              bool smooth);

// Converts counts to weights in place: applies `weighting`, multiplies by `idf` (one value per feature, or empty) and
// normalizes each row. `lead_counts` contains the counts within the leads of the texts, or is empty.
void weight_rows(Csr& counts, std::span<const std::uint8_t> lead_counts, std::span<const float> idf,
                 const Weighting& weighting, int threads);

// Converts the counts of one row to weights in place. The weights of the lead are computed in the same way as those of
// the complete text, scaled so that their norm is `lead_weight` times that of the complete text, and then added to the
// weights of the complete text.
void weight_row(std::span<const std::int32_t> indices, std::span<float> values,
                std::span<const std::uint8_t> lead_counts, std::span<const float> idf, const Weighting& weighting);

}  // namespace carya
