// The training rows of one parent, copied so that its children's solver stays in cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../buffer.hpp"
#include "../matrix.hpp"

namespace carya {

// Features are renumbered 0, 1, ... and only those that two or more rows share get a number: a feature of one row needs
// no weight during the descent (kernels/lane_pass.cpp) and is kept apart as `single`.
struct LocalRows {
    std::vector<std::int32_t> row_ids;  // ascending
    std::vector<std::int64_t> offsets;  // into columns and values
    Buffer<std::uint32_t> columns;
    Buffer<float> values;
    std::vector<std::uint32_t> features;  // what each number stands for
    std::vector<std::int64_t> single_offsets;
    std::vector<std::uint32_t> single_features;
    std::vector<float> single_values;
    std::vector<float> largest_single;  // of each row, by size; 0 without singles
    std::vector<float> norms;
    std::vector<float> unshared;

    std::int64_t rows() const { return static_cast<std::int64_t>(row_ids.size()); }
};

// Builds LocalRows; holds an array over all features, so keep one a thread.
class RowGatherer {
public:
    void gather(const Features& all, std::span<const std::int32_t> row_ids, LocalRows& out);

private:
    Buffer<std::uint64_t> met_;
    Buffer<std::uint64_t> met_again_;
    Buffer<std::uint32_t> number_;  // of a feature, plus 1; zero between calls
    std::int64_t known_ = 0;
};

}  // namespace carya
