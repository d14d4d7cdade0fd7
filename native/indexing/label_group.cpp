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

// Renumbers the features of a row and stores its entries starting at `new_begin`. new_ids[f] is the new id of feature f
// plus 1, or 0 if the feature is dropped. The old and new arrays may be the same.
template <class Column>
void renumber_row(LabelGroup::Row& row, std::int64_t new_begin, const Column* columns, const float* values,
                  const std::uint32_t* new_ids, std::uint32_t* new_columns, float* new_values) {
    std::int64_t used = new_begin;
    for (std::int64_t e = row.begin; e < row.end; ++e) {
        const std::uint32_t id = new_ids[columns[e]];
        new_columns[used] = id - 1;  // overwritten by the next entry if the feature is dropped; avoids a branch
        new_values[used] = values[e];
        used += id != 0;
    }
    row = {new_begin, used};
}

// On entry, counts[f] is the number of labels in which feature f occurs; on return, it is the feature's new id plus 1,
// or 0 if the feature is dropped. Returns the number of features that are kept. Frequent features are numbered first,
// grouped by powers of 2, so that most accesses hit the part of a centroid that stays in cache.
std::int64_t number_by_frequency(std::vector<std::uint32_t>& counts) {
    constexpr int kBuckets = 33;
    std::uint32_t next_id[kBuckets] = {};
    for (const std::uint32_t n : counts)
        if (n > 1) ++next_id[kBuckets - 1 - std::bit_width(n)];
    std::exclusive_scan(std::begin(next_id), std::end(next_id), std::begin(next_id), 0U);
    for (std::uint32_t& n : counts) n = n > 1 ? ++next_id[kBuckets - 1 - std::bit_width(n)] : 0;
    return next_id[kBuckets - 1];
}

// Returns the number of rows in which each column occurs.
template <class Column>
std::vector<std::uint32_t> count_columns(const std::vector<LabelGroup::Row>& rows, const Column* columns,
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
    out.rows = std::move(vectors.rows);
    if (vectors.dense) {
        out.dense = {vectors.dense->data(), out.size(),
                     std::ssize(*vectors.dense) / std::max<std::int64_t>(out.size(), 1)};
        out.dense_owner = vectors.dense;
    }
    auto entries = std::make_shared<GroupEntries>();
    entries->columns = std::move(vectors.columns);
    entries->values = std::move(vectors.values);
    std::uint32_t* columns = entries->columns.data();
    float* values = entries->values.data();
    std::vector<std::uint32_t> ids = count_columns(out.rows, columns, vectors.cols, threads);
    entries->width = number_by_frequency(ids);
    entries->labels = out.size();
    parallel_each(out.size(), kGroupRowsPerTask, threads, nullptr, [&](int, std::int64_t r) {
        renumber_row(out.rows[r], out.rows[r].begin, columns, values, ids.data(), columns, values);
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
    for (std::uint32_t& id : ids) id = id > 1 ? static_cast<std::uint32_t>(++entries->width) : 0;
    entries->columns.resize(count + 1);  // renumber_row can write one entry past the end
    entries->values.resize(count + 1);
    std::int64_t begin = 0;
    for (LabelGroup::Row& row : out.rows) {
        renumber_row(row, begin, all.columns.data(), all.values.data(), ids.data(), entries->columns.data(),
                     entries->values.data());
        begin = row.end;
    }
    out.entries = std::move(entries);
    return out;
}

void Centroid::add(const LabelGroup& group, std::int64_t member, float scale) {
    const GroupEntries& entries = *group.entries;
    for (std::int64_t e = group.rows[member].begin; e < group.rows[member].end; ++e)
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
                             row.end - row.begin, centroid.sparse.data());
    if (cols > 0) sum += kernels().dot(group.dense.row(group.labels[member]), centroid.dense.data(), cols);
    return sum;
}

}  // namespace carya
