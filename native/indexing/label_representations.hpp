// Label representations: positive instance feature aggregation (PIFA).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"

namespace carya {

// One sparse and one dense vector per label. The entries of a label are in no particular order, and there can be unused
// space between the entries of two labels.
struct LabelVectors {
    struct Row {
        std::int64_t begin;
        std::int64_t end;
    };

    std::vector<Row> rows;  // range of entries of each label
    RawVector<std::uint32_t> columns;
    RawVector<float> values;
    std::int64_t cols = 0;
    std::shared_ptr<std::vector<float>> dense;  // labels x dense features

    std::int64_t size() const { return static_cast<std::int64_t>(rows.size()); }
};

// Returns label representations. The vector of label l is the sum of value(l, i) * x_i over the positives i of the
// label, normalized to norm 1; it is zero if the label has no positives. If max_features > 0, only the max_features
// largest sparse entries of each label are kept; ties are broken in favor of the lower feature. If max_rows > 0, only
// max_rows evenly spaced positives of each label are used.
LabelVectors aggregate_positives(const Features& features, const CsrView& positives, std::int64_t max_features,
                                 std::int64_t max_rows, int threads, Monitor& monitor);

// Returns the sparse vectors as a matrix with sorted columns.
Csr to_csr(const LabelVectors& vectors, int threads);

}  // namespace carya
