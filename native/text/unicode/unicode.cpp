#include "unicode.hpp"

namespace carya::unicode {

bool ends_word(std::string_view text, std::size_t begin, std::size_t end) {
    bool cased = false;
    while (begin > 0) {
        do --begin;
        while (begin > 0 && (static_cast<std::uint8_t>(text[begin]) & 0xC0) == 0x80);
        std::size_t offset = begin;
        const std::uint32_t point = decode(text, offset);
        if (has(point, kIgnorable)) continue;
        cased = has(point, kCased);
        break;
    }
    if (!cased) return false;
    while (end < text.size()) {
        const std::uint32_t point = decode(text, end);
        if (!has(point, kIgnorable)) return !has(point, kCased);
    }
    return true;
}

}  // namespace carya::unicode
