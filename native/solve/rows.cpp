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
    out.features.clear();
    std::int64_t entries = 0;
    std::vector<std::uint32_t> lone;  // features met once so far; those met again are in out.features
    for (const std::int32_t row : row_ids) {
        entries += x.length(row);
        for (std::int64_t e = x.begin(row); e < x.end(row); ++e) {
            const auto feature = static_cast<std::uint32_t>(x.indices[e]);
            const std::uint32_t before = number[feature]++;
            if (before == 0) lone.push_back(feature);
            if (before == 1) out.features.push_back(feature);
        }
    }
    for (const std::uint32_t feature : lone) number[feature] = 0;
    for (std::size_t i = 0; i < out.features.size(); ++i) number[out.features[i]] = static_cast<std::uint32_t>(i) + 1;

    const auto rows = row_ids.size();
    std::uint32_t* columns = out.columns.reserve(entries);
    float* values = out.values.reserve(entries);
    out.offsets.assign(1, 0);
    out.offsets.reserve(rows + 1);
    out.single_offsets.assign(1, 0);
    out.single_features.clear();
    out.single_values.clear();
    out.largest_single.assign(rows, 0.0F);
    out.norms.assign(rows, 0.0F);
    out.unshared.assign(rows, 0.0F);
    std::int64_t filled = 0;
    for (std::size_t r = 0; r < rows; ++r) {
        const std::int32_t row = row_ids[r];
        float norm = 0.0F;
        float unshared = 0.0F;
        for (std::int64_t e = x.begin(row); e < x.end(row); ++e) {
            const float value = x.values[e];
            norm += value * value;
            const std::uint32_t known = number[x.indices[e]];
            if (known > 0) {
                columns[filled] = known - 1;
                values[filled++] = value;
            } else {
                unshared += value * value;
                out.largest_single[r] = std::max(out.largest_single[r], std::fabs(value));
                out.single_features.push_back(static_cast<std::uint32_t>(x.indices[e]));
                out.single_values.push_back(value);
            }
        }
        if (all.dense.cols > 0) norm += kernels().dot(all.dense.row(row), all.dense.row(row), all.dense.cols);
        out.norms[r] = norm;
        out.unshared[r] = unshared;
        out.offsets.push_back(filled);
        out.single_offsets.push_back(static_cast<std::int64_t>(out.single_features.size()));
    }
    for (const std::uint32_t feature : out.features) number[feature] = 0;
}

}  // namespace carya
