#include "matrix.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace carya {

namespace {

[[noreturn]] void fail(const std::string& name, const std::string& problem) {
    throw std::invalid_argument(name + " " + problem + ".");
}

std::string in_row(std::int64_t row) { return " in row " + std::to_string(row); }

bool all_finite(const float* values, std::int64_t count) {
    constexpr std::uint32_t exponent = 0x7F800000;  // all of these bits are set only in infinities and NaNs
    std::uint32_t any_non_finite = 0;
    for (std::int64_t i = 0; i < count; ++i)
        any_non_finite |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & exponent) == exponent);
    return any_non_finite == 0;
}

}  // namespace

void CsrView::check_structure(const char* name) const {
    if (indptr.empty()) fail(name, "has no row offsets");
    if (cols < 0 || cols > INT32_MAX) fail(name, "must have between 0 and 2147483647 columns");
    if (indptr.front() != 0) fail(name, "has row offsets that do not start at 0");
    for (std::int64_t row = 0; row < rows(); ++row)
        if (indptr[row] > indptr[row + 1]) fail(name, "has row offsets that decrease" + in_row(row));
    const auto entries = static_cast<std::int64_t>(indices.size());
    if (indptr.back() != entries || values.size() != indices.size())
        fail(name, "has row offsets, columns and values with inconsistent lengths");
    for (const std::int32_t column : indices)
        if (column < 0 || column >= cols)
            fail(name, "has an entry in column " + std::to_string(column) + ", outside its " + std::to_string(cols) +
                           " columns");
}

void CsrView::check(const char* name) const {
    check_structure(name);
    for (std::int64_t row = 0; row < rows(); ++row)
        for (std::int64_t e = begin(row) + 1; e < end(row); ++e)
            if (indices[e - 1] >= indices[e]) fail(name, "has columns that are not strictly increasing" + in_row(row));
    if (!all_finite(values.data(), static_cast<std::int64_t>(values.size()))) fail(name, "contains NaN or infinity");
}

void DenseView::check(const char* name) const {
    if (!all_finite(data, rows * cols)) fail(name, "contains NaN or infinity");
}

void Features::check_dense(const std::string& name) const {
    if (dense.rows != sparse.rows())
        fail(name, "must have the same number of rows in its sparse and dense blocks, got " +
                       std::to_string(sparse.rows()) + " and " + std::to_string(dense.rows));
    dense.check(name.c_str());
}

Csr transpose(const CsrView& matrix) {
    Csr out;
    out.cols = matrix.rows();
    out.indptr.assign(matrix.cols + 1, 0);
    out.indices.resize(matrix.indices.size());
    out.values.resize(matrix.values.size());
    for (const std::int32_t column : matrix.indices) ++out.indptr[column + 1];
    for (std::int64_t column = 0; column < matrix.cols; ++column) out.indptr[column + 1] += out.indptr[column];
    std::vector<std::int64_t> next(out.indptr.begin(), out.indptr.end() - 1);
    for (std::int64_t row = 0; row < matrix.rows(); ++row)
        for (std::int64_t e = matrix.begin(row); e < matrix.end(row); ++e) {
            const std::int64_t slot = next[matrix.indices[e]]++;
            out.indices[slot] = static_cast<std::int32_t>(row);
            out.values[slot] = matrix.values[e];
        }
    return out;
}

Csr merge_columns(const CsrView& matrix, std::span<const std::int32_t> target_columns, std::int64_t cols) {
    if (static_cast<std::int64_t>(target_columns.size()) != matrix.cols)
        throw std::invalid_argument("target_columns must have one entry for each of the " +
                                    std::to_string(matrix.cols) + " columns.");
    for (const std::int32_t column : target_columns)
        if (column < 0 || column >= cols)
            throw std::invalid_argument("target_columns must contain values >= 0 and less than the number of columns.");
    Csr out;
    out.cols = cols;
    out.indptr.reserve(matrix.indptr.size());
    out.indices.reserve(matrix.indices.size());
    out.values.reserve(matrix.values.size());
    std::vector<std::pair<std::int32_t, float>> row_entries;
    for (std::int64_t row = 0; row < matrix.rows(); ++row) {
        row_entries.clear();
        for (std::int64_t e = matrix.begin(row); e < matrix.end(row); ++e)
            row_entries.emplace_back(target_columns[matrix.indices[e]], matrix.values[e]);
        std::stable_sort(row_entries.begin(), row_entries.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        const auto begin = static_cast<std::size_t>(out.indptr.back());
        for (const auto& [column, value] : row_entries) {
            if (out.indices.size() > begin && out.indices.back() == column) {
                out.values.back() += value;
            } else {
                out.indices.push_back(column);
                out.values.push_back(value);
            }
        }
        out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
    }
    return out;
}

}  // namespace carya
