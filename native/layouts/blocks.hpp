// Reading the blocks of a packed layer: shared by the search kernels and by unpack.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "half.hpp"
#include "packed.hpp"

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

// The bytes of a block, of data that passed PackedView::check.
inline std::span<const std::uint8_t> find_block(const BlockPlace& place, std::span<const std::uint8_t> data) {
    const std::span<const std::uint8_t> here =
        data.subspan(static_cast<std::size_t>(place.begin), static_cast<std::size_t>(place.end - place.begin));
    if (!place.large) [[likely]]
        return here;
    if (here.size() != 2 * sizeof(std::uint64_t)) return {};
    const auto offset = load<std::uint64_t>(here.data());
    const auto size = load<std::uint64_t>(here.data() + sizeof(std::uint64_t));
    if (offset > data.size() || size > data.size() - offset) return {};
    return data.subspan(offset, size);
}

// The id of the only chunk: it takes no bytes.
struct Only {};

// Blocks with weights in so many chunks say how many in each, so that a search can skip most of them.
constexpr std::int64_t kCounted = 8;

// Blocks with weights in so many chunks also say how many weights stand before every 64th of them, so that a search
// need not go through all counts.
constexpr std::int64_t kSummed = 1024;
constexpr std::int64_t kSumStep = 64;

// How many bytes counts and sums take.
constexpr std::int64_t count_bytes(std::int64_t chunks, std::int64_t child_bytes) {
    const std::int64_t sums = chunks >= kSummed ? (chunks + kSumStep - 1) / kSumStep : 0;
    return chunks >= kCounted ? chunks * child_bytes + sums * static_cast<std::int64_t>(sizeof(std::uint32_t)) : 0;
}

// The parts of one block. Sizes are cut to what the bytes hold, so a damaged block cannot lead outside.
template <class Id, class Child, class Weight>
struct Block {
    static constexpr bool kOnly = std::is_same_v<Id, Only>;
    static constexpr std::int64_t kIdBytes = kOnly ? 0 : sizeof(Id);
    static constexpr std::int64_t kChildBytes = sizeof(Child);
    static constexpr std::int64_t kWeightBytes = sizeof(Weight);
    static constexpr auto kLast = static_cast<Child>(Child{1} << (8 * sizeof(Child) - 1));

    const std::uint8_t* chunks = nullptr;
    const std::uint8_t* counts = nullptr;    // only if n >= kCounted
    const std::uint8_t* children = nullptr;  // or maps
    const std::uint8_t* weights = nullptr;
    std::int64_t n = 0;          // chunks
    std::int64_t m = 0;          // weights
    std::int64_t map_bytes = 0;  // of one chunk, 0 for a block with children

    // `map` is how many bytes the map of one chunk has, 0 if the block has none.
    Block(std::span<const std::uint8_t> bytes, std::int64_t map) : map_bytes(map) {
        const auto size = static_cast<std::int64_t>(bytes.size());
        if (size <= kIdBytes) return;
        std::int64_t claimed = 1;
        if constexpr (!kOnly) claimed += load<Id>(bytes.data());
        const std::int64_t head = kIdBytes + claimed * kIdBytes + count_bytes(claimed, kChildBytes);
        if (head + claimed * map > size) return;
        n = claimed;
        m = (size - head - n * map) / (map > 0 ? kWeightBytes : kChildBytes + kWeightBytes);
        chunks = bytes.data() + kIdBytes;
        counts = chunks + n * kIdBytes;
        children = bytes.data() + head;
        weights = children + (map > 0 ? n * map : m * kChildBytes);
    }

    // Sixteen bits of the map of the i-th chunk.
    std::uint32_t map(std::int64_t i, std::int64_t line) const {
        return load<std::uint16_t>(children + i * map_bytes + 2 * line);
    }
    std::int64_t map_lines() const { return map_bytes / 2; }
    std::int64_t map_count(std::int64_t i) const {
        std::int64_t out = 0;
        for (std::int64_t line = 0; line < map_lines(); ++line) out += __builtin_popcount(map(i, line));
        return out;
    }
    std::int64_t chunk(std::int64_t i) const {
        if constexpr (kOnly)
            return 0;
        else
            return load<Id>(chunks + i * kIdBytes);
    }
    std::int64_t count(std::int64_t i) const {
        return static_cast<std::int64_t>(load<Child>(counts + i * kChildBytes)) + 1;
    }
    static std::int64_t place(Child child) { return static_cast<Child>(child & ~kLast); }
    std::int64_t child(std::int64_t e) const { return place(load<Child>(children + e * kChildBytes)); }
    // How many weights stand before the chunk step * kSumStep; only if n >= kSummed.
    std::int64_t sum(std::int64_t step) const {
        return load<std::uint32_t>(counts + n * kChildBytes + step * static_cast<std::int64_t>(sizeof(std::uint32_t)));
    }
    bool last(std::int64_t e) const { return (load<Child>(children + e * kChildBytes) & kLast) != 0; }
    float weight(std::int64_t e) const { return static_cast<float>(load<Weight>(weights + e * kWeightBytes)); }
};

}  // namespace
}  // namespace carya
