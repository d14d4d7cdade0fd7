// The labels of one cluster while it is being split, with their representations close together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../matrix.hpp"

namespace carya {

// Sparse rows with features renumbered, common ones first, and features of a single label dropped: they tell no two
// labels apart, and near the leaves they are most of all entries.
struct Entries {
    std::vector<std::uint32_t> columns;
    std::vector<float> values;
    std::int64_t width = 0;  // features in use
};

// Groups share entries with the group they come from until those hold many features for few entries: to copy costs as
// much as several rounds of k-means, and gains little before. Dense parts stay where they are.
struct Group {
    struct Row {
        std::int64_t begin;
        std::int64_t end;
    };

    std::vector<std::int32_t> labels;  // ascending
    std::vector<Row> rows;             // where the entries of each label lie
    std::shared_ptr<const Entries> entries;
    DenseView dense;  // of all labels

    std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

Group whole(const Features& representation);

// The members of `group` (indices into its labels, ascending) as a group of their own.
Group subgroup(const Group& group, const std::vector<std::int32_t>& members);

// Sums of members, for centres: one sparse and one dense array.
struct Centre {
    std::vector<float> sparse;
    std::vector<float> dense;

    explicit Centre(const Group& group) : sparse(group.entries->width), dense(group.dense.cols) {}
    void add(const Group& group, std::int64_t member, float scale);
    double squared_length() const;
};

// Inner product of a member with a centre.
float similarity(const Group& group, std::int64_t member, const Centre& centre);

}  // namespace carya
