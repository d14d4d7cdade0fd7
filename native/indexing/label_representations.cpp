#include "label_representations.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "../core/aligned_buffer.hpp"
#include "../kernels/kernels.hpp"

namespace carya {

namespace {

constexpr std::int64_t kLabelsPerTask = 64;

// Adds sparse rows to a dense array and records which columns have entries.
class Accumulator {
public:
    void begin(std::int64_t cols) {
        if (n_columns_ < cols) {
            sums_.zeros(cols);
            seen_.zeros(cols / 64 + 1);
            n_columns_ = cols;
        }
        touched_.clear();
    }

    void add(const CsrView& x, std::int64_t row, float scale) {
        float* sums = sums_.reserve(n_columns_);
        std::uint64_t* seen = seen_.reserve(n_columns_ / 64 + 1);
        const std::size_t n_touched = touched_.size();
        touched_.resize(n_touched + static_cast<std::size_t>(x.length(row)));
        std::int32_t* next = touched_.data() + n_touched;
        const std::int32_t* columns = x.indices.data() + x.begin(row);
        const float* values = x.values.data() + x.begin(row);
        const std::int64_t count = x.length(row);
        for (std::int64_t e = 0; e < count; ++e) {
            const std::int32_t column = columns[e];
            const std::uint64_t word = seen[column >> 6];
            *next = column;  // kept only if the column is new; a branch would be mispredicted half the time
            next += ~(word >> (column & 63)) & 1;
            seen[column >> 6] = word | std::uint64_t{1} << (column & 63);
            sums[column] += scale * values[e];
        }
        touched_.resize(static_cast<std::size_t>(next - touched_.data()));
    }

    // Keeps the `max_features` columns with the largest absolute sums (all columns if 0) and returns them in ascending
    // order. Ties are broken in favor of the lower column.
    const std::vector<std::int32_t>& select(std::int64_t max_features) {
        if (max_features > 0 && static_cast<std::int64_t>(touched_.size()) > max_features) {
            const float* sums = sums_.data();
            magnitudes_.clear();
            for (const std::int32_t column : touched_) magnitudes_.push_back(std::fabs(sums[column]));
            std::nth_element(magnitudes_.begin(), magnitudes_.begin() + (max_features - 1), magnitudes_.end(),
                             std::greater<>());
            const float smallest_kept = magnitudes_[max_features - 1];
            const auto is_larger = [&](std::int32_t column) { return std::fabs(sums[column]) > smallest_kept; };
            const auto tied = std::partition(touched_.begin(), touched_.end(), is_larger);
            const auto end_of_tied = std::partition(
                tied, touched_.end(), [&](std::int32_t column) { return std::fabs(sums[column]) == smallest_kept; });
            const auto end_of_kept = touched_.begin() + max_features;
            std::nth_element(tied, end_of_kept, end_of_tied);
            clear(end_of_kept, touched_.end());
            touched_.erase(end_of_kept, touched_.end());
        }
        std::sort(touched_.begin(), touched_.end());
        return touched_;
    }

    double squared_norm() const {
        double total = 0.0;
        for (const std::int32_t column : touched_) {
            const double sum = sums_.data()[column];
            total += sum * sum;
        }
        return total;
    }

    float operator[](std::int32_t column) const { return sums_.data()[column]; }
    void end() { clear(touched_.begin(), touched_.end()); }

private:
    void clear(std::vector<std::int32_t>::iterator from, std::vector<std::int32_t>::iterator to) {
        float* sums = sums_.reserve(n_columns_);
        std::uint64_t* seen = seen_.reserve(n_columns_ / 64 + 1);
        for (auto column = from; column != to; ++column) {
            sums[*column] = 0.0F;
            seen[*column >> 6] = 0;  // the other columns in this word are also cleared, in this call or the next
        }
    }

