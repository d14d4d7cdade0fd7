#include "group.hpp"

#include <numeric>

#include "../kernels/kernels.hpp"

namespace carya {

Group whole(const Features& representation) {
    const CsrView& z = representation.sparse;
    Group out;
    out.labels.resize(z.rows());
    std::iota(out.labels.begin(), out.labels.end(), 0);
    out.offsets.assign(z.indptr.begin(), z.indptr.end());
    out.columns.assign(z.indices.begin(), z.indices.end());
    out.values.assign(z.values.begin(), z.values.end());
    out.width = z.cols;
    out.dense = representation.dense;
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
    out.offsets.reserve(members.size() + 1);
    out.columns.reserve(entries);
    out.values.reserve(entries);
    for (const std::int32_t member : members) {
        for (std::int64_t e = group.offsets[member]; e < group.offsets[member + 1]; ++e) {
            const std::uint32_t n = number[group.columns[e]];
            if (n == 0) continue;
            out.columns.push_back(n - 1);
            out.values.push_back(group.values[e]);
        }
        out.offsets.push_back(static_cast<std::int64_t>(out.columns.size()));
    }
    return out;
}

void Centre::add(const Group& group, std::int64_t member, float scale) {
    for (std::int64_t e = group.offsets[member]; e < group.offsets[member + 1]; ++e)
        sparse[group.columns[e]] += scale * group.values[e];
    const std::int64_t cols = group.dense.cols;
    if (cols > 0) kernels().add_scaled(dense.data(), group.dense.row(group.labels[member]), scale, cols);
}

double Centre::squared_length() const {
    double total = 0.0;
    for (const float x : sparse) total += static_cast<double>(x) * x;
    for (const float x : dense) total += static_cast<double>(x) * x;
    return total;
}

float similarity(const Group& group, std::int64_t member, const Centre& centre) {
    float even = 0.0F;
    float odd = 0.0F;
    std::int64_t e = group.offsets[member];
    const std::int64_t last = group.offsets[member + 1];
    for (; e + 2 <= last; e += 2) {
        even += centre.sparse[group.columns[e]] * group.values[e];
        odd += centre.sparse[group.columns[e + 1]] * group.values[e + 1];
    }
    if (e < last) even += centre.sparse[group.columns[e]] * group.values[e];
    const std::int64_t cols = group.dense.cols;
    if (cols > 0) even += kernels().dot(group.dense.row(group.labels[member]), centre.dense.data(), cols);
    return even + odd;
}

}  // namespace carya
