// XXH64, the checksum used in saved models. It is fast enough to verify models when they are opened.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace carya {

// Returns the XXH64 hash with seed 0, as specified by Yann Collet (xxHash). The input is read as little-endian words.
inline std::uint64_t xxh64(const unsigned char* data, std::size_t size) {
    constexpr std::uint64_t p1 = 0x9E3779B185EBCA87ULL;
    constexpr std::uint64_t p2 = 0xC2B2AE3D27D4EB4FULL;
    constexpr std::uint64_t p3 = 0x165667B19E3779F9ULL;
    constexpr std::uint64_t p4 = 0x85EBCA77C2B2AE63ULL;
    constexpr std::uint64_t p5 = 0x27D4EB2F165667C5ULL;
    static_assert(std::endian::native == std::endian::little, "Saved models require a little-endian processor.");
    const auto word = [](const unsigned char* cursor) {
        std::uint64_t x;
        std::memcpy(&x, cursor, sizeof x);
        return x;
    };
    const auto round = [](std::uint64_t lane, std::uint64_t input) { return std::rotl(lane + input * p2, 31) * p1; };
    const unsigned char* cursor = data;
    const unsigned char* const end = data + size;
    std::uint64_t hash = p5;
    if (size >= 32) {
        std::uint64_t lanes[4] = {p1 + p2, p2, 0, 0 - p1};
        for (; end - cursor >= 32; cursor += 32)
            for (int i = 0; i < 4; ++i) lanes[i] = round(lanes[i], word(cursor + 8 * i));
        hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
        for (const std::uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * p1 + p4;
    }
    hash += size;
    for (; end - cursor >= 8; cursor += 8) hash = std::rotl(hash ^ round(0, word(cursor)), 27) * p1 + p4;
    if (end - cursor >= 4) {
        std::uint32_t half;
        std::memcpy(&half, cursor, sizeof half);
        hash = std::rotl(hash ^ (half * p1), 23) * p2 + p3;
        cursor += 4;
    }
    for (; cursor < end; ++cursor) hash = std::rotl(hash ^ (*cursor * p5), 11) * p1;
    hash = (hash ^ (hash >> 33)) * p2;
    hash = (hash ^ (hash >> 29)) * p3;
    return hash ^ (hash >> 32);
}

}  // namespace carya
