#include "tokenizer.hpp"

#include <algorithm>
#include <shared_mutex>
#include <stdexcept>
#include <string>

#include "unicode/unicode.hpp"

namespace carya {

namespace {

// Converts a character to lower case and strips its accents, depending on the options. Calls body(character) for each
// resulting character; invisible characters are skipped.
template <class Body>
void for_each_normalized(std::string_view text, std::size_t begin, std::size_t end, std::uint32_t point,
                         const AnalyzerOptions& options, const Body& body) {
    const auto emit = [&](std::uint32_t lowered) {
        if (options.accents == Accents::keep || lowered < 0x80) return body(lowered);
        unicode::strip_accents(lowered, [&](std::uint32_t character) {
            if (options.accents == Accents::unicode || character < 0x80) body(character);
        });
    };
    if (options.tokenizer == TokenizerKind::unicode && point >= 0x80 && unicode::has(point, unicode::kIgnored)) return;
    if (point == kBoundary && options.segmenter == Segmenter::words && options.unit != TokenUnit::word) return;
    if (!options.lowercase) return emit(point);
    unicode::for_each_lower(text, begin, end, point, emit);
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

std::uint32_t find_lead_end(std::string_view text, int n_words) {
    std::uint32_t characters = 0;
    std::uint32_t end = 0;
    int words = 0;
    bool in_word = false;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        const bool is_space = byte <= ' ';
        if (!is_space && !in_word && ++words > n_words) return end;
        if (is_space && in_word) end = characters;
        in_word = !is_space;
        if ((byte & 0xC0U) != 0x80U) ++characters;  // not a continuation byte of UTF-8
    }
    return 0;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> find_unspaced_runs(std::string_view text) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> runs;
    bool in_run = false;
    std::uint32_t char_index = 0;
    for (std::size_t offset = 0; offset < text.size(); ++char_index) {
        const std::uint32_t point = unicode::decode(text, offset);
        const bool extends = unicode::has(point, unicode::kMark) || unicode::has(point, unicode::kIgnored);
        if (!unicode::has(point, unicode::kUnspaced) && !(in_run && extends)) {
            in_run = false;
            continue;
        }
        if (!in_run) runs.emplace_back(char_index, char_index);
        in_run = true;
        runs.back().second = char_index + 1;
    }
    return runs;
}

void Tokenizer::read(std::string_view text, std::int64_t text_number) {
    if (text.size() > kMaxTextBytes)
        throw std::invalid_argument("Text " + std::to_string(text_number) + " exceeds the limit of 256 MiB.");
    size_ = 0;
    n_runs_ = 0;
    units_.clear();
    word_ends_.clear();
    unit_runs_.clear();
    AnalyzerOptions options = options_;
    const std::shared_lock lock = options_.stems ? options_.stems->lock() : std::shared_lock<std::shared_mutex>();
    const bool normalize = options_.tokenizer == TokenizerKind::unicode && unicode::needs_normalization(text);
    if (normalize) {
        normalized_.assign(text, options_.lowercase);
        options.lowercase = false;
        text = normalized_.bytes;
    }
    text_size_ = text.size();
    // Sufficient for ASCII text with a space after every character. More memory is reserved later if the text contains
    // other characters.
    reserve(2 * text.size());
    switch (options_.unit) {
        case TokenUnit::word: add_words(text, options); break;
        case TokenUnit::character: add_characters(text, options); break;
        case TokenUnit::character_in_word: add_padded_words(text, options); break;
    }
    if (normalize) restore_spans();
}

// Converts the spans of units in the normalized (NFC) text to spans in the original text.
void Tokenizer::restore_spans() {
    const std::vector<unicode::NormalizedText::Span>& spans = normalized_.spans;
    for (TermSpan& unit : units_) {
        const std::uint32_t begin = unit.char_begin < spans.size() ? spans[unit.char_begin].begin : spans.back().end;
        const std::uint32_t end = unit.char_end > 0 ? spans[unit.char_end - 1].end : spans.front().begin;
        unit.char_begin = begin;
        unit.char_end = std::max(begin, end);  // the spaces added around words have empty spans
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

// Keeps the last word in the buffer as a unit, or removes it if it is too short or a stop word. Returns whether it is
// kept.
bool Tokenizer::add_unit(const Word& word) {
    const bool too_short = !word.unspaced && word.length < static_cast<std::uint32_t>(options_.min_word_length);
    if (too_short ||
        (options_.stop_words && options_.stop_words->find(buffer_.data() + word.begin, size_ - word.begin) >= 0)) {
        size_ = word.begin;
        return false;
    }
    if (options_.stems && !(word.unspaced && options_.segmenter == Segmenter::characters)) replace_by_stem(word.begin);
    const std::size_t size = size_ - word.begin;
    units_.push_back(
        {static_cast<std::uint32_t>(word.begin), static_cast<std::uint32_t>(size), word.char_begin, word.char_end});
    buffer_[size_++] = ' ';
    return true;
}

// Replaces the last word in the buffer with its stem, which can be longer than the word.
void Tokenizer::replace_by_stem(std::size_t begin) {
    const std::string* stem = options_.stems->find({buffer_.data() + begin, size_ - begin});
    if (!stem) return;
    size_ = begin;
    reserve(stem->size() + 2 * text_size_);
    std::copy(stem->begin(), stem->end(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin));
    size_ += stem->size();
}

void Tokenizer::add_words(std::string_view text, const AnalyzerOptions& options) {
    const char* word_chars = (options.lowercase ? kLowercaseWords : kUnchangedWords).chars;
    const bool has_marks = options.tokenizer == TokenizerKind::unicode;
    const Segmenter segmenter = has_marks ? options.segmenter : Segmenter::none;
    std::size_t begin = 0;
    std::uint32_t char_begin = 0;
    std::uint32_t char_end = 0;
    std::uint32_t length = 0;
    std::uint32_t char_index = 0;
    bool unspaced = false;  // whether the current unit is written in a script without spaces
    bool in_run = false;    // whether the current unit continues the run of the previous one
    const auto start = [&] {
        begin = size_;
        char_begin = char_index;
    };
    const auto end_word = [&] {
        if (length > 0) add_unit({begin, char_begin, char_end, length, false});
        length = 0;
    };
    // Ends the current unit, a word or character of a script without spaces.
    const auto end_unspaced = [&] {
        const bool kept = length > 0 && add_unit({begin, char_begin, char_end, length, true});
        length = 0;
        if (kept && segmenter == Segmenter::characters) {
            if (!in_run) ++n_runs_;
            unit_runs_.resize(units_.size());
            unit_runs_.back() = n_runs_;
        }
        in_run = kept && segmenter == Segmenter::characters;
    };
    // Ends the current unit and the current run.
    const auto end = [&] {
        if (!unspaced) [[likely]]
            return end_word();
        end_unspaced();
        unspaced = in_run = false;
    };
    for (std::size_t offset = 0; offset < text.size();) {
        if (const char c = word_chars[static_cast<std::uint8_t>(text[offset])]; c != 0) {
            if (unspaced) [[unlikely]]
                end();
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
            for_each_normalized(text, char_offset, offset, point, options, [&](std::uint32_t character) {
                if (!has_marks || length == 0 || !unicode::has(character, unicode::kMark)) {
                    if (!unicode::has(character, unicode::kWord)) return end();
                    const bool is_unspaced =
                        segmenter != Segmenter::none && unicode::has(character, unicode::kUnspaced);
                    if (is_unspaced != unspaced)
                        end();
                    else if (is_unspaced && segmenter == Segmenter::characters)
                        end_unspaced();
                    unspaced = is_unspaced;
                    if (length == 0) {
                        if (in_run) --size_;  // units of a run are not separated by spaces
                        start();
                    }
                }
                ++length;
                reserve(2 * (text.size() - offset) + unicode::kMaxUtf8Bytes);
                append(character, char_index, char_index + 1);
                char_end = char_index + 1;
            });
        }
        ++char_index;
    }
    end();
    if (!unit_runs_.empty()) unit_runs_.resize(units_.size());
}

// Replaces runs of two or more whitespace characters with one space. Single whitespace characters are kept.
void Tokenizer::add_characters(std::string_view text, const AnalyzerOptions& options) {
    bool previous_is_space = false;
    for_each_character(text, options, [&](std::uint32_t point, std::uint32_t char_index) {
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

void Tokenizer::add_padded_words(std::string_view text, const AnalyzerOptions& options) {
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
    for_each_character(text, options, [&](std::uint32_t point, std::uint32_t char_index) {
        if (unicode::has(point, unicode::kSpace)) return end();
        if (!in_word) add(' ', char_index, char_index);
        in_word = true;
        add(point, char_index, char_index + 1);
    });
    end();
}

}  // namespace carya
