#include "represent.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "../buffer.hpp"
#include "../kernels/kernels.hpp"

namespace carya {

namespace {

constexpr std::int64_t kLabelsPerTask = 64;

// Sums sparse rows into a dense array and remembers what it touched.
class Accumulator {
public:
    void begin(std::int64_t cols) {
        if (known_ < cols) {
            sums_.zeros(cols);
            seen_.zeros(cols / 64 + 1);
            known_ = cols;
        }
        touched_.clear();
    }

    void add(const CsrView& x, std::int64_t row, float scale) {
        float* sums = sums_.reserve(known_);
        std::uint64_t* seen = seen_.reserve(known_ / 64 + 1);
        const std::size_t before = touched_.size();
        touched_.resize(before + static_cast<std::size_t>(x.length(row)));
        std::int32_t* next = touched_.data() + before;
        const std::int32_t* columns = x.indices.data() + x.begin(row);
        const float* values = x.values.data() + x.begin(row);
        const std::int64_t count = x.length(row);
        for (std::int64_t e = 0; e < count; ++e) {
            const std::int32_t column = columns[e];
            const std::uint64_t word = seen[column >> 6];
            *next = column;  // kept if it is new; a branch would be wrong every other time
            next += ~(word >> (column & 63)) & 1;
            seen[column >> 6] = word | std::uint64_t{1} << (column & 63);
            sums[column] += scale * values[e];
        }
        touched_.resize(static_cast<std::size_t>(next - touched_.data()));
    }

    // Leaves the `keep` largest columns (all if 0), ties to the lower column, in ascending order.
    const std::vector<std::int32_t>& select(std::int64_t keep) {
        if (keep > 0 && static_cast<std::int64_t>(touched_.size()) > keep) {
            const float* sums = sums_.data();
            sizes_.clear();
            for (const std::int32_t column : touched_) sizes_.push_back(std::fabs(sums[column]));
            std::nth_element(sizes_.begin(), sizes_.begin() + (keep - 1), sizes_.end(), std::greater<>());
            const float least = sizes_[keep - 1];
            const auto large = [&](std::int32_t column) { return std::fabs(sums[column]) > least; };
            const auto tied = std::partition(touched_.begin(), touched_.end(), large);
            const auto rest = std::partition(tied, touched_.end(),
                                             [&](std::int32_t column) { return std::fabs(sums[column]) == least; });
            const auto cut = touched_.begin() + keep;
            std::nth_element(tied, cut, rest);
            clear(cut, touched_.end());
            touched_.erase(cut, touched_.end());
        }
        std::sort(touched_.begin(), touched_.end());
        return touched_;
    }

    double squared_length() const {
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
        float* sums = sums_.reserve(known_);
        std::uint64_t* seen = seen_.reserve(known_ / 64 + 1);
        for (auto column = from; column != to; ++column) {
            sums[*column] = 0.0F;
            seen[*column >> 6] = 0;  // whose other columns are cleared too, now or with the rest
        }
    }

    Buffer<float> sums_;
    Buffer<std::uint64_t> seen_;  // a bit a column: stays in the nearest cache
    std::int64_t known_ = 0;
    std::vector<std::int32_t> touched_;
    std::vector<float> sizes_;
};

// The rows of a label lie anywhere: ask for those to come while this one is added.
void ask_for(const CsrView& x, const CsrView& positives, std::int64_t e) {
    constexpr std::int64_t offsets_ahead = 16;
    constexpr std::int64_t rows_ahead = 8;
    const auto count = static_cast<std::int64_t>(positives.indices.size());
    if (e + offsets_ahead < count) __builtin_prefetch(&x.indptr[positives.indices[e + offsets_ahead]]);
    if (e + rows_ahead < count) {
        const std::int64_t first = x.begin(positives.indices[e + rows_ahead]);
        const std::int32_t* indices = x.indices.data() + first;
        const float* values = x.values.data() + first;
        for (int line = 0; line < 2; ++line) {
            __builtin_prefetch(indices + 16 * line);
            __builtin_prefetch(values + 16 * line);
        }
    }
}

}  // namespace

Representation aggregate_positives(const Features& features, const CsrView& positives, std::int64_t keep, int threads,
                                   Monitor& monitor) {
    const std::int64_t labels = positives.rows();
    const std::int64_t dense_cols = features.dense.cols;
    Representation out;
    out.sparse.cols = features.sparse.cols;
    out.dense.assign(labels * dense_cols, 0.0F);
    const std::int64_t tasks = (labels + kLabelsPerTask - 1) / kLabelsPerTask;
    std::vector<Csr> parts(tasks);
    std::vector<Accumulator> accumulators(threads);
    monitor.total = labels;
    parallel_for(tasks, threads, &monitor, [&](int worker, std::int64_t task) {
        Accumulator& sums = accumulators[worker];
        Csr& part = parts[task];
        const std::int64_t last = std::min(labels, (task + 1) * kLabelsPerTask);
        for (std::int64_t label = task * kLabelsPerTask; label < last; ++label) {
            float* dense = out.dense.data() + label * dense_cols;
            sums.begin(features.sparse.cols);
            for (std::int64_t e = positives.begin(label); e < positives.end(label); ++e) {
                const std::int32_t row = positives.indices[e];
                ask_for(features.sparse, positives, e);
                sums.add(features.sparse, row, positives.values[e]);
                if (dense_cols > 0)
                    kernels().add_scaled(dense, features.dense.row(row), positives.values[e], dense_cols);
            }
            const std::vector<std::int32_t>& kept = sums.select(keep);
            double length = sums.squared_length();
            if (dense_cols > 0) length += kernels().dot(dense, dense, dense_cols);
            const float scale = length > 0.0 ? static_cast<float>(1.0 / std::sqrt(length)) : 0.0F;
            for (const std::int32_t column : kept) {
                part.indices.push_back(column);
                part.values.push_back(sums[column] * scale);
            }
            part.indptr.push_back(static_cast<std::int64_t>(part.indices.size()));
            for (std::int64_t j = 0; j < dense_cols; ++j) dense[j] *= scale;
            sums.end();
        }
        monitor.done += last - task * kLabelsPerTask;
    });
    std::size_t entries = 0;
    for (const Csr& part : parts) entries += part.indices.size();
    out.sparse.indptr.reserve(labels + 1);
    out.sparse.indices.reserve(entries);
    out.sparse.values.reserve(entries);
    for (Csr& part : parts) {
        const auto base = static_cast<std::int64_t>(out.sparse.indices.size());
        for (std::size_t i = 1; i < part.indptr.size(); ++i) out.sparse.indptr.push_back(base + part.indptr[i]);
        out.sparse.indices.insert(out.sparse.indices.end(), part.indices.begin(), part.indices.end());
        out.sparse.values.insert(out.sparse.values.end(), part.values.begin(), part.values.end());
        part = Csr();
    }
    return out;
}

}  // namespace carya
