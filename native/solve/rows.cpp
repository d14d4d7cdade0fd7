#include "rows.hpp"

#include <algorithm>
#include <cmath>

#include "../kernels/kernels.hpp"

namespace carya {

void RowGatherer::gather(const Features& all, std::span<const std::int32_t> row_ids, LocalRows& out) {
    const CsrView& x = all.sparse;
    if (known_ < x.cols) {
        number_.zeros(x.cols);
        known_ = x.cols;
    }
    std::uint32_t* number = number_.reserve(x.cols);

    out.row_ids.assign(row_ids.begin(), row_ids.end());
    std::size_t entries = 0;
    for (const std::int32_t row : row_ids) entries += static_cast<std::size_t>(x.length(row));
    // A bit a feature tells whether it was met, another whether it was met again: both stay in the nearest cache. What
    // may be kept is written and then kept or overwritten, as branches would be wrong every third time.
    const auto words = static_cast<std::size_t>(x.cols) / 64 + 1;
    std::uint64_t* met = met_.zeros(words);
    std::uint64_t* met_again = met_again_.zeros(words);
    out.features.resize(entries + 1);
    std::uint32_t* next = out.features.data();
    for (const std::int32_t row : row_ids) {
        for (std::int64_t e = x.begin(row); e < x.end(row); ++e) {
            const auto feature = static_cast<std::uint32_t>(x.indices[e]);
            const std::uint64_t bit = std::uint64_t{1} << (feature & 63);
            const std::uint64_t before = met[feature >> 6];
            const std::uint64_t again = met_again[feature >> 6];
            *next = feature;
            next += (before & ~again & bit) != 0;
            met[feature >> 6] = before | bit;
            met_again[feature >> 6] = again | (before & bit);
        }
    }
    out.features.resize(static_cast<std::size_t>(next - out.features.data()));
    for (std::size_t i = 0; i < out.features.size(); ++i) number[out.features[i]] = static_cast<std::uint32_t>(i) + 1;

    const auto rows = row_ids.size();
    std::uint32_t* columns = out.columns.reserve(entries + 1);
    float* values = out.values.reserve(entries + 1);
    out.offsets.assign(1, 0);
    out.offsets.reserve(rows + 1);
    out.single_offsets.assign(1, 0);
    out.single_offsets.reserve(rows + 1);
    out.single_features.resize(entries + 1);
    out.single_values.resize(entries + 1);
    out.largest_single.assign(rows, 0.0F);
    out.norms.assign(rows, 0.0F);
    out.unshared.assign(rows, 0.0F);
    std::size_t filled = 0;
    std::size_t singles = 0;
    for (std::size_t r = 0; r < rows; ++r) {
        const std::int32_t row = row_ids[r];
        float norm = 0.0F;
        float unshared = 0.0F;
        float largest = 0.0F;
        for (std::int64_t e = x.begin(row); e < x.end(row); ++e) {
            const float value = x.values[e];
            const auto feature = static_cast<std::uint32_t>(x.indices[e]);
            const std::uint32_t known = number[feature];
            const bool single = known == 0;
            const float alone = single ? value : 0.0F;
            columns[filled] = known - 1;
            values[filled] = value;
            filled += !single;
            out.single_features[singles] = feature;
            out.single_values[singles] = value;
            singles += single;
            norm += value * value;
            unshared += alone * alone;
            largest = std::max(largest, std::fabs(alone));
        }
        if (all.dense.cols > 0) norm += kernels().dot(all.dense.row(row), all.dense.row(row), all.dense.cols);
        out.norms[r] = norm;
        out.unshared[r] = unshared;
        out.largest_single[r] = largest;
        out.offsets.push_back(static_cast<std::int64_t>(filled));
        out.single_offsets.push_back(static_cast<std::int64_t>(singles));
    }
    out.single_features.resize(singles);
    out.single_values.resize(singles);
    for (const std::uint32_t feature : out.features) number[feature] = 0;
}

}  // namespace carya
