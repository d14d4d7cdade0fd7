// Learns a vocabulary from texts and counts the terms in each text.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"
#include "tokenizer.hpp"
#include "vocabulary.hpp"

namespace carya {

// Limits on the vocabulary. Terms with a document frequency in [min_df, max_df] become features, or only the most
// frequent of them if there are more than max_features.
struct VocabularyLimits {
    double min_df = 1;
    double max_df = 1;
    std::int64_t max_features = 0;  // per analyzer; 0 means no limit
    bool binary = false;            // rank terms by document frequency instead of total count
};

// Learns a vocabulary from texts, which can be added in batches.
class TermCounter {
public:
    // If `keep_rows` is true, the counts of each text are stored, so that texts are read only once.
    TermCounter(std::vector<TextAnalyzer> analyzers, bool keep_rows, int threads);
    TermCounter(const TermCounter&) = delete;

    // Throws std::invalid_argument, with the number of the text in the message, if a text is too long.
    void add(std::span<const std::string_view> texts, Monitor* monitor);
    std::int64_t n_texts() const { return n_texts_; }

    struct FittedVocabulary {
        std::vector<VocabularyArrays> terms;             // per analyzer; empty for hash buckets
        std::vector<std::int64_t> document_frequencies;  // per feature
        Csr counts;                                      // texts x features; empty unless rows are kept
    };
    // Selects the features. May be called only once.
    FittedVocabulary fit(const VocabularyLimits& limits);

private:
    struct TermCount {
        std::uint32_t term;
        std::uint32_t count;
    };
    struct RowLocation {
        int worker;
        std::size_t begin;
        std::size_t end;
    };
    // Per-thread state. The first four vectors are indexed by analyzer.
    struct Worker {
        std::vector<Tokenizer> tokenizers;
        std::vector<TermTable> tables;
        std::vector<std::vector<std::uint32_t>> bucket_dfs;
        std::vector<RawVector<TermCount>> items;
        std::vector<TermSpan> terms;
        std::vector<std::uint64_t> hashes;
        std::vector<std::uint32_t> bucket_ids;
        std::uint32_t n_texts = 0;
    };
    // The feature of each term, or -1 if the term is not a feature, indexed by worker and term.
    using FeatureIds = std::vector<std::vector<std::int32_t>>;

    void count_terms(Worker& worker, std::size_t analyzer);
    void count_buckets(Worker& worker, std::size_t analyzer);
    FeatureIds select_features(std::size_t analyzer, const VocabularyLimits& limits, std::int64_t first_feature,
                               FittedVocabulary& fitted);
    Csr build_rows(const std::vector<FeatureIds>& features, std::int64_t cols) const;

    std::vector<TextAnalyzer> analyzers_;
    bool keep_rows_;
    int threads_;
    std::int64_t n_texts_ = 0;
    std::deque<Worker> workers_;
    std::vector<RawVector<RowLocation>> row_locations_;  // indexed by analyzer and text
};

}  // namespace carya
