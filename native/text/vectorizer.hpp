// Converts texts to rows of TF-IDF features with fitted vocabularies.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"
#include "tfidf_weighting.hpp"
#include "tokenizer.hpp"
#include "vocabulary.hpp"

namespace carya {

class Vectorizer {
public:
    struct FittedAnalyzer {
        TextAnalyzer analyzer;
        Vocabulary vocabulary;

        std::int64_t n_features() const { return analyzer.n_buckets > 0 ? analyzer.n_buckets : vocabulary.size(); }
    };
    // `idf` must have one entry per feature or be empty. Throws std::invalid_argument if it has the wrong size.
    Vectorizer(std::vector<FittedAnalyzer> analyzers, std::span<const float> idf, Weighting weighting);

    std::int64_t n_features() const { return n_features_; }
    Csr transform(std::span<const std::string_view> texts, int threads, Monitor* monitor) const;

    // An occurrence of a term in a text and the feature of the term.
    struct TermOccurrence {
        std::int32_t feature;
        std::uint32_t char_begin;  // character index in the text
        std::uint32_t char_end;
        std::string term;
    };
    std::vector<TermOccurrence> locate_terms(std::string_view text) const;

private:
    // Calls body(feature, term) for each term that is a feature.
    template <class Body>
    void for_each_feature(Tokenizer& tokenizer, const FittedAnalyzer& fitted, std::int64_t first_feature,
                          std::vector<std::uint64_t>& hashes, const Body& body) const;

    std::vector<FittedAnalyzer> analyzers_;
    std::span<const float> idf_;
    Weighting weighting_;
    std::int64_t n_features_ = 0;
};

}  // namespace carya
