#include "label_group.hpp"

#include <bit>
#include <iterator>
#include <numeric>

#include "../kernels/kernels.hpp"

namespace carya {

namespace {

// Groups with fewer entries per feature get their own copy. (Values from 8 to 24 are equally fast; 1 is slower.)
constexpr std::int64_t kMinEntriesPerFeature = 16;

// Copies the entries of a group and renumbers their features: new_ids[f] is the new id of feature f plus 1, or 0 if the
// feature is dropped.
template <class Columns, class Values>
void renumber(LabelGroup& group, const Columns& columns, const Values& values,
              const std::vector<std::uint32_t>& new_ids, std::size_t count, std::int64_t width) {
    auto entries = std::make_shared<GroupEntries>();
    entries->width = width;
    // Every entry is written and, if its feature is dropped, overwritten by the next one, which is cheaper than a
    // branch.
    entries->columns.resize(count + 1);
    entries->values.resize(count + 1);
    std::uint32_t* new_columns = entries->columns.data();
    float* new_values = entries->values.data();
    std::int64_t used = 0;
    for (LabelGroup::Row& row : group.rows) {
        const std::int64_t begin = used;
        for (std::int64_t e = row.begin; e < row.end; ++e) {
            const std::uint32_t n = new_ids[columns[e]];
            new_columns[used] = n - 1;
            new_values[used] = values[e];
            used += n != 0;
        }
        row = {begin, used};
    }
    group.entries = std::move(entries);
}

}  // namespace

LabelGroup make_root_group(const Features& representation) {
    const CsrView& z = representation.sparse;
    LabelGroup out;
    out.dense = representation.dense;
    out.labels.resize(z.rows());
    std::iota(out.labels.begin(), out.labels.end(), 0);
    out.rows.reserve(z.rows());
    for (std::int64_t label = 0; label < z.rows(); ++label) out.rows.push_back({z.begin(label), z.end(label)});
    std::vector<std::uint32_t> counts(z.cols, 0);
    for (const std::int32_t column : z.indices) ++counts[column];
    // Number frequent features first, grouped by powers of 2, so that most entries access the part of a centroid that
    // stays in cache.
    constexpr int kBuckets = 33;
    std::size_t count = 0;
    std::uint32_t next_id[kBuckets] = {};
    for (const std::uint32_t n : counts) {
        if (n < 2) continue;
        count += n;
        ++next_id[kBuckets - 1 - std::bit_width(n)];
    }
    std::exclusive_scan(std::begin(next_id), std::end(next_id), std::begin(next_id), 0U);
    for (std::uint32_t& n : counts) n = n > 1 ? ++next_id[kBuckets - 1 - std::bit_width(n)] : 0;
    renumber(out, z.indices, z.values, counts, count, next_id[kBuckets - 1]);
    return out;
}

LabelGroup make_subgroup(const LabelGroup& group, const std::vector<std::int32_t>& members) {
    LabelGroup out;
    out.dense = group.dense;
    out.entries = group.entries;
    out.labels.reserve(members.size());
    out.rows.reserve(members.size());
    std::int64_t entries = 0;
    for (const std::int32_t member : members) {
        const LabelGroup::Row row = group.rows[member];
        out.labels.push_back(group.labels[member]);
        out.rows.push_back(row);
        entries += row.end - row.begin;
    }
    if (entries >= kMinEntriesPerFeature * group.entries->width) return out;

    const std::vector<std::uint32_t>& columns = group.entries->columns;
    std::vector<std::uint32_t> counts(group.entries->width, 0);  // labels per feature, later the new id plus 1
    for (const LabelGroup::Row& row : out.rows)
        for (std::int64_t e = row.begin; e < row.end; ++e) ++counts[columns[e]];
    std::size_t count = 0;
    std::uint32_t used = 0;
    for (std::uint32_t& n : counts) {
        if (n > 1) count += n;
        n = n > 1 ? ++used : 0;
    }
    renumber(out, columns, group.entries->values, counts, count, used);
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
