#include "tree_level.hpp"

#include <stdexcept>
#include <string>

namespace carya {

TreeLevel group_by_parent(std::span<const std::int32_t> parents, std::int64_t n_parents) {
    TreeLevel out;
    out.chunks.assign(n_parents + 1, 0);
    for (const std::int32_t parent : parents) {
        if (parent < 0 || parent >= n_parents)
            throw std::invalid_argument("Parent " + std::to_string(parent) + " does not exist. The level above has " +
                                        std::to_string(n_parents) + " nodes.");
        ++out.chunks[parent + 1];
    }
    for (std::int64_t p = 0; p < n_parents; ++p) out.chunks[p + 1] += out.chunks[p];
    std::vector<std::int64_t> next(out.chunks.begin(), out.chunks.end() - 1);
    out.order.resize(parents.size());
    for (std::size_t node = 0; node < parents.size(); ++node)
        out.order[next[parents[node]]++] = static_cast<std::int32_t>(node);
    return out;
}

}  // namespace carya
