#include "matrix.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "parallel.hpp"

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
    if (rows() > INT32_MAX) fail(name, "must have at most 2147483647 rows, got " + std::to_string(rows()));
    if (indptr.front() != 0) fail(name, "has row offsets that do not start at 0");
    for (std::int64_t row = 0; row < rows(); ++row)
        if (indptr[row] > indptr[row + 1]) fail(name, "has row offsets that decrease" + in_row(row));
    const auto entries = static_cast<std::int64_t>(indices.size());
    if (indptr.back() != entries || values.size() != indices.size())
        fail(name, "has row offsets, columns and values with inconsistent lengths");
    for (const std::int32_t column : indices)
        if (column < 0 || column >= cols)
            fail(name, "has an entry in column " + std::to_string(column) + "; column indices must be >= 0 and < " +
                           std::to_string(cols));
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

Csr transpose(const CsrView& matrix, int threads) {
    Csr out;
    out.cols = matrix.rows();
    const auto entries = static_cast<std::int64_t>(matrix.indices.size());
    out.indptr.assign(matrix.cols + 1, 0);
    out.indices.resize(entries);
    out.values.resize(entries);
    // Each part has its own array of counts, so the number of parts is limited to bound the memory that these arrays
    // use.
    const std::int64_t parts = std::clamp<std::int64_t>(entries / (2 * matrix.cols + 1), 1, threads);
    const auto first_row = [&](std::int64_t part) { return matrix.rows() * part / parts; };
    std::vector<RawVector<std::int64_t>> next(parts);  // position of the next entry, by part and column
    parallel_for(parts, threads, nullptr, [&](int, std::int64_t part) {
        next[part].assign(matrix.cols, 0);
        for (std::int64_t e = matrix.indptr[first_row(part)]; e < matrix.indptr[first_row(part + 1)]; ++e)
            ++next[part][matrix.indices[e]];
    });
    std::int64_t position = 0;
    for (std::int64_t column = 0; column < matrix.cols; ++column) {
        for (RawVector<std::int64_t>& counts : next) {
            const std::int64_t count = counts[column];
            counts[column] = position;
            position += count;
        }
        out.indptr[column + 1] = position;
    }
    parallel_for(parts, threads, nullptr, [&](int, std::int64_t part) {
        for (std::int64_t row = first_row(part); row < first_row(part + 1); ++row)
            for (std::int64_t e = matrix.begin(row); e < matrix.end(row); ++e) {
                const std::int64_t slot = next[part][matrix.indices[e]]++;
                out.indices[slot] = static_cast<std::int32_t>(row);
                out.values[slot] = matrix.values[e];
            }
    });
    return out;
}

namespace {

// Builds a matrix row by row in parallel: fill(row, indices, values) writes the entries of a row and returns their
// number, which is at most limits[row + 1] - limits[row].
template <class Fill>
Csr build_rows(std::int64_t cols, std::span<const std::int64_t> limits, int threads, const Fill& fill) {
    constexpr std::int64_t kRowsPerTask = 4096;
    Csr out;
    out.cols = cols;
    const std::int64_t rows = std::ssize(limits) - 1;
    out.indptr.assign(rows + 1, 0);
    out.indices.resize(limits.back());
    out.values.resize(limits.back());
    const std::int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
    // Each task writes its rows contiguously, starting at limits[its first row].
    parallel_for(tasks, threads, nullptr, [&](int, std::int64_t task) {
        std::int64_t end = limits[task * kRowsPerTask];
        for (std::int64_t row = task * kRowsPerTask; row < std::min(rows, (task + 1) * kRowsPerTask); ++row) {
            const std::int64_t length = fill(row, out.indices.data() + end, out.values.data() + end);
            out.indptr[row + 1] = length;
            end += length;
        }
    });
    // Close the gaps between the tasks.
    std::int64_t end = 0;
    for (std::int64_t task = 0; task < tasks; ++task) {
        const std::int64_t begin = limits[task * kRowsPerTask];
        const std::int64_t target = end;
        for (std::int64_t row = task * kRowsPerTask; row < std::min(rows, (task + 1) * kRowsPerTask); ++row)
            out.indptr[row + 1] = end += out.indptr[row + 1];
        if (begin != target) {
            std::copy_n(out.indices.begin() + begin, end - target, out.indices.begin() + target);
            std::copy_n(out.values.begin() + begin, end - target, out.values.begin() + target);
        }
    }
    out.indices.resize(end);
    out.values.resize(end);
    return out;
}

}  // namespace

Csr merge_columns(const CsrView& matrix, std::span<const std::int32_t> target_columns, std::int64_t cols, int threads) {
    if (static_cast<std::int64_t>(target_columns.size()) != matrix.cols)
        throw std::invalid_argument("target_columns must have one entry for each of the " +
                                    std::to_string(matrix.cols) + " columns.");
    for (const std::int32_t column : target_columns)
        if (column < 0 || column >= cols)
            throw std::invalid_argument("target_columns must contain values >= 0 and less than the number of columns.");
    return build_rows(cols, matrix.indptr, threads, [&](std::int64_t row, std::int32_t* indices, float* values) {
        thread_local std::vector<std::pair<std::int32_t, float>> entries;
        entries.clear();
        for (std::int64_t e = matrix.begin(row); e < matrix.end(row); ++e)
            entries.emplace_back(target_columns[matrix.indices[e]], matrix.values[e]);
        std::stable_sort(entries.begin(), entries.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        std::int64_t length = 0;
        for (const auto& [column, value] : entries) {
            if (length > 0 && indices[length - 1] == column) {
                values[length - 1] += value;
                if (!std::isfinite(values[length - 1]))
                    throw std::invalid_argument("The merged columns contain NaN or infinity.");
            } else {
                indices[length] = column;
                values[length++] = value;
            }
        }
        return length;
    });
}

Csr unite(const CsrView& a, const CsrView& b, int threads) {
    if (a.rows() != b.rows() || a.cols != b.cols) throw std::invalid_argument("The matrices have different shapes.");
    RawVector<std::int64_t> limits(a.indptr.begin(), a.indptr.end());
    for (std::size_t row = 0; row < limits.size(); ++row) limits[row] += b.indptr[row];
    return build_rows(a.cols, limits, threads, [&](std::int64_t row, std::int32_t* indices, float* values) {
        const auto begin = [row](const CsrView& matrix) { return matrix.indices.begin() + matrix.begin(row); };
        const auto end = [row](const CsrView& matrix) { return matrix.indices.begin() + matrix.end(row); };
        const std::int32_t* last = std::set_union(begin(a), end(a), begin(b), end(b), indices);
        std::fill_n(values, last - indices, 1.0F);
        return last - indices;
    });
}

}  // namespace carya
