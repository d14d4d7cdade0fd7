// Unicode normalization form C (NFC), with the position of each character in the original text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carya::unicode {

// Returns whether NFC changes a text after conversion to lower case and removal of ignored characters (kIgnored).
// Removing these characters alone does not count as a change. May return true for a few texts that do not change.
bool needs_normalization(std::string_view text);

// A normalized text.
struct NormalizedText {
    struct Span {
        std::uint32_t begin;
        std::uint32_t end;
    };
    std::string bytes;
    std::vector<Span> spans;  // per character: the range of original characters that it results from

    // Converts a text to NFC without ignored characters and, if `lowercase` is true, to lower case.
    void assign(std::string_view text, bool lowercase);

private:
    struct Character {
        std::uint32_t point;
        std::uint8_t combining_class;
    };
    void add(std::uint32_t point, std::uint32_t char_index);
    void flush();

    // Pending characters, starting with the last one that cannot be composed with its predecessor: before and after
    // decomposition.
    std::vector<std::uint32_t> originals_;
    std::vector<std::uint32_t> original_indices_;  // in the original text
    std::vector<Character> decomposed_;
};

}  // namespace carya::unicode
