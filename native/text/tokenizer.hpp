// Splits texts into terms (words, characters and their n-grams).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "stem_table.hpp"
#include "unicode/normalization.hpp"
#include "vocabulary.hpp"

namespace carya {

// The number of texts per task of a parallel loop.
inline constexpr std::int64_t kTextsPerTask = 64;

enum class TokenUnit : int { word, character, character_in_word };
enum class Accents : int { keep, unicode, ascii };

// The rules for splitting texts into words and normalizing them.
enum class TokenizerKind : int {
    sklearn,  // as in scikit-learn: a word is a sequence of letters, digits and underscores
    unicode,  // words include combining marks; texts are converted to NFC, and invisible characters are removed
};

// The methods by which TokenizerKind::unicode splits runs of characters in scripts that are written without spaces.
enum class Segmenter : int {
    none,        // a run is part of a word, like any other letters
    characters,  // a character and its marks are a unit; unigrams and bigrams of a run are always terms
    words,       // a run is a word of any length; the caller has inserted kBoundary between words
};
constexpr std::uint32_t kBoundary = 0xFDD0;  // a noncharacter; separates words and is removed from character n-grams

struct AnalyzerOptions {
    TokenUnit unit = TokenUnit::word;
    int min_n = 1;  // minimum n-gram size
    int max_n = 1;  // maximum n-gram size
    bool lowercase = true;
    Accents accents = Accents::keep;
    int min_word_length = 2;                 // in characters; shorter words are dropped
    const Vocabulary* stop_words = nullptr;  // words to drop
    TokenizerKind tokenizer = TokenizerKind::unicode;
    Segmenter segmenter = Segmenter::characters;
    const StemTable* stems = nullptr;  // words in this table are replaced with their stems
};

// An analyzer of a vectorizer. It has one feature per term or, with hash buckets, one feature per bucket. Its features
// are numbered after those of the preceding analyzers.
struct TextAnalyzer {
    AnalyzerOptions options;
    std::int64_t n_buckets = 0;
};

// A term in the current text: its byte range in Tokenizer::normalized() and its character range in the original text.
struct TermSpan {
    std::uint32_t begin;
    std::uint32_t size;
    std::uint32_t char_begin;
    std::uint32_t char_end;
};

// Returns the ranges of a text that are written in scripts without spaces, including combining marks.
std::vector<std::pair<std::uint32_t, std::uint32_t>> find_unspaced_runs(std::string_view text);

// Returns the number of characters up to the end of the first `n_words` words, where words are separated by whitespace.
// Returns 0 if `n_words` is 0 or if the text contains no further words.
std::uint32_t find_lead_end(std::string_view text, int n_words);

// The maximum count of a term in the lead; larger counts are clipped.
constexpr std::uint8_t kMaxLeadCount = 255;

// Returns whether a term is in the lead. The lead ends at character `lead_end` and is empty if `lead_end` is 0.
inline bool in_lead(const TermSpan& term, std::uint32_t lead_end) { return lead_end > 0 && term.char_end <= lead_end; }

// Splits one text at a time and reuses memory between texts. Terms are spans of the normalized text, in which words are
// separated by single spaces, so every n-gram is contiguous.
class Tokenizer {
public:
    explicit Tokenizer(const AnalyzerOptions& options) : options_(options) {}

    // Splits a text. Throws std::invalid_argument, with `text_number` in the message, if the text is larger than
    // kMaxTextBytes.
    void read(std::string_view text, std::int64_t text_number);

    // Returns the normalized text. It is padded, so that 8 bytes can be read from the start of any term.
    std::string_view normalized() const { return {buffer_.data(), size_}; }

    template <class Body>
    void for_each_term(const Body& body) const {
        if (options_.unit == TokenUnit::character_in_word)
            for_each_ngram_in_words(body);
        else if (!unit_runs_.empty())
            for_each_ngram_with_runs(body);
        else
            for_each_ngram(0, units_.size(), body);
    }

