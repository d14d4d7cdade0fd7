#include "local_rows.hpp"

#include <bit>
#include <numeric>

#include "../kernels/kernels.hpp"

namespace carya {

namespace {

// Rows are scattered in memory, so they are prefetched this number of rows in advance.
constexpr std::size_t kPrefetchDistance = 3;

// If features have fewer entries on average, the solver's weights would take more memory than a copy of the rows.
constexpr std::int64_t kMinEntriesPerFeature = 4;

// Prefetches the entries of a row. GCC removes calls to functions that only prefetch, unless they are inlined.
template <class T>
[[gnu::always_inline]] inline void prefetch_row(const CsrView& x, std::span<const T> entries, std::int32_t row) {
    constexpr std::int64_t entries_per_line = 16;
    static_assert(entries_per_line * sizeof(T) == 64);
    const std::int64_t last = x.end(row);
    for (std::int64_t e = x.begin(row); e < last; e += entries_per_line) __builtin_prefetch(entries.data() + e);
}

}  // namespace

void RowGatherer::gather(const Features& all, std::span<const std::int32_t> row_ids, LocalRows& out) {
    const CsrView& x = all.sparse;
    out.row_ids.assign(row_ids.begin(), row_ids.end());
    std::size_t entries = 0;
    for (const std::int32_t row : row_ids) entries += static_cast<std::size_t>(x.length(row));

    // Bitmaps with one rank per word remain in the cache, unlike an array with one local id per feature.
    const auto words = static_cast<std::size_t>(x.cols) / 64 + 1;
    const FeatureBits bits{seen_.zeros(words), shared_.zeros(words), ranks_.reserve(words)};
    for (std::size_t r = 0; r < row_ids.size(); ++r) {
        if (r + kPrefetchDistance < row_ids.size()) prefetch_row(x, x.indices, row_ids[r + kPrefetchDistance]);
        kernels().mark_features(x.indices.data() + x.begin(row_ids[r]), x.length(row_ids[r]), bits);
    }
    out.feature_ids.clear();
    for (std::size_t word = 0; word < words; ++word) {
        bits.ranks[word] = static_cast<std::uint32_t>(out.feature_ids.size());
        for (std::uint64_t left = bits.shared[word]; left != 0; left &= left - 1)
            out.feature_ids.push_back(static_cast<std::uint32_t>(word * 64 + std::countr_zero(left)));
    }

    const std::size_t rows = row_ids.size();
    std::uint32_t* columns = out.copied_columns.reserve(entries + 1);
    float* values = out.copied_values.reserve(entries + 1);
    out.copied_offsets.assign(1, 0);
    out.single_offsets.assign(1, 0);
    out.single_features.resize(entries + 1);
    out.single_values.resize(entries + 1);
    out.largest_single.resize(rows);
    out.squared_norms.resize(rows);
    out.single_norms.resize(rows);
    std::int64_t n_shared = 0;
    std::int64_t n_single = 0;
    for (std::size_t r = 0; r < rows; ++r) {
        if (r + kPrefetchDistance < rows) {
            prefetch_row(x, x.indices, row_ids[r + kPrefetchDistance]);
            prefetch_row(x, x.values, row_ids[r + kPrefetchDistance]);
        }
        const std::int32_t row = row_ids[r];
        SplitRow split{};
        split.columns = columns + n_shared;
        split.values = values + n_shared;
        split.single_features = out.single_features.data() + n_single;
        split.single_values = out.single_values.data() + n_single;
        kernels().split_row(x.indices.data() + x.begin(row), x.values.data() + x.begin(row), x.length(row), bits,
                            split);
        n_shared += split.n_shared;
        n_single += split.n_single;
        out.squared_norms[r] = split.squared_norm;
        if (all.dense.cols > 0)
            out.squared_norms[r] += kernels().dot(all.dense.row(row), all.dense.row(row), all.dense.cols);
        out.single_norms[r] = split.single_norm;
        out.largest_single[r] = split.largest_single;
        out.copied_offsets.push_back(n_shared);
        out.single_offsets.push_back(n_single);
    }
    out.single_features.resize(n_single);
    out.single_values.resize(n_single);
    out.offsets = out.copied_offsets;
    out.columns = columns;
    out.values = values;
}

void RowGatherer::gather_all(const Features& all, LocalRows& out) {
    const CsrView& x = all.sparse;
    const auto rows = static_cast<std::size_t>(all.rows());
    if (x.cols > static_cast<std::int64_t>(x.indices.size()) / kMinEntriesPerFeature) {
        std::vector<std::int32_t> row_ids(rows);
        std::iota(row_ids.begin(), row_ids.end(), 0);
        gather(all, row_ids, out);
        return;
    }
    out.row_ids.resize(rows);
    std::iota(out.row_ids.begin(), out.row_ids.end(), 0);
    out.offsets = x.indptr;
    out.columns = reinterpret_cast<const std::uint32_t*>(x.indices.data());  // never negative
    out.values = x.values.data();
    out.feature_ids.resize(static_cast<std::size_t>(x.cols));
    std::iota(out.feature_ids.begin(), out.feature_ids.end(), 0U);
    out.single_offsets.assign(rows + 1, 0);
    out.single_features.clear();
    out.single_values.clear();
    out.largest_single.assign(rows, 0.0F);
    out.single_norms.assign(rows, 0.0F);
    out.squared_norms.resize(rows);
    for (std::size_t r = 0; r < rows; ++r) {
        const auto row = static_cast<std::int64_t>(r);
        const float* values = x.values.data() + x.begin(row);
        out.squared_norms[r] =
            kernels().dot(values, values, x.length(row)) +
            (all.dense.cols > 0 ? kernels().dot(all.dense.row(row), all.dense.row(row), all.dense.cols) : 0.0F);
    }
}

}  // namespace carya
