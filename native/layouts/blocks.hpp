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

// What the parts of a layer's blocks take.
template <class IdType, class ChildType, class WeightType>
struct BlockTypes {
    using Id = IdType;
    using Child = ChildType;
    using Weight = WeightType;
    static constexpr bool kOnly = std::is_same_v<Id, Only>;
    static constexpr std::int64_t kIdBytes = kOnly ? 0 : sizeof(Id);
    static constexpr std::int64_t kChildBytes = sizeof(Child);
    static constexpr std::int64_t kWeightBytes = sizeof(Weight);
    // Marks the last child of a chunk of a narrow block; the only chunk ends where its block does.
    static constexpr auto kLast = static_cast<Child>(kOnly ? 0 : Child{1} << (8 * sizeof(Child) - 1));

    // How many chunks a block says it has weights in.
    static std::int64_t chunks_in(std::span<const std::uint8_t> bytes) {
        if constexpr (kOnly)
            return 1;
        else
            return static_cast<std::int64_t>(bytes.size()) < kIdBytes ? 1 : std::int64_t{load<Id>(bytes.data())} + 1;
    }
};

// Whether maps say where `count` weights stand in no more bytes than children do.
constexpr bool maps_pay(std::int64_t count, std::int64_t child_bytes, std::int64_t map_bytes) {
    return map_bytes > 0 && map_bytes <= count * child_bytes;
}

// A block with weights in so many chunks is wide: a search can skip most of them.
constexpr std::int64_t kWide = 8;

// The parts of a narrow block. Sizes are cut to what the bytes hold, so a damaged block cannot lead outside.
template <class Types>
struct NarrowBlock {
    using Child = typename Types::Child;

    const std::uint8_t* chunks = nullptr;
    const std::uint8_t* children = nullptr;  // or maps
    const std::uint8_t* weights = nullptr;
    std::int64_t n = 0;          // chunks
    std::int64_t m = 0;          // weights
    std::int64_t map_bytes = 0;  // of one chunk, 0 for a block with children

    // `map` is how many bytes the map of one chunk has, 0 if the block has none.
    NarrowBlock(std::span<const std::uint8_t> bytes, std::int64_t map) : map_bytes(map) {
        const auto size = static_cast<std::int64_t>(bytes.size());
        if (size <= Types::kIdBytes) return;
        const std::int64_t claimed = Types::chunks_in(bytes);
        const std::int64_t head = Types::kIdBytes + claimed * Types::kIdBytes;
        if (head + claimed * map > size) return;
        n = claimed;
        m = (size - head - n * map) / (map > 0 ? Types::kWeightBytes : Types::kChildBytes + Types::kWeightBytes);
        chunks = bytes.data() + Types::kIdBytes;
        children = bytes.data() + head;
        weights = children + (map > 0 ? n * map : m * Types::kChildBytes);
    }

    std::int64_t map_lines() const { return map_bytes / 2; }
    std::int64_t map_count(std::int64_t i) const {
        std::int64_t out = 0;
        for (std::int64_t line = 0; line < map_lines(); ++line)
            out += __builtin_popcount(load<std::uint16_t>(children + i * map_bytes + 2 * line));
        return out;
    }
    std::int64_t chunk(std::int64_t i) const {
        if constexpr (Types::kOnly)
            return 0;
        else
            return load<typename Types::Id>(chunks + i * Types::kIdBytes);
    }
    bool last(std::int64_t e) const { return (load<Child>(children + e * Types::kChildBytes) & Types::kLast) != 0; }
};

// The weights of one chunk of a wide block.
struct WideRun {
    const std::uint8_t* nodes;  // children, or a map
    const std::uint8_t* weights;
    std::int64_t count;
    bool mapped;
};

// The parts of a wide block, cut as above.
template <class Types>
struct WideBlock {
    static constexpr std::int64_t kSumStep = 32;  // chunks from one sum to the next

    const std::uint8_t* chunks = nullptr;  // ids, or a bit a chunk
    const std::uint8_t* sums = nullptr;
    const std::uint8_t* counts = nullptr;
    const std::uint8_t* runs = nullptr;
    std::int64_t n = 0;          // chunks
    std::int64_t size = 0;       // bytes of all runs
    std::int64_t map_bytes = 0;  // of one chunk
    std::int64_t words = 0;      // of 64 bits, one for each chunk of the level; 0 for ids

