#include "tokenizer.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "unicode/unicode.hpp"

namespace carya {

namespace {

// Converts a character to lower case and strips its accents, depending on the options. Calls body(character) for each
// resulting character.
template <class Body>
void for_each_normalized(std::string_view text, std::size_t begin, std::size_t end, std::uint32_t point,
                         const AnalyzerOptions& options, const Body& body) {
    const auto emit = [&](std::uint32_t lowered) {
        if (options.accents == Accents::keep || lowered < 0x80) return body(lowered);
        unicode::strip_accents(lowered, [&](std::uint32_t character) {
            if (options.accents == Accents::unicode || character < 0x80) body(character);
        });
    };
    if (!options.lowercase) return emit(point);
    if (point == unicode::kSigma && unicode::ends_word(text, begin, end)) return emit(unicode::kFinalSigma);
    if (point == unicode::kDottedI) {
        emit('i');
        return emit(unicode::kDotAbove);
    }
    emit(unicode::lower(point));
}

// Calls body(character, char_index) for each normalized character of a text, where char_index is the index of the
// original character.
template <class Body>
void for_each_character(std::string_view text, const AnalyzerOptions& options, const Body& body) {
    std::uint32_t char_index = 0;
    for (std::size_t offset = 0; offset < text.size(); ++char_index) {
        const std::size_t begin = offset;
        const std::uint32_t point = unicode::decode(text, offset);
        for_each_normalized(text, begin, offset, point, options,
                            [&](std::uint32_t character) { body(character, char_index); });
    }
}

// Maps ASCII letters, digits and the underscore to themselves or to lower case, and all other bytes to 0.
struct AsciiWords {
    explicit constexpr AsciiWords(bool lowercase) {
        for (int c = 0; c < 0x80; ++c) {
            const bool upper = c >= 'A' && c <= 'Z';
            const bool word = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
            chars[c] = static_cast<char>(!word ? 0 : upper && lowercase ? c + 32 : c);
        }
    }
    char chars[256] = {};
};
constexpr AsciiWords kUnchangedWords(false);
constexpr AsciiWords kLowercaseWords(true);

}  // namespace

void Tokenizer::read(std::string_view text, std::int64_t text_number) {
    if (text.size() > kMaxTextBytes)
        throw std::invalid_argument("Text " + std::to_string(text_number) + " exceeds the limit of 256 MiB.");
    // Sufficient for ASCII text with a space after every character. More memory is reserved below for other characters.
    size_ = 0;
    reserve(2 * text.size());
    units_.clear();
    word_ends_.clear();
    switch (options_.unit) {
        case TokenUnit::word: add_words(text); break;
        case TokenUnit::character: add_characters(text); break;
        case TokenUnit::character_in_word: add_padded_words(text); break;
    }
}

void Tokenizer::reserve(std::size_t extra_bytes) {
    const std::size_t required = size_ + extra_bytes + unicode::kMaxUtf8Bytes + Vocabulary::kPadding;
    if (required > buffer_.size()) buffer_.resize(std::max(required, 2 * buffer_.size()));
}

// Appends a character to the buffer and returns its span.
TermSpan Tokenizer::append(std::uint32_t point, std::uint32_t char_begin, std::uint32_t char_end) {
    const std::size_t begin = size_;
    size_ = static_cast<std::size_t>(unicode::encode(point, buffer_.data() + size_) - buffer_.data());
    return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size_ - begin), char_begin, char_end};
}

// Keeps the last word in the buffer as a token, or removes it if it is too short or a stop word.
void Tokenizer::end_word(std::size_t begin, std::uint32_t char_begin, std::uint32_t char_end, std::uint32_t length) {
    const std::size_t size = size_ - begin;
    if (length < static_cast<std::uint32_t>(options_.min_word_length) ||
        (options_.stop_words && options_.stop_words->find(buffer_.data() + begin, size) >= 0)) {
        size_ = begin;
        return;
    }
    units_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size), char_begin, char_end});
    buffer_[size_++] = ' ';
}

void Tokenizer::add_words(std::string_view text) {
    const char* word_chars = (options_.lowercase ? kLowercaseWords : kUnchangedWords).chars;
    std::size_t begin = 0;
    std::uint32_t char_begin = 0;
    std::uint32_t char_end = 0;
    std::uint32_t length = 0;
    std::uint32_t char_index = 0;
    const auto start = [&] {
        begin = size_;
        char_begin = char_index;
    };
    const auto end = [&] {
        if (length > 0) end_word(begin, char_begin, char_end, length);
        length = 0;
    };
    for (std::size_t offset = 0; offset < text.size();) {
        if (const char c = word_chars[static_cast<std::uint8_t>(text[offset])]; c != 0) {
            if (length == 0) start();
            // Fast path for runs of ASCII word characters, which account for most characters in most texts.
            const std::size_t first = offset;
            char* out = buffer_.data() + size_;
            for (char next = c; next != 0;
                 next = ++offset < text.size() ? word_chars[static_cast<std::uint8_t>(text[offset])] : '\0')
                *out++ = next;
            size_ += offset - first;
            char_index += static_cast<std::uint32_t>(offset - first);
            length += static_cast<std::uint32_t>(offset - first);
            char_end = char_index;
            continue;
        }
        if (static_cast<std::uint8_t>(text[offset]) < 0x80) {
            end();
            ++offset;
        } else {
            const std::size_t char_offset = offset;
            const std::uint32_t point = unicode::decode(text, offset);
            for_each_normalized(text, char_offset, offset, point, options_, [&](std::uint32_t character) {
                if (!unicode::has(character, unicode::kWord)) return end();
                if (length++ == 0) start();
                reserve(2 * (text.size() - offset) + unicode::kMaxUtf8Bytes);
                append(character, char_index, char_index + 1);
                char_end = char_index + 1;
            });
        }
        ++char_index;
    }
    end();
}

// Replaces runs of two or more whitespace characters with one space. Single whitespace characters are kept.
void Tokenizer::add_characters(std::string_view text) {
    bool previous_is_space = false;
    for_each_character(text, options_, [&](std::uint32_t point, std::uint32_t char_index) {
        const bool is_space = unicode::has(point, unicode::kSpace);
        reserve(unicode::kMaxUtf8Bytes);
        if (is_space && previous_is_space) {
            const std::uint32_t char_begin = units_.back().char_begin;
            size_ = units_.back().begin;
            units_.back() = append(' ', char_begin, char_index + 1);
            return;
        }
        previous_is_space = is_space;
        units_.push_back(append(point, char_index, char_index + 1));
    });
}

void Tokenizer::add_padded_words(std::string_view text) {
    bool in_word = false;
    const auto add = [&](std::uint32_t point, std::uint32_t char_begin, std::uint32_t char_end) {
        reserve(unicode::kMaxUtf8Bytes);
        units_.push_back(append(point, char_begin, char_end));
    };
    const auto end = [&] {
        if (!in_word) return;
        in_word = false;
        add(' ', units_.back().char_end, units_.back().char_end);
        word_ends_.push_back(units_.size());
    };
    for_each_character(text, options_, [&](std::uint32_t point, std::uint32_t char_index) {
        if (unicode::has(point, unicode::kSpace)) return end();
        if (!in_word) add(' ', char_index, char_index);
        in_word = true;
        add(point, char_index, char_index + 1);
    });
    end();
}

}  // namespace carya
