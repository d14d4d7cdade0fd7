// Label representations from the features of their positives (PIFA).
#pragma once

#include <cstdint>
#include <vector>

#include "../matrix.hpp"
#include "../parallel.hpp"

namespace carya {

struct Representation {
    Csr sparse;
    std::vector<float> dense;  // labels x dense features
};

// Row l is the sum over the positives i of label l of value(l, i) * x_i, scaled to length 1; zero without positives.
// With keep > 0 only the `keep` largest sparse entries of each label stay, ties to the lower feature.
Representation aggregate_positives(const Features& features, const CsrView& positives, std::int64_t keep, int threads,
                                   Monitor& monitor);

}  // namespace carya