    // Whether bits take no more bytes than ids.
    static constexpr bool has_bits(std::int64_t n, std::int64_t level_words) {
        return level_words > 0 && level_words * 8 <= n * Types::kIdBytes;
    }

    // Where the parts of a block begin.
    static constexpr std::int64_t sums_at(std::int64_t n, std::int64_t level_words) {
        return Types::kIdBytes + (has_bits(n, level_words) ? level_words * 8 : n * Types::kIdBytes);
    }
    static constexpr std::int64_t counts_at(std::int64_t n, std::int64_t level_words) {
        return sums_at(n, level_words) + (n - 1) / kSumStep * 4;
    }
    static constexpr std::int64_t runs_at(std::int64_t n, std::int64_t level_words) {
        return counts_at(n, level_words) + n * Types::kChildBytes;
    }

    static constexpr bool is_mapped(std::int64_t count, std::int64_t map_bytes) {
        return maps_pay(count, Types::kChildBytes, map_bytes);
    }

    static constexpr std::int64_t run_bytes(std::int64_t count, std::int64_t map_bytes) {
        return (is_mapped(count, map_bytes) ? map_bytes : count * Types::kChildBytes) + count * Types::kWeightBytes;
    }

    WideBlock(std::span<const std::uint8_t> bytes, std::int64_t map, std::int64_t level_words) : map_bytes(map) {
        const std::int64_t claimed = Types::chunks_in(bytes);
        const std::int64_t head = runs_at(claimed, level_words);
        if (head > static_cast<std::int64_t>(bytes.size())) return;
        n = claimed;
        words = has_bits(n, level_words) ? level_words : 0;
        chunks = bytes.data() + Types::kIdBytes;
        runs = bytes.data() + head;
        counts = bytes.data() + counts_at(n, level_words);
        sums = bytes.data() + sums_at(n, level_words);
        size = static_cast<std::int64_t>(bytes.size()) - head;
    }

    std::uint64_t word(std::int64_t w) const { return load<std::uint64_t>(chunks + 8 * w); }
    std::int64_t id(std::int64_t i) const { return load<typename Types::Id>(chunks + i * Types::kIdBytes); }
    std::int64_t count(std::int64_t i) const {
        return static_cast<std::int64_t>(load<typename Types::Child>(counts + i * Types::kChildBytes)) + 1;
    }
    // How many bytes of runs lie before the chunk step * kSumStep.
    std::int64_t sum(std::int64_t step) const {
        return step == 0 ? 0 : std::int64_t{load<std::uint32_t>(sums + 4 * (step - 1))};
    }
    // Where the run of the i-th chunk begins: from the sum before it on.
    std::int64_t start(std::int64_t i) const {
        std::int64_t at = sum(i / kSumStep);
        for (std::int64_t before = i / kSumStep * kSumStep; before < i; ++before)
            at += run_bytes(count(before), map_bytes);
        return at;
    }
    // That of the i-th chunk, which begins at `at`; none if it does not lie in the block.
    [[gnu::always_inline]] WideRun run(std::int64_t i, std::int64_t at) const {
        const std::int64_t k = count(i);
        if (at + run_bytes(k, map_bytes) > size) return {runs, runs, 0, false};
        const bool mapped = is_mapped(k, map_bytes);
        const std::uint8_t* nodes = runs + at;
        return {nodes, nodes + (mapped ? map_bytes : k * Types::kChildBytes), k, mapped};
    }

    // How many bits are set, if there are bits: as many as there are chunks.
    std::int64_t bits() const {
        std::int64_t out = 0;
        for (std::int64_t w = 0; w < words; ++w) out += __builtin_popcountll(word(w));
        return out;
    }

    // Calls body(i, chunk) for each chunk, ascending, while it returns true.
    template <class Body>
    void each_chunk(const Body& body) const {
        std::int64_t i = 0;
        if (words == 0) {
            for (; i < n; ++i)
                if (!body(i, id(i))) return;
        } else {
            for (std::int64_t w = 0; w < words; ++w)
                for (std::uint64_t left = word(w); left; left &= left - 1, ++i)
                    if (i == n || !body(i, 64 * w + __builtin_ctzll(left))) return;
        }
    }
};

}  // namespace
}  // namespace carya
