// The nodes of one level of a label tree, grouped by parent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace carya {

struct TreeLevel {
    std::vector<std::int32_t> order;  // nodes, grouped by parent and ascending within each group
    // For each parent, the index in `order` of its first child; the last entry is the size of `order`.
    std::vector<std::int64_t> chunks;
};

// Groups the nodes of a level by parent. Throws std::invalid_argument if a parent does not exist.
TreeLevel group_by_parent(std::span<const std::int32_t> parents, std::int64_t n_parents);

}  // namespace carya
