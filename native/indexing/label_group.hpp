// Labels of a cluster that is being split, with compact copies of their representations.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../core/matrix.hpp"
#include "label_representations.hpp"

namespace carya {

// Sparse rows with renumbered features; frequent features have the lowest numbers. Features that occur in only one
// label are dropped: they do not contribute to the similarity between labels, and near the leaves they account for most
// of the entries. Rare features, which occur in less than about 1/1024 of the labels, are kept for subgroups, but
// ignored when the group itself is split: they hardly contribute to its centroids, but have up to 90% of the columns.
struct GroupEntries {
    RawVector<std::uint32_t> columns;
    RawVector<float> values;
    std::int64_t n_frequent = 0;  // number of frequent features
    std::int64_t width = 0;       // number of all features
    std::int64_t labels = 0;      // number of labels whose entries are stored
};

// A subgroup shares the entries of its parent group unless it has few entries per feature: copying entries takes as
// long as several k-means iterations and otherwise saves little time. The dense block is never copied.
struct LabelGroup {
    // The entries of a label: first those of frequent features, then those of rare features.
    struct Row {
        std::int64_t begin;
        std::int64_t frequent_end;
        std::int64_t end;
    };

    std::vector<std::int32_t> labels;  // ascending
    std::vector<Row> rows;
    std::shared_ptr<const GroupEntries> entries;
    DenseView dense;                          // contains all labels, not only the labels in the group
    std::shared_ptr<const void> dense_owner;  // null if the caller owns the dense block

    std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

// Both functions return a group that contains all labels.
LabelGroup make_root_group(const Features& representation, int threads);
LabelGroup make_root_group(LabelVectors&& vectors, int threads);

// Returns a group with the given members, which must be ascending indices into group.labels. The returned group shares
// the entries of `group`.
LabelGroup select_members(const LabelGroup& group, const std::vector<std::int32_t>& members);

// Same as select_members, but the group gets its own entries if it has few entries per feature.
LabelGroup make_subgroup(const LabelGroup& group, const std::vector<std::int32_t>& members);

// A sum of members, from which a centroid is computed; there is one array for frequent sparse features and one for
// dense features.
struct Centroid {
    std::vector<float> sparse;
    std::vector<float> dense;

    explicit Centroid(const LabelGroup& group) : sparse(group.entries->n_frequent), dense(group.dense.cols) {}
    void clear();
    void add(const LabelGroup& group, std::int64_t member, float scale);
    double squared_norm() const;
};

// Returns the inner product of a member and a centroid.
float similarity(const LabelGroup& group, std::int64_t member, const Centroid& centroid);

}  // namespace carya
