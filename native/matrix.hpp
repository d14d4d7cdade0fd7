// Views of the matrices that cross the border, and the one place that checks them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace carya {

// Compressed sparse rows. Sorted, in-range and finite once `check` has passed.
struct CsrView {
    std::span<const std::int64_t> indptr;  // rows + 1 offsets into the entries
    std::span<const std::int32_t> indices;
    std::span<const float> values;
    std::int64_t cols = 0;

    std::int64_t rows() const { return static_cast<std::int64_t>(indptr.size()) - 1; }
    std::int64_t begin(std::int64_t row) const { return indptr[row]; }
    std::int64_t end(std::int64_t row) const { return indptr[row + 1]; }
    std::int64_t length(std::int64_t row) const { return end(row) - begin(row); }

    // Throws std::invalid_argument, naming the argument, unless offsets grow from 0 to the number of entries,
    // columns are inside the matrix and strictly increasing in each row, and values are finite.
    void check(const char* name) const;
    // The offsets and columns only: all that memory safety asks for. Rows may be in any order.
    void check_structure(const char* name) const;
};

struct Csr {
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> indices;
    std::vector<float> values;
    std::int64_t cols = 0;

    CsrView view() const { return {indptr, indices, values, cols}; }
};

// Row-major float32; `cols` may be zero.
struct DenseView {
    const float* data = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;

    const float* row(std::int64_t i) const { return data + i * cols; }
    void check(const char* name) const;  // throws unless every value is finite
};

// The features of a set of rows: a sparse and a dense block side by side, either of them possibly without columns.
struct Features {
    CsrView sparse;
    DenseView dense;

    std::int64_t rows() const { return sparse.rows(); }
    void check_dense(const std::string& name) const;  // the dense block; the sparse one is checked by itself
};

// Columns become rows; entries keep their order. Used to list the rows of each label.
Csr transpose(const CsrView& matrix);

// Column c becomes column to[c] of `cols`; columns that meet in a row are added up. Rows come out sorted.
Csr merge_columns(const CsrView& matrix, std::span<const std::int32_t> to, std::int64_t cols);

}  // namespace carya
