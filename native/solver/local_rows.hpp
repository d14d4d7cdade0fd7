// The training rows of one parent, in most cases a compact copy that keeps the solver's data in cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../core/aligned_buffer.hpp"
#include "../core/matrix.hpp"

namespace carya {

// Features that occur in at least two rows are *shared* and have local ids 0, 1, …. A feature that occurs in only one
// row is *single*: it needs no weight during dual coordinate descent (see kernels/dual_descent.cpp) and is stored
// separately.
struct LocalRows {
    std::vector<std::int32_t> row_ids;      // ascending
    std::span<const std::int64_t> offsets;  // offset of each row in `columns` and `values`, followed by the end
    const std::uint32_t* columns = nullptr;
    const float* values = nullptr;
    RawVector<std::uint32_t> feature_ids;  // the global id of each local id
    std::vector<std::int64_t> single_offsets;
    RawVector<std::uint32_t> single_features;
    RawVector<float> single_values;
    std::vector<float> largest_single;  // largest absolute value per row; 0 if there are no single features
    std::vector<float> squared_norms;
    std::vector<float> single_norms;

    // The copied rows, to which `offsets`, `columns` and `values` refer unless they refer to the complete matrix.
    std::vector<std::int64_t> copied_offsets;
    AlignedBuffer<std::uint32_t> copied_columns;
    AlignedBuffer<float> copied_values;

    std::int64_t rows() const { return static_cast<std::int64_t>(row_ids.size()); }
};

// Builds LocalRows. Each thread needs its own object, whose arrays cover all features.
class RowGatherer {
public:
    void gather(const Features& all, std::span<const std::int32_t> row_ids, LocalRows& out);
    // Same as `gather` for all rows, but without a copy if most features occur in several rows; all features then count
    // as shared.
    void gather_all(const Features& all, LocalRows& out);

private:
    AlignedBuffer<std::uint64_t> seen_;    // one bit per feature: occurs in at least one row
    AlignedBuffer<std::uint64_t> shared_;  // one bit per feature: occurs in at least two rows
    AlignedBuffer<std::uint32_t> ranks_;   // number of shared features before each 64-bit word
};

}  // namespace carya
