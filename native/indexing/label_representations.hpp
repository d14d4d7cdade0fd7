// Label representations: positive instance feature aggregation (PIFA).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"

namespace carya {

// One sparse and one dense vector per label. The entries of a label are in no particular order, and the entries of
// different labels can be separated by unused space.
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

// Limits on the numbers of sparse entries and positives that are used for each label; 0 means no limit.
struct AggregationLimits {
    // Keep the largest entries that account for this fraction of the squared norm. Magnitudes are rounded, so slightly
    // more entries may be kept.
    double energy = 0.0;
    // Keep at most this many entries, largest first; ties are broken in favor of the lower feature index.
    std::int64_t max_features = 0;
    // Use at most this many positives, evenly spaced.
    std::int64_t max_rows = 0;
};

// Returns label representations. The vector of label l is the sum of value(l, i) * x_i over the positives i of the
// label, scaled to unit norm; it is zero if the label has no positives.
LabelVectors aggregate_positives(const Features& features, const CsrView& positives, const AggregationLimits& limits,
                                 int threads, Monitor& monitor);

// Order of the entries of a row: by ascending column, or as in the label vectors.
enum class EntryOrder { by_column, unchanged };

// Returns the sparse vectors as a matrix.
Csr to_csr(const LabelVectors& vectors, EntryOrder order, int threads);

}  // namespace carya
