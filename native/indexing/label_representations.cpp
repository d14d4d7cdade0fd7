#include "label_representations.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "../core/aligned_buffer.hpp"
#include "../kernels/kernels.hpp"

namespace carya {

namespace {

constexpr std::int64_t kLabelsPerTask = 64;

// Sums sparse rows in a dense array and lists the columns that have entries.
class Accumulator {
public:
    void add(const CsrView& x, std::int64_t row, float scale) {
        if (n_columns_ < x.cols) {
            n_columns_ = x.cols;
            sums_.zeros(n_columns_);
            seen_.zeros(n_columns_ / 64 + 1);
        }
        const std::int64_t count = x.length(row);
        columns_.resize(n_used_ + static_cast<std::size_t>(count));
        float* sums = sums_.data();
        std::uint64_t* seen = seen_.data();
        std::uint32_t* next = columns_.data() + n_used_;
        const std::int32_t* columns = x.indices.data() + x.begin(row);
        const float* values = x.values.data() + x.begin(row);
        for (std::int64_t e = 0; e < count; ++e) {
            const auto column = static_cast<std::uint32_t>(columns[e]);
            const std::uint64_t word = seen[column >> 6];
            *next = column;  // kept only if the column is new; a branch would be mispredicted half the time
            next += ~(word >> (column & 63)) & 1;
            seen[column >> 6] = word | std::uint64_t{1} << (column & 63);
            sums[column] += scale * values[e];
        }
        n_used_ = static_cast<std::size_t>(next - columns_.data());
    }

    // Returns the columns in the order in which they first occurred, and writes their sums to `values`. The columns are
    // valid until the next call to `add`. Clears the accumulator.
    std::span<std::uint32_t> drain(RawVector<float>& values) {
        float* sums = sums_.data();
        std::uint64_t* seen = seen_.data();
        values.resize(n_used_);
        for (std::size_t i = 0; i < n_used_; ++i) {
            const std::uint32_t column = columns_[i];
            values[i] = sums[column];
            sums[column] = 0.0F;
            seen[column >> 6] = 0;  // the other columns in this word are also cleared by this loop
        }
        return {columns_.data(), std::exchange(n_used_, 0)};
    }

private:
    AlignedBuffer<float> sums_;
    AlignedBuffer<std::uint64_t> seen_;  // one bit per column, small enough for the L1 cache
    std::int64_t n_columns_ = 0;
    RawVector<std::uint32_t> columns_;
    std::size_t n_used_ = 0;
};

// Calls keep(i) for the `count` values with the largest magnitudes, in ascending order of i. Ties are broken in favor
// of the lower column index.
template <class Keep>
void for_each_largest(std::span<const std::uint32_t> columns, const float* values, std::int64_t count,
                      std::vector<std::uint32_t>& tied, const Keep& keep) {
    const auto size = std::ssize(columns);
    // The bit patterns of non-negative floats have the same order as the floats, so find the smallest magnitude to keep
    // bit by bit.
    std::uint32_t smallest_kept = 0;
    for (std::uint32_t bit = 1U << 30; bit != 0; bit >>= 1)
        if (kernels().count_at_least(values, size, std::bit_cast<float>(smallest_kept | bit)) >= count)
            smallest_kept |= bit;
    const auto threshold = std::bit_cast<float>(smallest_kept);
    const std::int64_t n_larger = kernels().count_at_least(values, size, std::bit_cast<float>(smallest_kept + 1));
    std::uint32_t last_tied = UINT32_MAX;  // highest column to keep among those whose magnitude equals the threshold
    if (kernels().count_at_least(values, size, threshold) > count) {
        tied.clear();
        for (std::int64_t i = 0; i < size; ++i)
            if (std::fabs(values[i]) == threshold) tied.push_back(columns[i]);
        const auto last = tied.begin() + (count - n_larger - 1);
        std::nth_element(tied.begin(), last, tied.end());
        last_tied = *last;
    }
    for (std::int64_t i = 0; i < size; ++i) {
        const float magnitude = std::fabs(values[i]);
        if (magnitude > threshold || (magnitude == threshold && columns[i] <= last_tied)) keep(i);
    }
}

// Selects the largest entries of a vector.
class EntrySelector {
public:
    // Moves the selected entries to the front and returns their number.
    std::int64_t select(std::span<std::uint32_t> columns, std::span<float> values, const AggregationLimits& limits) {
        std::int64_t size = std::ssize(columns);
        if (limits.energy > 0.0 && limits.energy < 1.0) size = select_energy(columns, values, limits.energy);
        if (limits.max_features == 0 || size <= limits.max_features) return size;
        std::int64_t kept = 0;
        for_each_largest(columns.first(size), values.data(), limits.max_features, tied_, [&](std::int64_t i) {
            columns[kept] = columns[i];
            values[kept++] = values[i];
        });
        return kept;
    }

private:
    // Magnitudes are divided into intervals by their exponent and the first three bits of their mantissa, so the values
    // in an interval differ by at most 12.5%. The last interval contains all smaller magnitudes.
    static constexpr int kIntervalShift = 20;
    static constexpr std::uint32_t kIntervals = 128;

