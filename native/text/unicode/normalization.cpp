#include "normalization.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "unicode.hpp"

namespace carya::unicode {

namespace {

constexpr std::uint8_t kDotAboveClass = 230;
constexpr std::uint8_t kFirstMarkByte = 0xCC;  // U+0300 starts with this byte; lower characters are never changed

std::uint8_t combining_class(std::uint32_t point) {
    return kCombining[kCombiningPage[point / kPageSize] * kPageSize + point % kPageSize];
}

// Calls body(character) for each character in the canonical decomposition.
template <class Body>
void decompose(std::uint32_t point, const Body& body) {
    if (point - kHangul < kHangulCount) return decompose_hangul(point, body);
    const std::uint16_t entry = kDecompose[kDecomposePage[point / kPageSize] * kPageSize + point % kPageSize];
    if (entry == 0) return body(point);
    const std::uint32_t* characters = kDecomposed + entry - 1;
    for (std::uint32_t i = 1; i <= characters[0]; ++i) body(characters[i]);
}

// Returns the composition of two characters, or 0 if they cannot be composed.
std::uint32_t compose(std::uint32_t first, std::uint32_t second) {
    if (first - kHangulLeading < kHangulLeadingCount && second - kHangulVowel < kHangulVowelCount)
        return kHangul + ((first - kHangulLeading) * kHangulVowelCount + second - kHangulVowel) * kHangulTrailingCount;
    if (first - kHangul < kHangulCount && (first - kHangul) % kHangulTrailingCount == 0 && second > kHangulTrailing &&
        second - kHangulTrailing < kHangulTrailingCount)
        return first + second - kHangulTrailing;
    using Composition = std::array<std::uint32_t, 3>;
    static_assert(sizeof(Composition) == 3 * sizeof(std::uint32_t));
    std::size_t low = 0;
    std::size_t high = std::size(kCompositions) / 3;
    const Composition pair{first, second, 0};
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        const std::uint32_t* entry = kCompositions + 3 * middle;
        if (Composition{entry[0], entry[1], 0} < pair)
            low = middle + 1;
        else
            high = middle;
    }
    const std::uint32_t* entry = kCompositions + 3 * low;
    return low < std::size(kCompositions) / 3 && entry[0] == first && entry[1] == second ? entry[2] : 0;
}

}  // namespace

bool needs_normalization(std::string_view text) {
    std::uint8_t highest = 0;  // computed without a branch, so that the loop is vectorized
    for (const char byte : text) highest = std::max(highest, static_cast<std::uint8_t>(byte));
    if (highest < kFirstMarkByte) return false;
    std::uint8_t last_class = 0;
    for (std::size_t offset = 0; offset < text.size();) {
        if (static_cast<std::uint8_t>(text[offset]) < 0x80) {
            last_class = 0;
            ++offset;
            continue;
        }
        const std::uint32_t point = decode(text, offset);
        if (has(point, kUnstable)) return true;
        if (has(point, kIgnored)) continue;
        if (!has(point, kMark)) {
            last_class = point == kDottedI ? kDotAboveClass : 0;  // its lowercase form ends with this mark
            continue;
        }
        const std::uint8_t current = combining_class(point);
        if (current != 0 && current < last_class) return true;
        last_class = current;
    }
    return false;
}

void NormalizedText::assign(std::string_view text, bool lowercase) {
    bytes.clear();
    spans.clear();
    std::uint32_t char_index = 0;
    for (std::size_t offset = 0; offset < text.size(); ++char_index) {
        const std::size_t begin = offset;
        const std::uint32_t point = decode(text, offset);
        if (point >= 0x80 && has(point, kIgnored)) continue;
        if (!lowercase)
            add(point, char_index);
        else
            for_each_lower(text, begin, offset, point, [&](std::uint32_t lowered) { add(lowered, char_index); });
    }
    flush();
}

void NormalizedText::add(std::uint32_t point, std::uint32_t char_index) {
    bool first = true;
    decompose(point, [&](std::uint32_t part) {
        const std::uint8_t current = combining_class(part);
        if (first && current == 0 && !has(part, kUnstable)) flush();
        first = false;
        decomposed_.push_back({part, current});
    });
    originals_.push_back(point);
    original_indices_.push_back(char_index);
}

// Composes the pending characters and appends them to the text. If normalization changes them, each resulting character
// is assigned the range that contains all of the pending characters in the original text.
void NormalizedText::flush() {
    // Sort each run of marks by combining class.
    for (auto begin = decomposed_.begin(); begin != decomposed_.end();) {
        if (begin->combining_class == 0) {
            ++begin;
            continue;
        }
        const auto end =
            std::find_if(begin, decomposed_.end(), [](const Character& c) { return c.combining_class == 0; });
        std::stable_sort(begin, end,
                         [](const Character& a, const Character& b) { return a.combining_class < b.combining_class; });
        begin = end;
    }
    // Compose each character with the last starter unless a character between them has the same or a higher class.
    std::size_t count = 0;
    std::ptrdiff_t starter = -1;
    for (const Character character : decomposed_) {
        const std::ptrdiff_t last = static_cast<std::ptrdiff_t>(count) - 1;
        const bool adjacent = last == starter;
        if (starter >= 0 && (adjacent || (decomposed_[last].combining_class != 0 &&
                                          decomposed_[last].combining_class < character.combining_class))) {
            if (const std::uint32_t composed = compose(decomposed_[starter].point, character.point); composed != 0) {
                decomposed_[starter].point = composed;
                continue;
            }
        }
        if (character.combining_class == 0) starter = static_cast<std::ptrdiff_t>(count);
        decomposed_[count++] = character;
    }
    const bool unchanged =
        std::equal(decomposed_.begin(), decomposed_.begin() + static_cast<std::ptrdiff_t>(count), originals_.begin(),
                   originals_.end(), [](const Character& c, std::uint32_t original) { return c.point == original; });
    for (std::size_t i = 0; i < count; ++i) {
        char encoded[kMaxUtf8Bytes];
        bytes.append(encoded, encode(decomposed_[i].point, encoded));
        const std::size_t first = unchanged ? i : 0;
        const std::size_t last = unchanged ? i : originals_.size() - 1;
        spans.push_back({original_indices_[first], original_indices_[last] + 1});
    }
    originals_.clear();
    original_indices_.clear();
    decomposed_.clear();
}

}  // namespace carya::unicode
