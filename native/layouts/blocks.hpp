// Reading the blocks of a packed layer: shared by the search kernels and by unpack.
#pragma once

#include <cstdint>
#include <cstring>

#include "half.hpp"

namespace carya {
namespace {  // a copy for each file: the kernels compile theirs for other instruction sets

template <class T>
inline T load(const std::uint8_t* bytes) {  // without alignment
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
}

struct Half {
    std::uint16_t bits;
    operator float() const { return from_half(bits); }
};

// A signed root: q stands for q |q| times the scale of its chunk. Most weights are small, and roots have their steps
// there: a weight of a fiftieth of the largest is off by 6 %, where even steps would have it off by 20 %.
struct Root {
    std::int8_t root;
    operator float() const { return static_cast<float>(root * (root < 0 ? -root : root)); }
};

// The parts of one block. Sizes are cut to what the bytes hold, so a damaged block cannot lead outside.
template <class Id, class Child, class Weight>
struct Block {
    const std::uint8_t* chunks = nullptr;
    const std::uint8_t* counts = nullptr;
    const std::uint8_t* children = nullptr;
    const std::uint8_t* weights = nullptr;
    std::int64_t n = 0;  // chunks
    std::int64_t m = 0;  // weights

    Block(const std::uint8_t* bytes, std::int64_t size) {
        if (size < static_cast<std::int64_t>(sizeof(Id))) return;
        const auto claimed = static_cast<std::int64_t>(load<Id>(bytes)) + 1;
        const std::int64_t head =
            static_cast<std::int64_t>(sizeof(Id)) + claimed * static_cast<std::int64_t>(sizeof(Id) + sizeof(Child));
        if (head > size) return;
        n = claimed;
        m = (size - head) / static_cast<std::int64_t>(sizeof(Child) + sizeof(Weight));
        chunks = bytes + sizeof(Id);
        counts = chunks + n * static_cast<std::int64_t>(sizeof(Id));
        children = counts + n * static_cast<std::int64_t>(sizeof(Child));
        weights = children + m * static_cast<std::int64_t>(sizeof(Child));
    }

    std::int64_t chunk(std::int64_t i) const { return load<Id>(chunks + i * static_cast<std::int64_t>(sizeof(Id))); }
    std::int64_t count(std::int64_t i) const {
        return static_cast<std::int64_t>(load<Child>(counts + i * static_cast<std::int64_t>(sizeof(Child)))) + 1;
    }
    std::int64_t child(std::int64_t e) const {
        return load<Child>(children + e * static_cast<std::int64_t>(sizeof(Child)));
    }
    float weight(std::int64_t e) const {
        return static_cast<float>(load<Weight>(weights + e * static_cast<std::int64_t>(sizeof(Weight))));
    }
};

}  // namespace
}  // namespace carya
