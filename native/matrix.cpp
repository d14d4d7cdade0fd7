#include "matrix.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace carya {

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
    throw std::invalid_argument(name + " " + what);
}

std::string at_row(std::int64_t row) { return " (row " + std::to_string(row) + ")"; }

bool all_finite(const float* values, std::int64_t count) {
    constexpr std::uint32_t exponent = 0x7F800000;  // all ones in infinities and NaNs only
    std::uint32_t bad = 0;
    for (std::int64_t i = 0; i < count; ++i)
        bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & exponent) == exponent);
    return bad == 0;
}

}  // namespace

void CsrView::check_structure(const char* name) const {
    if (indptr.empty()) refuse(name, "has no row offsets");
    if (cols < 0 || cols > INT32_MAX) refuse(name, "must have between 0 and 2147483647 columns");
    if (indptr.front() != 0) refuse(name, "has row offsets that do not start at 0");
    for (std::int64_t row = 0; row < rows(); ++row)
        if (indptr[row] > indptr[row + 1]) refuse(name, "has row offsets that decrease" + at_row(row));
    const auto entries = static_cast<std::int64_t>(indices.size());
    if (indptr.back() != entries || values.size() != indices.size())
        refuse(name, "has row offsets, columns and values of different lengths");
    for (const std::int32_t column : indices)
        if (column < 0 || column >= cols)
            refuse(name, "has an entry in column " + std::to_string(column) + ", outside its " + std::to_string(cols) +
                             " columns");
}

void CsrView::check(const char* name) const {
    check_structure(name);
    for (std::int64_t row = 0; row < rows(); ++row)
        for (std::int64_t e = begin(row) + 1; e < end(row); ++e)
            if (indices[e - 1] >= indices[e])
                refuse(name, "has columns that are not strictly increasing" + at_row(row));
    if (!all_finite(values.data(), static_cast<std::int64_t>(values.size()))) refuse(name, "contains NaN or infinity");
}

void DenseView::check(const char* name) const {
    if (!all_finite(data, rows * cols)) refuse(name, "contains NaN or infinity");
}

void Features::check_dense(const std::string& name) const {
    if (dense.rows != sparse.rows())
        refuse(name, "has a sparse block of " + std::to_string(sparse.rows()) + " rows and a dense block of " +
                         std::to_string(dense.rows));
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
            const std::int64_t to = next[matrix.indices[e]]++;
            out.indices[to] = static_cast<std::int32_t>(row);
            out.values[to] = matrix.values[e];
        }
    return out;
}

Csr merge_columns(const CsrView& matrix, std::span<const std::int32_t> to, std::int64_t cols) {
    if (static_cast<std::int64_t>(to.size()) != matrix.cols)
        throw std::invalid_argument("the columns to merge into must be one for each of the " +
                                    std::to_string(matrix.cols) + " columns");
    for (const std::int32_t column : to)
        if (column < 0 || column >= cols) throw std::invalid_argument("a column to merge into is out of range");
    Csr out;
    out.cols = cols;
    out.indptr.reserve(matrix.indptr.size());
    out.indices.reserve(matrix.indices.size());
    out.values.reserve(matrix.values.size());
    std::vector<std::pair<std::int32_t, float>> row_entries;
    for (std::int64_t row = 0; row < matrix.rows(); ++row) {
        row_entries.clear();
        for (std::int64_t e = matrix.begin(row); e < matrix.end(row); ++e)
            row_entries.emplace_back(to[matrix.indices[e]], matrix.values[e]);
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