    AlignedBuffer<float> sums_;
    AlignedBuffer<std::uint64_t> seen_;  // one bit per column, small enough for the L1 cache
    std::int64_t n_columns_ = 0;
    std::vector<std::int32_t> touched_;
    std::vector<float> magnitudes_;
};

// Prefetches the next rows of a label while the current row is being added, because rows are scattered in memory.
void prefetch_rows(const CsrView& x, const CsrView& positives, std::int64_t e) {
    constexpr std::int64_t offset_distance = 16;
    constexpr std::int64_t row_distance = 8;
    const auto count = static_cast<std::int64_t>(positives.indices.size());
    if (e + offset_distance < count) __builtin_prefetch(&x.indptr[positives.indices[e + offset_distance]]);
    if (e + row_distance < count) {
        const std::int64_t first = x.begin(positives.indices[e + row_distance]);
        const std::int32_t* indices = x.indices.data() + first;
        const float* values = x.values.data() + first;
        for (int line = 0; line < 2; ++line) {
            __builtin_prefetch(indices + 16 * line);
            __builtin_prefetch(values + 16 * line);
        }
    }
}

}  // namespace

LabelRepresentations aggregate_positives(const Features& features, const CsrView& positives, std::int64_t max_features,
                                         int threads, Monitor& monitor) {
    const std::int64_t labels = positives.rows();
    const std::int64_t dense_cols = features.dense.cols;
    LabelRepresentations out;
    out.sparse.cols = features.sparse.cols;
    out.dense.assign(labels * dense_cols, 0.0F);
    const std::int64_t tasks = (labels + kLabelsPerTask - 1) / kLabelsPerTask;
    std::vector<Csr> task_rows(tasks);
    std::vector<Accumulator> accumulators(threads);
    monitor.total = labels;
    parallel_for(tasks, threads, &monitor, [&](int worker, std::int64_t task) {
        Accumulator& sums = accumulators[worker];
        Csr& rows = task_rows[task];
        const std::int64_t last = std::min(labels, (task + 1) * kLabelsPerTask);
        for (std::int64_t label = task * kLabelsPerTask; label < last; ++label) {
            float* dense = out.dense.data() + label * dense_cols;
            sums.begin(features.sparse.cols);
            for (std::int64_t e = positives.begin(label); e < positives.end(label); ++e) {
                const std::int32_t row = positives.indices[e];
                prefetch_rows(features.sparse, positives, e);
                sums.add(features.sparse, row, positives.values[e]);
                if (dense_cols > 0)
                    kernels().add_scaled(dense, features.dense.row(row), positives.values[e], dense_cols);
            }
            const std::vector<std::int32_t>& selected = sums.select(max_features);
            double squared_norm = sums.squared_norm();
            if (dense_cols > 0) squared_norm += kernels().dot(dense, dense, dense_cols);
            const float scale = squared_norm > 0.0 ? static_cast<float>(1.0 / std::sqrt(squared_norm)) : 0.0F;
            for (const std::int32_t column : selected) {
                rows.indices.push_back(column);
                rows.values.push_back(sums[column] * scale);
            }
            rows.indptr.push_back(static_cast<std::int64_t>(rows.indices.size()));
            for (std::int64_t j = 0; j < dense_cols; ++j) dense[j] *= scale;
            sums.end();
        }
        monitor.done += last - task * kLabelsPerTask;
    });
    std::size_t entries = 0;
    for (const Csr& rows : task_rows) entries += rows.indices.size();
    out.sparse.indptr.reserve(labels + 1);
    out.sparse.indices.reserve(entries);
    out.sparse.values.reserve(entries);
    for (Csr& rows : task_rows) {
        const auto first_entry = static_cast<std::int64_t>(out.sparse.indices.size());
        for (std::size_t i = 1; i < rows.indptr.size(); ++i) out.sparse.indptr.push_back(first_entry + rows.indptr[i]);
        out.sparse.indices.insert(out.sparse.indices.end(), rows.indices.begin(), rows.indices.end());
        out.sparse.values.insert(out.sparse.values.end(), rows.values.begin(), rows.values.end());
        rows = Csr();
    }
    return out;
}

}  // namespace carya