    static std::uint32_t key_of(float value) {
        return std::bit_cast<std::uint32_t>(std::fabs(value)) >> kIntervalShift;
    }

    std::int64_t select_energy(std::span<std::uint32_t> columns, std::span<float> values, double fraction) {
        std::uint32_t largest_key = 0;
        for (const float value : values) largest_key = std::max(largest_key, key_of(value));
        const auto interval_of = [&](float value) { return std::min(largest_key - key_of(value), kIntervals - 1); };
        double energy[kIntervals] = {};
        for (const float value : values) energy[interval_of(value)] += double{value} * value;
        const double target = fraction * std::accumulate(std::begin(energy), std::end(energy), 0.0);
        std::uint32_t last = 0;
        for (double sum = energy[0]; sum < target && last + 1 < kIntervals; sum += energy[++last]) {
        }
        std::int64_t kept = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const float value = values[i];
            columns[kept] = columns[i];  // overwritten by the next entry if this one is dropped
            values[kept] = value;
            kept += interval_of(value) <= last;
        }
        return kept;
    }

    std::vector<std::uint32_t> tied_;
};

// The entries of all vectors. Workers reserve ranges in any order, so the position of a vector is arbitrary, but its
// contents are not. Memory that is never written to uses no physical memory.
class EntryArena {
public:
    EntryArena(LabelVectors& vectors, std::int64_t capacity) : vectors_(vectors) {
        vectors.columns.resize(capacity);
        vectors.values.resize(capacity);
    }

    LabelVectors::Row add(std::span<const std::uint32_t> columns, std::span<const float> values) {
        const std::int64_t begin = used_.fetch_add(std::ssize(columns), std::memory_order_relaxed);
        std::copy(columns.begin(), columns.end(), vectors_.columns.begin() + begin);
        std::copy(values.begin(), values.end(), vectors_.values.begin() + begin);
        return {begin, begin + std::ssize(columns)};
    }

    void finish() {
        vectors_.columns.resize(used_);
        vectors_.values.resize(used_);
    }

private:
    LabelVectors& vectors_;
    std::atomic<std::int64_t> used_{0};
};

// Aggregates the rows of each label, one label at a time.
class Aggregator {
public:
    Aggregator(const Features& features, const CsrView& positives, const AggregationLimits& limits)
        : features_(features),
          positives_(positives),
          limits_(limits),
          max_rows_(limits.max_rows > 0 ? limits.max_rows : std::numeric_limits<std::int64_t>::max()) {}

    void aggregate(std::int64_t label, LabelVectors& out, EntryArena& arena) {
        const std::int64_t dense_cols = features_.dense.cols;
        float* dense = out.dense->data() + label * dense_cols;
        const std::int64_t n_rows = std::min(positives_.length(label), max_rows_);
        for (std::int64_t i = 0; i < n_rows; ++i) {
            const std::int64_t e = entry_of(label, i);
            prefetch_rows(label, i);
            sums_.add(features_.sparse, positives_.indices[e], positives_.values[e]);
            if (dense_cols > 0)
                kernels().add_scaled(dense, features_.dense.row(positives_.indices[e]), positives_.values[e],
                                     dense_cols);
        }
        const std::span<std::uint32_t> columns = sums_.drain(values_);
        const std::int64_t size = selector_.select(columns, values_, limits_);
        const std::span<float> values = std::span<float>(values_).first(size);
        const double squared_norm = double{kernels().dot(values.data(), values.data(), size)} +
                                    (dense_cols > 0 ? double{kernels().dot(dense, dense, dense_cols)} : 0.0);
        const float scale = squared_norm > 0.0 ? static_cast<float>(1.0 / std::sqrt(squared_norm)) : 0.0F;
        for (float& value : values) value *= scale;
        for (std::int64_t j = 0; j < dense_cols; ++j) dense[j] *= scale;
        out.rows[label] = arena.add(columns.first(size), values);
    }

private:
    // Returns the entry of the label's i-th row. If the label has more than max_rows_ rows, evenly spaced rows are
    // selected.
    std::int64_t entry_of(std::int64_t label, std::int64_t i) const {
        const std::int64_t count = positives_.length(label);
        return positives_.begin(label) + (count <= max_rows_ ? i : i * count / max_rows_);
    }

