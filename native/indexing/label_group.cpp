#include "label_group.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

#include "../core/parallel.hpp"
#include "../kernels/kernels.hpp"

namespace carya {

namespace {

// Subgroups with fewer entries per feature than this get their own copy of the entries. (All values from 8 to 24 are
// equally fast; 1 is slower.)
constexpr std::int64_t kMinEntriesPerFeature = 16;
// A group copies its entries only if it has at most 1/kMinShrinkage of the labels that the shared entries cover, so
// repeated bisection copies entries at every second level.
constexpr std::int64_t kMinShrinkage = 3;
constexpr std::int64_t kGroupRowsPerTask = 512;

// Features that occur in fewer labels than 1/kRareFraction of the group are rare.
constexpr std::uint64_t kRareFraction = 1024;

// Returns the smallest number of labels in which a frequent feature occurs, a power of 2.
std::uint32_t min_frequency(std::int64_t labels) {
    return static_cast<std::uint32_t>(std::bit_ceil(std::max<std::uint64_t>(2, labels / kRareFraction)));
}

// Renumbers features and copies entries.
class Renumberer {
public:
    // new_ids[f] is the new id of feature f plus 1, or 0 if the feature is dropped.
    Renumberer(const std::vector<std::uint32_t>& new_ids, std::int64_t n_frequent)
        : new_ids_(new_ids.data()), n_frequent_(static_cast<std::uint32_t>(n_frequent)) {}

