// Character classes, lowercasing and accent stripping, with the same results as in Python.
#pragma once

#include <cstdint>
#include <string_view>

#include "unicode_tables.hpp"

namespace carya::unicode {

constexpr std::uint32_t kMaxCodePoint = 0x10FFFF;
constexpr std::uint32_t kReplacement = 0xFFFD;
constexpr std::uint32_t kPageSize = 128;

enum Flag : std::uint8_t {
    kWord = 1,
    kSpace = 2,
    kCased = 4,  // determines the lowercase form of sigma, as does kIgnorable
    kIgnorable = 8,
    kMark = 16,       // combining mark (category Mn or Mc), part of the word before it
    kIgnored = 32,    // invisible character, such as the zero width joiners and the soft hyphen
    kUnspaced = 64,   // word character of a script that is written without spaces between words
    kUnstable = 128,  // changed by NFC, or possibly composed with a previous character
};

inline bool has(std::uint32_t point, Flag flag) {
    return (kFlags[kFlagPage[point / kPageSize] * kPageSize + point % kPageSize] & flag) != 0;
}

// Returns the character at `offset` and advances `offset`. Never reads beyond the end of the text; invalid UTF-8 is
// decoded as U+FFFD.
inline std::uint32_t decode(std::string_view text, std::size_t& offset) {
    const auto first = static_cast<std::uint8_t>(text[offset++]);
    if (first < 0x80) return first;
    const int n_more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    std::uint32_t point = first & (0x3F >> n_more);
    for (int i = 0; i < n_more; ++i) {
        if (offset == text.size() || (static_cast<std::uint8_t>(text[offset]) & 0xC0) != 0x80) return kReplacement;
        point = point << 6 | (static_cast<std::uint8_t>(text[offset++]) & 0x3F);
    }
    return point <= kMaxCodePoint ? point : kReplacement;
}

constexpr std::size_t kMaxUtf8Bytes = 4;

// Writes a character in UTF-8 and returns the end of the output.
inline char* encode(std::uint32_t point, char* out) {
    if (point < 0x80) {
        *out++ = static_cast<char>(point);
        return out;
    }
    if (point < 0x800) {
        *out++ = static_cast<char>(0xC0 | point >> 6);
    } else {
        if (point < 0x10000) {
            *out++ = static_cast<char>(0xE0 | point >> 12);
        } else {
            *out++ = static_cast<char>(0xF0 | point >> 18);
            *out++ = static_cast<char>(0x80 | (point >> 12 & 0x3F));
        }
        *out++ = static_cast<char>(0x80 | (point >> 6 & 0x3F));
    }
    *out++ = static_cast<char>(0x80 | (point & 0x3F));
    return out;
}

// Returns the lowercase character. The two special cases below are not handled.
inline std::uint32_t lower(std::uint32_t point) {
    return point + static_cast<std::uint32_t>(kLower[kLowerPage[point / kPageSize] * kPageSize + point % kPageSize]);
}

constexpr std::uint32_t kDottedI = 0x130;  // becomes i followed by a combining dot above
constexpr std::uint32_t kDotAbove = 0x307;
constexpr std::uint32_t kSigma = 0x3A3;  // becomes the final sigma at the end of a word
constexpr std::uint32_t kFinalSigma = 0x3C2;

// Returns whether the sigma in text[begin, end) ends a word: the previous character is cased and the next character is
// not, ignoring case-ignorable characters.
bool ends_word(std::string_view text, std::size_t begin, std::size_t end);

// Converts the character in text[begin, end) to lower case and calls body(character) for each resulting character.
template <class Body>
void for_each_lower(std::string_view text, std::size_t begin, std::size_t end, std::uint32_t point, const Body& body) {
    if (point == kSigma && ends_word(text, begin, end)) return body(kFinalSigma);
    if (point == kDottedI) {
        body('i');
        return body(kDotAbove);
    }
    body(lower(point));
}

constexpr std::uint32_t kHangul = 0xAC00;  // first syllable; syllables are ordered by leading, vowel and trailing jamo
constexpr std::uint32_t kHangulCount = 11172;
constexpr std::uint32_t kHangulLeading = 0x1100, kHangulLeadingCount = 19;
constexpr std::uint32_t kHangulVowel = 0x1161, kHangulVowelCount = 21;
constexpr std::uint32_t kHangulTrailing = 0x11A7, kHangulTrailingCount = 28;  // index 0 means no trailing jamo

// Calls body(jamo) for each jamo of a Hangul syllable.
template <class Body>
void decompose_hangul(std::uint32_t point, const Body& body) {
    const std::uint32_t syllable = point - kHangul;
    body(kHangulLeading + syllable / (kHangulVowelCount * kHangulTrailingCount));
    body(kHangulVowel + syllable / kHangulTrailingCount % kHangulVowelCount);
    if (syllable % kHangulTrailingCount != 0) body(kHangulTrailing + syllable % kHangulTrailingCount);
}

// Calls body(character) for each character in the compatibility decomposition, except for combining characters.
template <class Body>
void strip_accents(std::uint32_t point, const Body& body) {
    if (point - kHangul < kHangulCount) return decompose_hangul(point, body);
    const std::uint16_t entry = kFold[kFoldPage[point / kPageSize] * kPageSize + point % kPageSize];
    if (entry == 0) return body(point);
    const std::uint32_t* folded = kFolded + entry - 1;
    for (std::uint32_t i = 1; i <= folded[0]; ++i) body(folded[i]);
}

}  // namespace carya::unicode