    // Prefetches one of the next rows while the current row is being added, because rows are scattered in memory.
    // GCC removes calls to functions that only prefetch, unless they are inlined.
    [[gnu::always_inline]] void prefetch_rows(std::int64_t label, std::int64_t i) const {
        constexpr std::int64_t offset_distance = 10;
        constexpr std::int64_t distance = 4;
        constexpr std::int64_t max_entries = 512;
        constexpr std::int64_t entries_per_line = 16;
        const CsrView& x = features_.sparse;
        const std::int64_t last_entry = std::ssize(positives_.indices) - 1;
        __builtin_prefetch(&x.indptr[positives_.indices[std::min(entry_of(label, i + offset_distance), last_entry)]]);
        const std::int64_t e = std::min(entry_of(label, i + distance), last_entry);
        const std::int32_t row = positives_.indices[e];
        const std::int64_t first = x.begin(row);
        const std::int64_t last = std::min(x.end(row), first + max_entries);
        for (std::int64_t entry = first; entry < last; entry += entries_per_line) {
            __builtin_prefetch(x.indices.data() + entry);
            __builtin_prefetch(x.values.data() + entry);
        }
    }

    const Features& features_;
    const CsrView& positives_;
    const AggregationLimits& limits_;
    const std::int64_t max_rows_;
    Accumulator sums_;
    RawVector<float> values_;
    EntrySelector selector_;
};

}  // namespace

LabelVectors aggregate_positives(const Features& features, const CsrView& positives, const AggregationLimits& limits,
                                 int threads, Monitor& monitor) {
    const std::int64_t labels = positives.rows();
    LabelVectors out;
    out.cols = features.sparse.cols;
    out.dense = std::make_shared<std::vector<float>>(labels * features.dense.cols, 0.0F);
    out.rows.resize(labels);
    const std::int64_t max_entries = limits.max_features > 0 ? limits.max_features : features.sparse.cols;
    std::int64_t capacity = 0;
    for (std::int64_t label = 0; label < labels; ++label) {
        std::int64_t entries = 0;
        for (std::int64_t e = positives.begin(label); e < positives.end(label) && entries < max_entries; ++e)
            entries += features.sparse.length(positives.indices[e]);
        capacity += std::min(entries, max_entries);
    }
    EntryArena arena(out, capacity);
    std::vector<Aggregator> aggregators;
    for (int i = 0; i < threads; ++i) aggregators.emplace_back(features, positives, limits);
    monitor.total = labels;
    parallel_each(labels, kLabelsPerTask, threads, &monitor,
                  [&](int worker, std::int64_t label) { aggregators[worker].aggregate(label, out, arena); });
    arena.finish();
    return out;
}

Csr to_csr(const LabelVectors& vectors, EntryOrder order, int threads) {
    Csr out;
    out.cols = vectors.cols;
    out.indptr.reserve(vectors.size() + 1);
    for (const LabelVectors::Row& row : vectors.rows) out.indptr.push_back(out.indptr.back() + row.end - row.begin);
    out.indices.resize(out.indptr.back());
    out.values.resize(out.indptr.back());
    parallel_each(vectors.size(), kLabelsPerTask, threads, nullptr, [&](int, std::int64_t label) {
        const LabelVectors::Row row = vectors.rows[label];
        std::vector<std::pair<std::uint32_t, float>> entries;
        for (std::int64_t e = row.begin; e < row.end; ++e) entries.emplace_back(vectors.columns[e], vectors.values[e]);
        if (order == EntryOrder::by_column) std::sort(entries.begin(), entries.end());
        std::int64_t slot = out.indptr[label];
        for (const auto& [column, value] : entries) {
            out.indices[slot] = static_cast<std::int32_t>(column);
            out.values[slot++] = value;
        }
    });
    return out;
}

}  // namespace carya
