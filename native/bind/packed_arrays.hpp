// Converts packed weights to NumPy arrays.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "../layouts/packed_weights.hpp"
#include "arrays.hpp"

namespace carya::bind {

// Returns start lines as rows of 16-bit integers, the format in which they are saved.
inline nb::ndarray<nb::numpy, std::uint16_t> lines_to_numpy(std::vector<StartLine>&& lines) {
    auto owner = std::make_unique<std::vector<StartLine>>(std::move(lines));
    auto* data = reinterpret_cast<std::uint16_t*>(owner->data());
    const std::size_t count = owner->size();
    nb::capsule owner_capsule(owner.release(),
                              [](void* p) noexcept { delete static_cast<std::vector<StartLine>*>(p); });
    return nb::ndarray<nb::numpy, std::uint16_t>(data, {count, sizeof(StartLine) / sizeof(std::uint16_t)},
                                                 owner_capsule);
}

inline nb::tuple packed_to_numpy(Packed&& packed) {
    const std::int64_t n_weights = packed.n_weights;
    const std::int64_t n_used = packed.n_used;
    return nb::make_tuple(lines_to_numpy(std::move(packed.lines)), to_numpy(std::move(packed.data)),
                          to_numpy(std::move(packed.scales)), n_weights, n_used);
}

}  // namespace carya::bind
