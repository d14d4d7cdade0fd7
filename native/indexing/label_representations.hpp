// Label representations: positive instance feature aggregation (PIFA).
#pragma once

#include <cstdint>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"

namespace carya {

struct LabelRepresentations {
    Csr sparse;
    std::vector<float> dense;  // labels x dense features
};

// Returns label representations. Row l is the sum of value(l, i) * x_i over the positives i of label l, normalized to
// norm 1; it is zero if the label has no positives. If max_features > 0, only the max_features largest sparse entries
// of each label are kept; ties are broken in favor of the lower feature.
LabelRepresentations aggregate_positives(const Features& features, const CsrView& positives, std::int64_t max_features,
                                         int threads, Monitor& monitor);

}  // namespace carya
