// The labels of one cluster while it is being split, with their representations close together.
#pragma once

#include <cstdint>
#include <vector>

#include "../matrix.hpp"

namespace carya {

// Sparse parts are copied with features renumbered, and features of a single label dropped: they tell no two labels
// apart, and near the leaves they are most of all entries. Dense parts stay where they are.
struct Group {
    std::vector<std::int32_t> labels;  // ascending
    std::vector<std::int64_t> offsets{0};
    std::vector<std::uint32_t> columns;
    std::vector<float> values;
    std::int64_t width = 0;  // features in use
    DenseView dense;         // of all labels

    std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

Group whole(const Features& representation);

// The members of `group` (indices into its labels, ascending) as a group of their own.
Group subgroup(const Group& group, const std::vector<std::int32_t>& members);

// Sums of members, for centres: one sparse and one dense array.
struct Centre {
    std::vector<float> sparse;
    std::vector<float> dense;

    explicit Centre(const Group& group) : sparse(group.width), dense(group.dense.cols) {}
    void add(const Group& group, std::int64_t member, float scale);
    double squared_length() const;
};

// Inner product of a member with a centre.
float similarity(const Group& group, std::int64_t member, const Centre& centre);

}  // namespace carya
