#include "reader.hpp"

#include <stdexcept>

#include "unicode.hpp"

namespace carya {

namespace {

// Calls body(character, which) for every character of the text made lower case and, if asked, without accents; `which`
// is the number of the character of the text that it comes from.
template <class Body>
void each_character(std::string_view text, const Analysis& analysis, const Body& body) {
    const auto without_accents = [&](std::uint32_t point, std::uint32_t which) {
        if (analysis.accents == Accents::keep || point < 0x80) return body(point, which);
        unicode::fold(point, [&](std::uint32_t part) {
            if (analysis.accents == Accents::unicode || part < 0x80) body(part, which);
        });
    };
    std::uint32_t which = 0;
    for (std::size_t at = 0; at < text.size(); ++which) {
        const auto byte = static_cast<std::uint8_t>(text[at]);
        if (byte < 0x80) [[likely]] {
            ++at;
            body(analysis.lower && byte >= 'A' && byte <= 'Z' ? byte + 32U : byte, which);
            continue;
        }
        const std::size_t begin = at;
        const std::uint32_t point = unicode::decode(text, at);
        if (!analysis.lower) {
            without_accents(point, which);
        } else if (point == unicode::kSigma && unicode::ends_word(text, begin, at)) {
            without_accents(unicode::kFinalSigma, which);
        } else if (point == unicode::kDottedI) {
            without_accents('i', which);
            without_accents(unicode::kDotAbove, which);
        } else {
            without_accents(unicode::lower(point), which);
        }
    }
}

}  // namespace

void Reader::read(std::string_view text) {
    if (text.size() > kMostBytes) throw std::invalid_argument("has more than 256 MiB");
    letters_.clear();
    units_.clear();
    word_ends_.clear();
    switch (analysis_.unit) {
        case Unit::word: add_words(text); break;
        case Unit::character: add_characters(text); break;
        case Unit::character_in_word: add_words_of_characters(text); break;
    }
    letters_.append(Terms::kPadding, '\0');
}

// Keeps the word that ends the letters, or takes it off again.
void Reader::end_word(std::size_t begin, std::uint32_t from, std::uint32_t to, std::uint32_t length) {
    const std::size_t size = letters_.size() - begin;
    bool keep = length >= static_cast<std::uint32_t>(analysis_.min_length);
    if (keep && analysis_.stop) {
        letters_.append(Terms::kPadding, '\0');
        keep = analysis_.stop->find(letters_.data() + begin, size) < 0;
        letters_.resize(begin + size);
    }
    if (keep) {
        units_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size), from, to});
        letters_.push_back(' ');
    } else {
        letters_.resize(begin);
    }
}

void Reader::add_words(std::string_view text) {
    std::size_t begin = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t length = 0;
    each_character(text, analysis_, [&](std::uint32_t point, std::uint32_t which) {
        if (unicode::has(point, unicode::kWord)) {
            if (length++ == 0) {
                begin = letters_.size();
                from = which;
            }
            to = which + 1;
            unicode::encode(point, letters_);
        } else if (length > 0) {
            end_word(begin, from, to, length);
            length = 0;
        }
    });
    if (length > 0) end_word(begin, from, to, length);
}

// Two spaces or more, of any kind, are one; a single one of another kind stays what it is.
void Reader::add_characters(std::string_view text) {
    bool space = false;
    each_character(text, analysis_, [&](std::uint32_t point, std::uint32_t which) {
        const bool another = unicode::has(point, unicode::kSpace);
        if (another && space) {
            letters_.resize(units_.back().begin);
            letters_.push_back(' ');
            units_.back().size = 1;
            units_.back().to = which + 1;
            return;
        }
        space = another;
        const std::size_t begin = letters_.size();
        unicode::encode(point, letters_);
        units_.push_back(
            {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(letters_.size() - begin), which, which + 1});
    });
}

void Reader::add_words_of_characters(std::string_view text) {
    bool inside = false;
    const auto add = [&](std::uint32_t point, std::uint32_t from, std::uint32_t to) {
        const std::size_t begin = letters_.size();
        unicode::encode(point, letters_);
        units_.push_back(
            {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(letters_.size() - begin), from, to});
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
