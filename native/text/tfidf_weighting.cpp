#include "tfidf_weighting.hpp"

#include <algorithm>
#include <cmath>

#include "../core/parallel.hpp"

namespace carya {

namespace {

double term_frequency(double count, const Weighting& weighting) {
    if (weighting.binary) return 1.0;
    return weighting.sublinear ? 1.0 + std::log(count) : count;
}

}  // namespace

void weight_row(std::span<const std::int32_t> indices, std::span<float> values,
                std::span<const std::uint8_t> lead_counts, std::span<const float> idf, const Weighting& weighting) {
    const auto idf_of = [&](std::size_t i) { return idf.empty() ? 1.0 : static_cast<double>(idf[indices[i]]); };
    const auto magnitude = [&](double weight) {
        return weighting.norm == Norm::l1 ? std::fabs(weight) : weight * weight;
    };
    const auto norm_of = [&](double sum) { return weighting.norm == Norm::l1 ? sum : std::sqrt(sum); };
    double sum = 0.0;
    double lead_sum = 0.0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
        const double weight = term_frequency(values[i], weighting) * idf_of(i);
        values[i] = static_cast<float>(weight);
        sum += magnitude(weight);
        if (!lead_counts.empty() && lead_counts[i] > 0)
            lead_sum += magnitude(term_frequency(lead_counts[i], weighting) * idf_of(i));
    }
    if (lead_sum > 0.0) {
        const double factor = weighting.lead_weight * norm_of(sum) / norm_of(lead_sum);
        const double share = 1.0 / (1.0 + weighting.lead_weight);
        sum = 0.0;
        for (std::size_t i = 0; i < indices.size(); ++i) {
            double weight = values[i];
            if (lead_counts[i] > 0) weight += factor * term_frequency(lead_counts[i], weighting) * idf_of(i);
            values[i] = static_cast<float>(weight * share);
            sum += magnitude(weight * share);
        }
    }
    if (weighting.norm == Norm::none || !(sum > 0.0)) return;
    const double scale = 1.0 / norm_of(sum);
    for (float& value : values) value = static_cast<float>(value * scale);
}

std::vector<float> inverse_document_frequency(std::span<const std::int64_t> document_frequencies, std::int64_t n_texts,
                                              bool smooth) {
    std::vector<float> out;
    out.reserve(document_frequencies.size());
    const double extra = smooth ? 1.0 : 0.0;
    for (const std::int64_t count : document_frequencies) {
        const double frequency = std::max(static_cast<double>(count) + extra, 1.0);
        out.push_back(static_cast<float>(std::log((static_cast<double>(n_texts) + extra) / frequency) + 1.0));
    }
    return out;
}

void weight_rows(Csr& counts, std::span<const std::uint8_t> lead_counts, std::span<const float> idf,
                 const Weighting& weighting, int threads) {
    const auto rows = static_cast<std::int64_t>(counts.indptr.size()) - 1;
    parallel_each(rows, kTextRowsPerTask, threads, nullptr, [&](int, std::int64_t row) {
        const auto begin = static_cast<std::size_t>(counts.indptr[row]);
        const auto size = static_cast<std::size_t>(counts.indptr[row + 1]) - begin;
        weight_row({counts.indices.data() + begin, size}, {counts.values.data() + begin, size},
                   lead_counts.empty() ? lead_counts : lead_counts.subspan(begin, size), idf, weighting);
    });
}

}  // namespace carya
