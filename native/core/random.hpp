// A seeded random number generator that produces the same numbers on all machines.
#pragma once

#include <cstdint>
#include <utility>

namespace carya {

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    // Creates an independent stream for each (seed, a, b), so that tasks can run in any order and on any thread.
    Random(std::uint64_t seed, std::uint64_t a, std::uint64_t b) : state_(seed) {
        state_ = next() ^ (a * 0xD1342543DE82EF95ULL);
        state_ = next() ^ (b * 0xAF251AF3B0F025B5ULL);
    }

    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31);
    }

    // Returns a uniformly distributed number in [0, bound). It is computed by multiplication, which is faster than
    // division.
    std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32); }

    template <class T>
    void shuffle(T* items, std::uint32_t count) {
        for (std::uint32_t i = count; i > 1; --i) std::swap(items[i - 1], items[below(i)]);
    }

private:
    std::uint64_t state_;
};

}  // namespace carya
