#include "tree.hpp"

#include <stdexcept>
#include <string>

namespace carya {

Children group_by_parent(std::span<const std::int32_t> parents, std::int64_t count) {
    Children out;
    out.chunks.assign(count + 1, 0);
    for (const std::int32_t parent : parents) {
        if (parent < 0 || parent >= count)
            throw std::invalid_argument("node " + std::to_string(parent) + " is no parent: there are " +
                                        std::to_string(count));
        ++out.chunks[parent + 1];
    }
    for (std::int64_t p = 0; p < count; ++p) out.chunks[p + 1] += out.chunks[p];
    std::vector<std::int64_t> next(out.chunks.begin(), out.chunks.end() - 1);
    out.order.resize(parents.size());
    for (std::size_t node = 0; node < parents.size(); ++node)
        out.order[next[parents[node]]++] = static_cast<std::int32_t>(node);
    return out;
}

}  // namespace carya