    // Calls body(word) for each word that is not part of a run of segmented characters.
    template <class Body>
    void for_each_word(const Body& body) const {
        for (std::size_t i = 0; i < units_.size(); ++i)
            if (unit_runs_.empty() || unit_runs_[i] == 0) body(normalized().substr(units_[i].begin, units_[i].size));
    }

    // Ensures that offsets fit in 32 bits: normalization can make a character up to eleven times as long.
    static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 28;

private:
    struct Word {
        std::size_t begin;  // in the buffer
        std::uint32_t char_begin;
        std::uint32_t char_end;
        std::uint32_t length;  // in characters
        bool unspaced;         // written in a script without spaces
    };

    void add_words(std::string_view text, const AnalyzerOptions& options);
    void add_characters(std::string_view text, const AnalyzerOptions& options);
    void add_padded_words(std::string_view text, const AnalyzerOptions& options);
    void reserve(std::size_t extra_bytes);
    TermSpan append(std::uint32_t point, std::uint32_t char_begin, std::uint32_t char_end);
    bool add_unit(const Word& word);
    void replace_by_stem(std::size_t begin);
    void restore_spans();

    // Calls body(term) for the n-grams within units [first, last).
    template <class Body>
    void for_each_ngram(std::size_t first, std::size_t last, const Body& body) const {
        for (auto n = static_cast<std::size_t>(options_.min_n); n <= static_cast<std::size_t>(options_.max_n); ++n)
            for (std::size_t i = first; i + n <= last; ++i) body(ngram(i, i + n - 1));
    }

    // Calls body(term) for all n-grams, and for the unigrams and bigrams within runs even if they are not in the n-gram
    // range.
    template <class Body>
    void for_each_ngram_with_runs(const Body& body) const {
        const auto min_n = static_cast<std::size_t>(options_.min_n);
        const auto max_n = static_cast<std::size_t>(options_.max_n);
        for (std::size_t n = 1; n <= (max_n < 2 ? 2 : max_n); ++n)
            for (std::size_t i = 0; i + n <= units_.size(); ++i) {
                const bool within_run = n <= 2 && unit_runs_[i] != 0 && unit_runs_[i] == unit_runs_[i + n - 1];
                if (within_run || (n >= min_n && n <= max_n)) body(ngram(i, i + n - 1));
            }
    }

    // Calls body(term) for the n-grams within each word. A word with at most max_n units is itself a term, which is
    // passed exactly once, even if the word has fewer than min_n units.
    template <class Body>
    void for_each_ngram_in_words(const Body& body) const {
        std::size_t first = 0;
        for (const std::size_t last : word_ends_) {
            for (auto n = static_cast<std::size_t>(options_.min_n); n <= static_cast<std::size_t>(options_.max_n);
                 ++n) {
                if (last - first <= n) {
                    body(ngram(first, last - 1));
                    break;
                }
                for (std::size_t i = first; i + n <= last; ++i) body(ngram(i, i + n - 1));
            }
            first = last;
        }
    }

    TermSpan ngram(std::size_t first, std::size_t last) const {
        const TermSpan& end = units_[last];
        return {units_[first].begin, end.begin + end.size - units_[first].begin, units_[first].char_begin,
                end.char_end};
    }

    AnalyzerOptions options_;
    std::vector<char> buffer_;
    std::size_t size_ = 0;  // number of bytes used in the buffer
    std::vector<TermSpan> units_;
    std::vector<std::size_t> word_ends_;    // end of each word in `units_`; used by character_in_word
    std::vector<std::uint32_t> unit_runs_;  // run number per unit, or 0 if it is in no run; empty if there are no runs
    std::uint32_t n_runs_ = 0;
    std::size_t text_size_ = 0;  // number of bytes in the text
    unicode::NormalizedText normalized_;
};

}  // namespace carya
