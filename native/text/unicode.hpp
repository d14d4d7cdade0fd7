// What characters are and become: words, spaces, lower case and accents as Python has them.
#pragma once

#include <cstdint>
#include <string_view>

#include "unicode_tables.hpp"

namespace carya::unicode {

constexpr std::uint32_t kLast = 0x10FFFF;
constexpr std::uint32_t kUnreadable = 0xFFFD;
constexpr std::uint32_t kPage = 128;

enum Flag : std::uint8_t { kWord = 1, kSpace = 2, kCased = 4, kIgnorable = 8 };

inline bool has(std::uint32_t point, Flag flag) {
    return (kFlags[kFlagPage[point / kPage] * kPage + point % kPage] & flag) != 0;
}

// The character at `at`, which moves behind it. Never reads beyond the text; what is no UTF-8 is unreadable.
inline std::uint32_t decode(std::string_view text, std::size_t& at) {
    const auto first = static_cast<std::uint8_t>(text[at++]);
    if (first < 0x80) return first;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    std::uint32_t point = first & (0x3F >> more);
    for (int i = 0; i < more; ++i) {
        if (at == text.size() || (static_cast<std::uint8_t>(text[at]) & 0xC0) != 0x80) return kUnreadable;
        point = point << 6 | (static_cast<std::uint8_t>(text[at++]) & 0x3F);
    }
    return point <= kLast ? point : kUnreadable;
}

constexpr std::size_t kMostUnits = 4;  // bytes of a character

// Returns where the next one goes.
inline char* encode(std::uint32_t point, char* to) {
    if (point < 0x80) {
        *to++ = static_cast<char>(point);
        return to;
    }
    if (point < 0x800) {
        *to++ = static_cast<char>(0xC0 | point >> 6);
    } else {
        if (point < 0x10000) {
            *to++ = static_cast<char>(0xE0 | point >> 12);
        } else {
            *to++ = static_cast<char>(0xF0 | point >> 18);
            *to++ = static_cast<char>(0x80 | (point >> 12 & 0x3F));
        }
        *to++ = static_cast<char>(0x80 | (point >> 6 & 0x3F));
    }
    *to++ = static_cast<char>(0x80 | (point & 0x3F));
    return to;
}

// Lower case, but for the two characters below.
inline std::uint32_t lower(std::uint32_t point) {
    return point + static_cast<std::uint32_t>(kLower[kLowerPage[point / kPage] * kPage + point % kPage]);
}

constexpr std::uint32_t kDottedI = 0x130;  // becomes i and a dot above
constexpr std::uint32_t kDotAbove = 0x307;
constexpr std::uint32_t kSigma = 0x3A3;  // becomes another letter at the end of a word
constexpr std::uint32_t kFinalSigma = 0x3C2;

// Whether the sigma in text[begin, end) ends a word: a cased character is before it and none follows, those that case
// ignores left aside.
bool ends_word(std::string_view text, std::size_t begin, std::size_t end);

// Calls body(character) for what is left of one without its accents: its compatibility decomposition without combining
// characters.
template <class Body>
void fold(std::uint32_t point, const Body& body) {
    constexpr std::uint32_t kHangul = 0xAC00, kHangulCount = 11172, kVowels = 21, kTails = 28;
    if (point - kHangul < kHangulCount) {
        const std::uint32_t at = point - kHangul;
        body(0x1100 + at / (kVowels * kTails));
        body(0x1161 + at / kTails % kVowels);
        if (at % kTails != 0) body(0x11A7 + at % kTails);
        return;
    }
    const std::uint16_t place = kFold[kFoldPage[point / kPage] * kPage + point % kPage];
    if (place == 0) return body(point);
    const std::uint32_t* folded = kFolded + place - 1;
    for (std::uint32_t i = 1; i <= folded[0]; ++i) body(folded[i]);
}

}  // namespace carya::unicode
