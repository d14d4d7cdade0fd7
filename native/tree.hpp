// The nodes of one level of a label tree by their parents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace carya {

struct Children {
    std::vector<std::int32_t> order;   // nodes, those of a parent side by side and ascending
    std::vector<std::int64_t> chunks;  // where the nodes of each parent begin, and where the last ones end
};

// Throws std::invalid_argument for a parent that is none.
Children group_by_parent(std::span<const std::int32_t> parents, std::int64_t count);

}  // namespace carya
