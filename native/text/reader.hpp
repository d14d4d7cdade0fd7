// From a text to its terms: words, characters, and runs of them, as scikit-learn's analysers cut them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "terms.hpp"

namespace carya {

enum class Unit : int { word, character, character_in_word };
enum class Accents : int { keep, unicode, ascii };

struct Analysis {
    Unit unit = Unit::word;
    int min_n = 1;  // units in a term
    int max_n = 1;
    bool lower = true;
    Accents accents = Accents::keep;
    int min_length = 2;           // characters of a word; shorter ones are left out
    const Terms* stop = nullptr;  // words that are left out
};

// One way of cutting texts into terms. Each has features of its own, behind those of the parts before it: a feature a
// term, or, if there are buckets, those that terms hash to.
struct TextPart {
    Analysis analysis;
    std::int64_t buckets = 0;
};

// A term in the text that was read: bytes of Reader::letters(), and characters of the text itself.
struct Term {
    std::uint32_t begin;
    std::uint32_t size;
    std::uint32_t from;
    std::uint32_t to;
};

// Reads one text after another; its memory is used again. Terms are cut from `letters`, where the text is lower case,
// without accents, and words stand one space apart: so every run of units is one piece of it.
class Reader {
public:
    explicit Reader(const Analysis& analysis) : analysis_(analysis) {}

    // Throws std::invalid_argument for a text of more than kMostBytes, by its number.
    void read(std::string_view text, std::int64_t number);

    // Padded: eight bytes can be read from the begin of any term.
    std::string_view letters() const { return {buffer_.data(), size_}; }

    template <class Body>
    void each(const Body& body) const {
        if (analysis_.unit == Unit::character_in_word)
            each_in_words(body);
        else
            each_in(0, units_.size(), body);
    }

    static constexpr std::size_t kMostBytes = std::size_t{1} << 28;  // a character may become eleven times as long

private:
    void add_words(std::string_view text);
    void add_characters(std::string_view text);
    void add_words_of_characters(std::string_view text);
    void make_room(std::size_t more);
    Term put(std::uint32_t point, std::uint32_t from, std::uint32_t to);
    void end_word(std::size_t begin, std::uint32_t from, std::uint32_t to, std::uint32_t length);

    // Runs of n units within [first, last).
    template <class Body>
    void each_in(std::size_t first, std::size_t last, const Body& body) const {
        for (auto n = static_cast<std::size_t>(analysis_.min_n); n <= static_cast<std::size_t>(analysis_.max_n); ++n)
            for (std::size_t i = first; i + n <= last; ++i) body(run(i, i + n - 1));
    }

    // The same word by word; a word shorter than a run is a term by itself, once.
    template <class Body>
    void each_in_words(const Body& body) const {
        std::size_t first = 0;
        for (const std::size_t last : word_ends_) {
            for (auto n = static_cast<std::size_t>(analysis_.min_n); n <= static_cast<std::size_t>(analysis_.max_n);
                 ++n) {
                if (last - first <= n) {
                    body(run(first, last - 1));
                    break;
                }
                for (std::size_t i = first; i + n <= last; ++i) body(run(i, i + n - 1));
            }
            first = last;
        }
    }

    Term run(std::size_t first, std::size_t last) const {
        const Term& end = units_[last];
        return {units_[first].begin, end.begin + end.size - units_[first].begin, units_[first].from, end.to};
    }

    Analysis analysis_;
    std::vector<char> buffer_;
    std::size_t size_ = 0;  // of what stands in the buffer
    std::vector<Term> units_;
    std::vector<std::size_t> word_ends_;  // in units, of characters in words
};

}  // namespace carya