    // Copies the entries of a row to `out`, starting at `new_begin`, and returns the new row. `columns` and `values`
    // may be the arrays of `out`.
    LabelGroup::Row copy(const LabelGroup::Row& row, const std::uint32_t* columns, const float* values,
                         std::int64_t new_begin, GroupEntries& out) {
        const auto size = static_cast<std::size_t>(row.end - row.begin);
        rare_columns_.resize(size + 1);
        rare_values_.resize(size + 1);
        std::uint32_t* const new_columns = out.columns.data() + new_begin;
        float* const new_values = out.values.data() + new_begin;
        std::int64_t n_frequent = 0;
        std::int64_t n_rare = 0;
        for (std::int64_t e = row.begin; e < row.end; ++e) {
            // Every entry is written to both places, and overwritten by the next entry where it does not belong,
            // because branches would be mispredicted.
            const std::uint32_t id = new_ids_[columns[e]];
            const float value = values[e];
            new_columns[n_frequent] = rare_columns_[n_rare] = id - 1;
            new_values[n_frequent] = rare_values_[n_rare] = value;
            n_frequent += id - 1 < n_frequent_;  // false if id is 0
            n_rare += id > n_frequent_;
        }
        std::copy_n(rare_columns_.begin(), n_rare, new_columns + n_frequent);
        std::copy_n(rare_values_.begin(), n_rare, new_values + n_frequent);
        return {new_begin, new_begin + n_frequent, new_begin + n_frequent + n_rare};
    }

private:
    const std::uint32_t* new_ids_;
    const std::uint32_t n_frequent_;
    RawVector<std::uint32_t> rare_columns_;
    RawVector<float> rare_values_;
};

// On entry, counts[f] is the number of labels in which feature f occurs; on return, it is the feature's new id plus 1,
// or 0 if the feature is dropped. Features are numbered by descending frequency, in groups of powers of 2, so that most
// accesses hit the part of a centroid that stays in cache.
void number_by_frequency(std::vector<std::uint32_t>& counts, GroupEntries& entries) {
    constexpr int kBuckets = 33;
    const auto bucket = [](std::uint32_t n) { return kBuckets - 1 - std::bit_width(n); };
    std::uint32_t next_id[kBuckets] = {};
    for (const std::uint32_t n : counts)
        if (n > 1) ++next_id[bucket(n)];
    std::exclusive_scan(std::begin(next_id), std::end(next_id), std::begin(next_id), 0U);
    entries.n_frequent = next_id[bucket(min_frequency(entries.labels)) + 1];
    entries.width = next_id[kBuckets - 1];
    for (std::uint32_t& n : counts) n = n > 1 ? ++next_id[bucket(n)] : 0;
}

// Same as number_by_frequency, but the features are only divided into frequent and rare ones. Used if the features are
// already ordered by their frequency in a larger group.
void number_in_order(std::vector<std::uint32_t>& counts, GroupEntries& entries) {
    const std::uint32_t least = min_frequency(entries.labels);
    for (const std::uint32_t n : counts) entries.n_frequent += n >= least;
    std::uint32_t last_frequent = 0;
    auto last_rare = static_cast<std::uint32_t>(entries.n_frequent);
    for (std::uint32_t& n : counts) {
        const bool frequent = n >= least;
        last_frequent += frequent;
        last_rare += n > 1 && !frequent;
        n = frequent ? last_frequent : n > 1 ? last_rare : 0;
    }
    entries.width = last_rare;
}

// Returns the number of rows in which each column occurs.
std::vector<std::uint32_t> count_columns(const std::vector<LabelGroup::Row>& rows, const std::uint32_t* columns,
                                         std::int64_t cols, int threads) {
    const auto size = static_cast<std::int64_t>(rows.size());
    std::vector<std::vector<std::uint32_t>> counts(threads);
    parallel_for(threads, threads, nullptr, [&](int, std::int64_t part) {
        std::vector<std::uint32_t>& own = counts[part];
        own.assign(cols, 0);
        for (std::int64_t r = size * part / threads; r < size * (part + 1) / threads; ++r)
            for (std::int64_t e = rows[r].begin; e < rows[r].end; ++e) ++own[columns[e]];
    });
    for (int part = 1; part < threads; ++part)
        for (std::int64_t c = 0; c < cols; ++c) counts[0][c] += counts[part][c];
    return std::move(counts[0]);
}

std::vector<std::int32_t> all_labels(std::int64_t count) {
    std::vector<std::int32_t> labels(count);
    std::iota(labels.begin(), labels.end(), 0);
    return labels;
}

}  // namespace

LabelGroup make_root_group(const Features& representation, int threads) {
    const CsrView& z = representation.sparse;
    LabelVectors vectors;
    vectors.cols = z.cols;
    vectors.rows.reserve(z.rows());
    for (std::int64_t label = 0; label < z.rows(); ++label) vectors.rows.push_back({z.begin(label), z.end(label)});
    vectors.columns.assign(z.indices.begin(), z.indices.end());
    vectors.values.assign(z.values.begin(), z.values.end());
    LabelGroup out = make_root_group(std::move(vectors), threads);
    out.dense = representation.dense;
    return out;
}

LabelGroup make_root_group(LabelVectors&& vectors, int threads) {
    LabelGroup out;
    out.labels = all_labels(vectors.size());
    out.rows.reserve(vectors.rows.size());
    for (const LabelVectors::Row& row : vectors.rows) out.rows.push_back({row.begin, row.end, row.end});
    if (vectors.dense) {
        out.dense = {vectors.dense->data(), out.size(),
                     std::ssize(*vectors.dense) / std::max<std::int64_t>(out.size(), 1)};
        out.dense_owner = vectors.dense;
    }
    auto entries = std::make_shared<GroupEntries>();
    entries->columns = std::move(vectors.columns);
    entries->values = std::move(vectors.values);
    entries->labels = out.size();
    const std::uint32_t* columns = entries->columns.data();
    std::vector<std::uint32_t> ids = count_columns(out.rows, columns, vectors.cols, threads);
    number_by_frequency(ids, *entries);
    std::vector<Renumberer> renumberers(threads, Renumberer(ids, entries->n_frequent));
    parallel_each(out.size(), kGroupRowsPerTask, threads, nullptr, [&](int worker, std::int64_t r) {
        LabelGroup::Row& row = out.rows[r];
        row = renumberers[worker].copy(row, columns, entries->values.data(), row.begin, *entries);
    });
    out.entries = std::move(entries);
    return out;
}

LabelGroup select_members(const LabelGroup& group, const std::vector<std::int32_t>& members) {
    LabelGroup out;
    out.dense = group.dense;
    out.dense_owner = group.dense_owner;
    out.entries = group.entries;
    out.labels.reserve(members.size());
    out.rows.reserve(members.size());
    for (const std::int32_t member : members) {
        out.labels.push_back(group.labels[member]);
        out.rows.push_back(group.rows[member]);
    }
    return out;
}

LabelGroup make_subgroup(const LabelGroup& group, const std::vector<std::int32_t>& members) {
    LabelGroup out = select_members(group, members);
    std::int64_t count = 0;
    for (const LabelGroup::Row& row : out.rows) count += row.end - row.begin;
    const GroupEntries& all = *group.entries;
    if (count >= kMinEntriesPerFeature * all.width || kMinShrinkage * out.size() > all.labels) return out;

    std::vector<std::uint32_t> ids = count_columns(out.rows, all.columns.data(), all.width, 1);
    auto entries = std::make_shared<GroupEntries>();
    entries->labels = out.size();
    number_in_order(ids, *entries);
    entries->columns.resize(count + 1);  // `copy` can write one entry past the end
    entries->values.resize(count + 1);
    Renumberer renumberer(ids, entries->n_frequent);
    std::int64_t begin = 0;
    for (LabelGroup::Row& row : out.rows) {
        row = renumberer.copy(row, all.columns.data(), all.values.data(), begin, *entries);
        begin = row.end;
    }
    out.entries = std::move(entries);
    return out;
}

void Centroid::clear() {
    std::fill(sparse.begin(), sparse.end(), 0.0F);
    std::fill(dense.begin(), dense.end(), 0.0F);
}

void Centroid::add(const LabelGroup& group, std::int64_t member, float scale) {
    const GroupEntries& entries = *group.entries;
    for (std::int64_t e = group.rows[member].begin; e < group.rows[member].frequent_end; ++e)
        sparse[entries.columns[e]] += scale * entries.values[e];
    const std::int64_t cols = group.dense.cols;
    if (cols > 0) kernels().add_scaled(dense.data(), group.dense.row(group.labels[member]), scale, cols);
}

double Centroid::squared_norm() const {
    const auto width = static_cast<std::int64_t>(sparse.size());
    const auto cols = static_cast<std::int64_t>(dense.size());
    return double{kernels().dot(sparse.data(), sparse.data(), width)} +
           double{kernels().dot(dense.data(), dense.data(), cols)};
}

float similarity(const LabelGroup& group, std::int64_t member, const Centroid& centroid) {
    const LabelGroup::Row row = group.rows[member];
    const std::int64_t cols = group.dense.cols;
    float sum =
        kernels().sparse_dot(group.entries->columns.data() + row.begin, group.entries->values.data() + row.begin,
                             row.frequent_end - row.begin, centroid.sparse.data());
    if (cols > 0) sum += kernels().dot(group.dense.row(group.labels[member]), centroid.dense.data(), cols);
    return sum;
}

}  // namespace carya
