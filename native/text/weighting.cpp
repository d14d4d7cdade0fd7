#include "weighting.hpp"

#include <algorithm>
#include <cmath>

#include "../parallel.hpp"

namespace carya {

namespace {

constexpr std::int64_t kRowsPerTask = 256;

double weight_of(double count, const Weighting& weighting) {
    if (weighting.binary) return 1.0;
    return weighting.sublinear ? 1.0 + std::log(count) : count;
}

}  // namespace

void weigh_row(std::span<const std::int32_t> indices, std::span<float> values, std::span<const float> idf,
               const Weighting& weighting) {
    double length = 0.0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
        double weight = weight_of(values[i], weighting);
        if (!idf.empty()) weight *= idf[indices[i]];
        values[i] = static_cast<float>(weight);
        length += weighting.norm == Norm::l1 ? std::fabs(weight) : weight * weight;
    }
    if (weighting.norm == Norm::none || !(length > 0.0)) return;
    const double scale = 1.0 / (weighting.norm == Norm::l1 ? length : std::sqrt(length));
    for (float& value : values) value = static_cast<float>(value * scale);
}

std::vector<float> inverse_frequency(std::span<const std::int64_t> with_it, std::int64_t texts, bool smooth) {
    std::vector<float> out;
    out.reserve(with_it.size());
    const double more = smooth ? 1.0 : 0.0;
    for (const std::int64_t count : with_it) {
        const double with = std::max(static_cast<double>(count) + more, 1.0);
        out.push_back(static_cast<float>(std::log((static_cast<double>(texts) + more) / with) + 1.0));
    }
    return out;
}

void weigh_terms(Csr& counts, std::span<const float> idf, const Weighting& weighting, int threads) {
    const auto rows = static_cast<std::int64_t>(counts.indptr.size()) - 1;
    parallel_each(rows, kRowsPerTask, threads, nullptr, [&](int, std::int64_t row) {
        const auto begin = static_cast<std::size_t>(counts.indptr[row]);
        const auto size = static_cast<std::size_t>(counts.indptr[row + 1]) - begin;
        weigh_row({counts.indices.data() + begin, size}, {counts.values.data() + begin, size}, idf, weighting);
    });
}

}  // namespace carya
