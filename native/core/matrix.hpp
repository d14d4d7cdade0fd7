// Matrix views and their validation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "raw_vector.hpp"

namespace carya {

// A view of a matrix in compressed sparse row (CSR) format. `check` ensures that columns are sorted and in range and
// that values are finite.
struct CsrView {
    std::span<const std::int64_t> indptr;  // rows + 1 offsets into the entries
    std::span<const std::int32_t> indices;
    std::span<const float> values;
    std::int64_t cols = 0;

    std::int64_t rows() const { return static_cast<std::int64_t>(indptr.size()) - 1; }
    std::int64_t begin(std::int64_t row) const { return indptr[row]; }
    std::int64_t end(std::int64_t row) const { return indptr[row + 1]; }
    std::int64_t length(std::int64_t row) const { return end(row) - begin(row); }

    // Throws std::invalid_argument, with `name` in the message, unless the row offsets start at 0, never decrease and
    // end at the number of entries, the columns are in range and strictly increasing within each row, and the values
    // are finite.
    void check(const char* name) const;
    // Checks only that offsets are valid and columns are in range, which is sufficient for memory safety. Columns may
    // be unsorted.
    void check_structure(const char* name) const;
};

struct Csr {
    RawVector<std::int64_t> indptr{0};
    RawVector<std::int32_t> indices;
    RawVector<float> values;
    std::int64_t cols = 0;

    CsrView view() const { return {indptr, indices, values, cols}; }
};

// A row-major float32 matrix; `cols` may be 0.
struct DenseView {
    const float* data = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;

    const float* row(std::int64_t i) const { return data + i * cols; }
    void check(const char* name) const;  // throws if a value is NaN or infinite
};

// The features of a set of rows: a sparse block and a dense block side by side. Either block may have no columns.
struct Features {
    CsrView sparse;
    DenseView dense;

    std::int64_t rows() const { return sparse.rows(); }
    void check_dense(const std::string& name) const;  // the sparse block is checked separately
};

// Transposes a matrix, for example to list the training rows of each label. The rows of the result are sorted.
Csr transpose(const CsrView& matrix, int threads);

// Merges columns by addition: column c is added to column target_columns[c] of the result, which has `cols` columns.
// The rows of the result are sorted. Throws std::invalid_argument if a sum is infinite.
Csr merge_columns(const CsrView& matrix, std::span<const std::int32_t> target_columns, std::int64_t cols, int threads);

// Returns a matrix with an entry of 1 wherever `a` or `b` has an entry. `a` and `b` must have the same shape.
Csr unite(const CsrView& a, const CsrView& b, int threads);

}  // namespace carya
