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

// Limits on the vocabulary. Terms with a document frequency in [min_df, max_df] become features; if there are more than
// max_features such terms, only the most frequent ones become features.
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
    // Terms within the first `lead_words` words of a text are also counted separately.
    TermCounter(std::vector<TextAnalyzer> analyzers, bool keep_rows, int lead_words, int threads);
    TermCounter(const TermCounter&) = delete;

    // Throws std::invalid_argument, with the number of the text in the message, if a text is too long.
    void add(std::span<const std::string_view> texts, Monitor* monitor);
    std::int64_t n_texts() const { return n_texts_; }

    struct FittedVocabulary {
        std::vector<VocabularyArrays> terms;             // per analyzer; empty for hash buckets
        std::vector<std::int64_t> document_frequencies;  // per feature
        Csr counts;                                      // texts x features; empty unless rows are kept
        RawVector<std::uint8_t> lead_counts;             // counts within the leads; empty if lead_words is 0
    };
    // Selects the features. May be called only once.
    FittedVocabulary fit(const VocabularyLimits& limits);

private:
    static constexpr std::uint32_t kMaxCount = (1 << 24) - 1;

    struct TermCount {
        std::uint32_t term;
        std::uint32_t count : 24;
        std::uint32_t lead_count : 8;

        void add(bool in_lead) {
            if (count < kMaxCount) ++count;
            if (in_lead && lead_count < kMaxLeadCount) ++lead_count;
        }
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
    // The feature index of each term, by worker and term; -1 if the term is not a feature.
    using FeatureIds = std::vector<std::vector<std::int32_t>>;

    // Terms that end after `lead_end` are not in the lead.
    void count_terms(Worker& worker, std::size_t analyzer, std::uint32_t lead_end);
    void count_buckets(Worker& worker, std::size_t analyzer, std::uint32_t lead_end);
    FeatureIds select_features(std::size_t analyzer, const VocabularyLimits& limits, std::int64_t first_feature,
                               FittedVocabulary& fitted);
    void build_rows(const std::vector<FeatureIds>& features, std::int64_t cols, FittedVocabulary& fitted) const;

    std::vector<TextAnalyzer> analyzers_;
    bool keep_rows_;
    int lead_words_;
    int threads_;
    std::int64_t n_texts_ = 0;
    std::deque<Worker> workers_;
    std::vector<RawVector<RowLocation>> row_locations_;  // indexed by analyzer and text
};

}  // namespace carya
