#include "reader.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "unicode.hpp"

namespace carya {

namespace {

// Calls body(character, which) for what a character of the text becomes: lower case and, if asked, without accents.
template <class Body>
void each_part(std::string_view text, std::size_t begin, std::size_t end, std::uint32_t point, const Analysis& analysis,
               const Body& body) {
    const auto without_accents = [&](std::uint32_t one) {
        if (analysis.accents == Accents::keep || one < 0x80) return body(one);
        unicode::fold(one, [&](std::uint32_t part) {
            if (analysis.accents == Accents::unicode || part < 0x80) body(part);
        });
    };
    if (!analysis.lower) return without_accents(point);
    if (point == unicode::kSigma && unicode::ends_word(text, begin, end)) return without_accents(unicode::kFinalSigma);
    if (point == unicode::kDottedI) {
        without_accents('i');
        return without_accents(unicode::kDotAbove);
    }
    without_accents(unicode::lower(point));
}

// Calls body(character, which) for all that a text becomes; `which` is the number of the character of the text that it
// comes from.
template <class Body>
void each_character(std::string_view text, const Analysis& analysis, const Body& body) {
    std::uint32_t which = 0;
    for (std::size_t at = 0; at < text.size(); ++which) {
        const std::size_t begin = at;
        const std::uint32_t point = unicode::decode(text, at);
        each_part(text, begin, at, point, analysis, [&](std::uint32_t part) { body(part, which); });
    }
}

// Letters and digits of ASCII, and the underscore, as they are written; 0 for all else.
struct AsciiWords {
    explicit constexpr AsciiWords(bool lower) {
        for (int c = 0; c < 0x80; ++c) {
            const bool large = c >= 'A' && c <= 'Z';
            const bool word = large || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
            letters[c] = static_cast<char>(!word ? 0 : large && lower ? c + 32 : c);
        }
    }
    char letters[256] = {};
};
constexpr AsciiWords kAsWritten(false);
constexpr AsciiWords kLowered(true);

}  // namespace

void Reader::read(std::string_view text, std::int64_t number) {
    if (text.size() > kMostBytes)
        throw std::invalid_argument("text " + std::to_string(number) + " has more than 256 MiB");
    // Enough for all of ASCII with a space behind every letter; make_room sees to the rest.
    size_ = 0;
    make_room(2 * text.size());
    units_.clear();
    word_ends_.clear();
    switch (analysis_.unit) {
        case Unit::word: add_words(text); break;
        case Unit::character: add_characters(text); break;
        case Unit::character_in_word: add_words_of_characters(text); break;
    }
}

void Reader::make_room(std::size_t more) {
    const std::size_t wanted = size_ + more + unicode::kMostUnits + Terms::kPadding;
    if (wanted > buffer_.size()) buffer_.resize(std::max(wanted, 2 * buffer_.size()));
}

// Where a character was put.
Term Reader::put(std::uint32_t point, std::uint32_t from, std::uint32_t to) {
    const std::size_t begin = size_;
    size_ = static_cast<std::size_t>(unicode::encode(point, buffer_.data() + size_) - buffer_.data());
    return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size_ - begin), from, to};
}

// Keeps the word that ends the letters, or takes it off again.
void Reader::end_word(std::size_t begin, std::uint32_t from, std::uint32_t to, std::uint32_t length) {
    const std::size_t size = size_ - begin;
    if (length < static_cast<std::uint32_t>(analysis_.min_length) ||
        (analysis_.stop && analysis_.stop->find(buffer_.data() + begin, size) >= 0)) {
        size_ = begin;
        return;
    }
    units_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size), from, to});
    buffer_[size_++] = ' ';
}

void Reader::add_words(std::string_view text) {
    const char* ascii = (analysis_.lower ? kLowered : kAsWritten).letters;
    std::size_t begin = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t length = 0;
    std::uint32_t which = 0;
    const auto start = [&] {
        begin = size_;
        from = which;
    };
    const auto end = [&] {
        if (length > 0) end_word(begin, from, to, length);
        length = 0;
    };
    for (std::size_t at = 0; at < text.size();) {
        if (const char letter = ascii[static_cast<std::uint8_t>(text[at])]; letter != 0) {
            if (length == 0) start();
            // A run of plain letters, which most of most texts is.
            const std::size_t first = at;
            char* out = buffer_.data() + size_;
            for (char next = letter; next != 0;
                 next = ++at < text.size() ? ascii[static_cast<std::uint8_t>(text[at])] : '\0')
                *out++ = next;
            size_ += at - first;
            which += static_cast<std::uint32_t>(at - first);
            length += static_cast<std::uint32_t>(at - first);
            to = which;
            continue;
        }
        if (static_cast<std::uint8_t>(text[at]) < 0x80) {
            end();
            ++at;
        } else {
            const std::size_t here = at;
            const std::uint32_t point = unicode::decode(text, at);
            each_part(text, here, at, point, analysis_, [&](std::uint32_t part) {
                if (!unicode::has(part, unicode::kWord)) return end();
                if (length++ == 0) start();
                make_room(2 * (text.size() - at) + unicode::kMostUnits);
                put(part, which, which + 1);
                to = which + 1;
            });
        }
        ++which;
    }
    end();
}

// Two spaces or more, of any kind, are one; a single one of another kind stays what it is.
void Reader::add_characters(std::string_view text) {
    bool space = false;
    each_character(text, analysis_, [&](std::uint32_t point, std::uint32_t which) {
        const bool another = unicode::has(point, unicode::kSpace);
        make_room(unicode::kMostUnits);
        if (another && space) {
            const std::uint32_t from = units_.back().from;
            size_ = units_.back().begin;
            units_.back() = put(' ', from, which + 1);
            return;
        }
        space = another;
        units_.push_back(put(point, which, which + 1));
    });
}

void Reader::add_words_of_characters(std::string_view text) {
    bool inside = false;
    const auto add = [&](std::uint32_t point, std::uint32_t from, std::uint32_t to) {
        make_room(unicode::kMostUnits);
        units_.push_back(put(point, from, to));
    };
    const auto end = [&] {
        if (!inside) return;
        inside = false;
        add(' ', units_.back().to, units_.back().to);
        word_ends_.push_back(units_.size());
    };
    each_character(text, analysis_, [&](std::uint32_t point, std::uint32_t which) {
        if (unicode::has(point, unicode::kSpace)) return end();
        if (!inside) add(' ', which, which);
        inside = true;
        add(point, which, which + 1);
    });
    end();
}

}  // namespace carya
