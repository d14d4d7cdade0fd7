#include "group.hpp"

#include <bit>
#include <iterator>
#include <numeric>

#include "../kernels/kernels.hpp"

namespace carya {

namespace {

// Copies the rows of some labels. number[f] is the new number of feature f plus 1, 0 where it is left out.
template <class Offsets, class Columns, class Values>
void copy_rows(const std::vector<std::int32_t>& members, const Offsets& offsets, const Columns& columns,
               const Values& values, const std::vector<std::uint32_t>& number, std::size_t entries, Group& out) {
    out.offsets.resize(members.size() + 1);
    out.columns.resize(entries + 1);  // every entry is written, then kept or overwritten: cheaper than a branch
    out.values.resize(entries + 1);
    std::uint32_t* new_columns = out.columns.data();
    float* new_values = out.values.data();
    std::int64_t used = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
        const std::int64_t last = offsets[members[m] + 1];
        for (std::int64_t e = offsets[members[m]]; e < last; ++e) {
            const std::uint32_t n = number[columns[e]];
            new_columns[used] = n - 1;
            new_values[used] = values[e];
            used += n != 0;
        }
        out.offsets[m + 1] = used;
    }
}

}  // namespace

Group whole(const Features& representation) {
    const CsrView& z = representation.sparse;
    Group out;
    out.dense = representation.dense;
    out.labels.resize(z.rows());
    std::iota(out.labels.begin(), out.labels.end(), 0);
    std::vector<std::uint32_t> number(z.cols, 0);
    for (const std::int32_t column : z.indices) ++number[column];
    // Common features first, in powers of two: most entries then fall into the part of a centre that stays in cache.
    constexpr int kSizes = 33;
    std::size_t entries = 0;
    std::uint32_t first[kSizes] = {};
    for (const std::uint32_t count : number) {
        if (count < 2) continue;
        entries += count;
        ++first[kSizes - 1 - std::bit_width(count)];
    }
    std::exclusive_scan(std::begin(first), std::end(first), std::begin(first), 0U);
    for (std::uint32_t& n : number) n = n > 1 ? ++first[kSizes - 1 - std::bit_width(n)] : 0;
    out.width = first[kSizes - 1];
    copy_rows(out.labels, z.indptr, z.indices, z.values, number, entries, out);
    return out;
}

Group subgroup(const Group& group, const std::vector<std::int32_t>& members) {
    Group out;
    out.dense = group.dense;
    out.labels.reserve(members.size());
    std::vector<std::uint32_t> number(group.width, 0);  // how many members have the feature, then its number + 1
    for (const std::int32_t member : members) {
        out.labels.push_back(group.labels[member]);
        for (std::int64_t e = group.offsets[member]; e < group.offsets[member + 1]; ++e) ++number[group.columns[e]];
    }
    std::size_t entries = 0;
    std::uint32_t used = 0;
    for (std::uint32_t& n : number) {
        if (n > 1) entries += n;
        n = n > 1 ? ++used : 0;
    }
    out.width = used;
    copy_rows(members, group.offsets, group.columns, group.values, number, entries, out);
    return out;
}

void Centre::add(const Group& group, std::int64_t member, float scale) {
    for (std::int64_t e = group.offsets[member]; e < group.offsets[member + 1]; ++e)
        sparse[group.columns[e]] += scale * group.values[e];
    const std::int64_t cols = group.dense.cols;
    if (cols > 0) kernels().add_scaled(dense.data(), group.dense.row(group.labels[member]), scale, cols);
}

double Centre::squared_length() const {
    const auto width = static_cast<std::int64_t>(sparse.size());
    const auto cols = static_cast<std::int64_t>(dense.size());
    return double{kernels().dot(sparse.data(), sparse.data(), width)} +
           double{kernels().dot(dense.data(), dense.data(), cols)};
}

float similarity(const Group& group, std::int64_t member, const Centre& centre) {
    const std::int64_t first = group.offsets[member];
    const std::int64_t cols = group.dense.cols;
    float sum = kernels().sparse_dot(group.columns.data() + first, group.values.data() + first,
                                     group.offsets[member + 1] - first, centre.sparse.data());
    if (cols > 0) sum += kernels().dot(group.dense.row(group.labels[member]), centre.dense.data(), cols);
    return sum;
}

}  // namespace carya
