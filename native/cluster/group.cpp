#include "group.hpp"

#include <bit>
#include <iterator>
#include <numeric>

#include "../kernels/kernels.hpp"

namespace carya {

namespace {

// Entries a feature below which a group gets a copy of its own. (Measured: 8 to 24 do equally well, 1 is slower.)
constexpr std::int64_t kSparse = 16;

// The group's entries with new numbers: number[f] is that of feature f plus 1, 0 where it is left out.
template <class Columns, class Values>
void renumber(Group& group, const Columns& columns, const Values& values, const std::vector<std::uint32_t>& number,
              std::size_t count, std::int64_t width) {
    auto entries = std::make_shared<Entries>();
    entries->width = width;
    entries->columns.resize(count + 1);  // every entry is written, then kept or overwritten: cheaper than a branch
    entries->values.resize(count + 1);
    std::uint32_t* new_columns = entries->columns.data();
    float* new_values = entries->values.data();
    std::int64_t used = 0;
    for (Group::Row& row : group.rows) {
        const std::int64_t begin = used;
        for (std::int64_t e = row.begin; e < row.end; ++e) {
            const std::uint32_t n = number[columns[e]];
            new_columns[used] = n - 1;
            new_values[used] = values[e];
            used += n != 0;
        }
        row = {begin, used};
    }
    group.entries = std::move(entries);
}

}  // namespace

Group whole(const Features& representation) {
    const CsrView& z = representation.sparse;
    Group out;
    out.dense = representation.dense;
    out.labels.resize(z.rows());
    std::iota(out.labels.begin(), out.labels.end(), 0);
    out.rows.reserve(z.rows());
    for (std::int64_t label = 0; label < z.rows(); ++label) out.rows.push_back({z.begin(label), z.end(label)});
    std::vector<std::uint32_t> number(z.cols, 0);
    for (const std::int32_t column : z.indices) ++number[column];
    // Common features first, in powers of two: most entries then fall into the part of a centre that stays in cache.
    constexpr int kSizes = 33;
    std::size_t count = 0;
    std::uint32_t first[kSizes] = {};
    for (const std::uint32_t n : number) {
        if (n < 2) continue;
        count += n;
        ++first[kSizes - 1 - std::bit_width(n)];
    }
    std::exclusive_scan(std::begin(first), std::end(first), std::begin(first), 0U);
    for (std::uint32_t& n : number) n = n > 1 ? ++first[kSizes - 1 - std::bit_width(n)] : 0;
    renumber(out, z.indices, z.values, number, count, first[kSizes - 1]);
    return out;
}

Group subgroup(const Group& group, const std::vector<std::int32_t>& members) {
    Group out;
    out.dense = group.dense;
    out.entries = group.entries;
    out.labels.reserve(members.size());
    out.rows.reserve(members.size());
    std::int64_t entries = 0;
    for (const std::int32_t member : members) {
        const Group::Row row = group.rows[member];
        out.labels.push_back(group.labels[member]);
        out.rows.push_back(row);
        entries += row.end - row.begin;
    }
    if (entries >= kSparse * group.entries->width) return out;

    const std::vector<std::uint32_t>& columns = group.entries->columns;
    std::vector<std::uint32_t> number(group.entries->width, 0);  // of labels with the feature, then its new number + 1
    for (const Group::Row& row : out.rows)
        for (std::int64_t e = row.begin; e < row.end; ++e) ++number[columns[e]];
    std::size_t count = 0;
    std::uint32_t used = 0;
    for (std::uint32_t& n : number) {
        if (n > 1) count += n;
        n = n > 1 ? ++used : 0;
    }
    renumber(out, columns, group.entries->values, number, count, used);
    return out;
}

void Centre::add(const Group& group, std::int64_t member, float scale) {
    const Entries& entries = *group.entries;
    for (std::int64_t e = group.rows[member].begin; e < group.rows[member].end; ++e)
        sparse[entries.columns[e]] += scale * entries.values[e];
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
    const Group::Row row = group.rows[member];
    const std::int64_t cols = group.dense.cols;
    float sum =
        kernels().sparse_dot(group.entries->columns.data() + row.begin, group.entries->values.data() + row.begin,
                             row.end - row.begin, centre.sparse.data());
    if (cols > 0) sum += kernels().dot(group.dense.row(group.labels[member]), centre.dense.data(), cols);
    return sum;
}

}  // namespace carya
