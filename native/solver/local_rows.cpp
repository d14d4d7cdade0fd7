#include "local_rows.hpp"

#include <algorithm>
#include <cmath>

#include "../kernels/kernels.hpp"

namespace carya {

void RowGatherer::gather(const Features& all, std::span<const std::int32_t> row_ids, LocalRows& out) {
    const CsrView& x = all.sparse;
    if (n_features_ < x.cols) {
        local_ids_.zeros(x.cols);
        n_features_ = x.cols;
    }
    std::uint32_t* local_ids = local_ids_.reserve(x.cols);

    out.row_ids.assign(row_ids.begin(), row_ids.end());
    std::size_t entries = 0;
    for (const std::int32_t row : row_ids) entries += static_cast<std::size_t>(x.length(row));
    // `seen` and `seen_twice` have one bit per feature, so both stay in the L1 cache. Every value is written and,
    // if it is not needed, overwritten by the next one, because branches would be mispredicted a third of the time.
    const auto words = static_cast<std::size_t>(x.cols) / 64 + 1;
    std::uint64_t* seen = seen_.zeros(words);
    std::uint64_t* seen_twice = seen_twice_.zeros(words);
    out.feature_ids.resize(entries + 1);
    std::uint32_t* next = out.feature_ids.data();
    for (const std::int32_t row : row_ids) {
        for (std::int64_t e = x.begin(row); e < x.end(row); ++e) {
            const auto feature = static_cast<std::uint32_t>(x.indices[e]);
            const std::uint64_t bit = std::uint64_t{1} << (feature & 63);
            const std::uint64_t seen_word = seen[feature >> 6];
            const std::uint64_t seen_twice_word = seen_twice[feature >> 6];
            *next = feature;
            next += (seen_word & ~seen_twice_word & bit) != 0;
            seen[feature >> 6] = seen_word | bit;
            seen_twice[feature >> 6] = seen_twice_word | (seen_word & bit);
        }
    }
    out.feature_ids.resize(static_cast<std::size_t>(next - out.feature_ids.data()));
    for (std::size_t i = 0; i < out.feature_ids.size(); ++i)
        local_ids[out.feature_ids[i]] = static_cast<std::uint32_t>(i) + 1;

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
    out.squared_norms.assign(rows, 0.0F);
    out.single_norms.assign(rows, 0.0F);
    std::size_t n_shared = 0;
    std::size_t n_single = 0;
    for (std::size_t r = 0; r < rows; ++r) {
        const std::int32_t row = row_ids[r];
        float squared_norm = 0.0F;
        float single_norm = 0.0F;
        float largest = 0.0F;
        for (std::int64_t e = x.begin(row); e < x.end(row); ++e) {
            const float value = x.values[e];
            const auto feature = static_cast<std::uint32_t>(x.indices[e]);
            const std::uint32_t local_id = local_ids[feature];
            const bool single = local_id == 0;
            const float single_value = single ? value : 0.0F;
            columns[n_shared] = local_id - 1;
            values[n_shared] = value;
            n_shared += !single;
            out.single_features[n_single] = feature;
            out.single_values[n_single] = value;
            n_single += single;
            squared_norm += value * value;
            single_norm += single_value * single_value;
            largest = std::max(largest, std::fabs(single_value));
        }
        if (all.dense.cols > 0) squared_norm += kernels().dot(all.dense.row(row), all.dense.row(row), all.dense.cols);
        out.squared_norms[r] = squared_norm;
        out.single_norms[r] = single_norm;
        out.largest_single[r] = largest;
        out.offsets.push_back(static_cast<std::int64_t>(n_shared));
        out.single_offsets.push_back(static_cast<std::int64_t>(n_single));
    }
    out.single_features.resize(n_single);
    out.single_values.resize(n_single);
    for (const std::uint32_t feature : out.feature_ids) local_ids[feature] = 0;
}

}  // namespace carya
