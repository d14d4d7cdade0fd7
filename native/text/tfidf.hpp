// Texts to rows of weighted terms (TF-IDF): what is learned from texts, and rows for others.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "../matrix.hpp"
#include "../parallel.hpp"
#include "reader.hpp"
#include "terms.hpp"

namespace carya {

// One way of cutting texts into terms. Each has features of its own, behind those of the parts before it: a feature a
// term, or, if there are buckets, those that terms hash to.
struct TextPart {
    Analysis analysis;
    std::int64_t buckets = 0;
};

// Which terms become features: those in at least and at most so many texts, and of these the most frequent ones.
struct TermLimits {
    double min_texts = 1;
    double max_texts = 1;
    std::int64_t max_features = 0;  // of a part; 0 is all
    bool binary = false;            // frequent is what is in many texts, however often
};

enum class Norm : int { none, l1, l2 };

// From how often a term is in a text to its weight.
struct Weighting {
    bool binary = false;
    bool sublinear = false;  // 1 + log(count)
    Norm norm = Norm::l2;
};

// How much rarer terms tell: log(texts / texts with it) + 1, as if one more text had them all if `smooth`.
std::vector<float> inverse_frequency(std::span<const std::int64_t> with_it, std::int64_t texts, bool smooth);

// Counts become weights, in place: weighted by `idf`, one a feature or empty, and each row normalised.
void weigh_terms(Csr& counts, std::span<const float> idf, const Weighting& weighting, int threads);

// The bucket of a term: |MurmurHash3 x86 32 with seed 0| mod buckets, as scikit-learn's hashing vectorizer has it.
std::int64_t bucket_of(std::string_view term, std::int64_t buckets);

// Learns terms from texts, which may come a few at a time.
class TermCounter {
public:
    // With `keep_rows` what was counted in each text is kept, so that texts need not be read again.
    TermCounter(std::vector<TextPart> parts, bool keep_rows, int threads);
    TermCounter(const TermCounter&) = delete;

    // Throws std::invalid_argument for a text that cannot be read, by its number.
    void add(std::span<const std::string_view> texts, Monitor* monitor);
    std::int64_t texts() const { return texts_; }

    struct Learned {
        std::vector<TermArrays> terms;    // of each part; none for buckets
        std::vector<std::int64_t> texts;  // how many texts have each feature
        Csr counts;                       // texts x features, if rows were kept
    };
    // May be called once.
    Learned learn(const TermLimits& limits);

private:
    struct Item {
        std::uint32_t term;
        std::uint32_t count;
    };
    struct Place {
        int worker;
        std::size_t begin;
        std::size_t end;
    };
    // What one thread has seen, by part.
    struct Worker {
        std::vector<Reader> readers;
        std::vector<TermTable> tables;
        std::vector<std::vector<std::uint32_t>> bucket_texts;
        std::vector<std::vector<Item>> items;
        std::vector<Term> terms;
        std::vector<std::uint64_t> hashes;
        std::vector<std::uint32_t> buckets;
        std::uint32_t texts = 0;
    };
    // The feature of each term, or -1, by worker.
    using Features = std::vector<std::vector<std::int32_t>>;

    void count_terms(Worker& worker, std::size_t part);
    void count_buckets(Worker& worker, std::size_t part);
    Features choose(std::size_t part, const TermLimits& limits, std::int64_t first, Learned& learned);
    Csr rows(const std::vector<Features>& features, std::int64_t cols) const;

    std::vector<TextPart> parts_;
    bool keep_rows_;
    int threads_;
    std::int64_t texts_ = 0;
    std::deque<Worker> workers_;
    std::vector<std::vector<Place>> places_;  // by part and text
};

// Rows for texts from terms that were learned.
class Vectorizer {
public:
    struct Part {
        TextPart part;
        Terms terms;

        std::int64_t features() const { return part.buckets > 0 ? part.buckets : terms.size(); }
    };
    // `idf` has one for each feature, or none. Throws std::invalid_argument if it does not fit.
    Vectorizer(std::vector<Part> parts, std::span<const float> idf, Weighting weighting);

    std::int64_t features() const { return features_; }
    Csr transform(std::span<const std::string_view> texts, int threads, Monitor* monitor) const;

    // A term of a text, and the feature it counts for.
    struct Found {
        std::int32_t feature;
        std::uint32_t from;  // characters of the text
        std::uint32_t to;
        std::string term;
    };
    std::vector<Found> trace(std::string_view text) const;

private:
    // Calls body(feature, term) for the terms that are features.
    template <class Body>
    void each_feature(Reader& reader, const Part& part, std::int64_t first, std::vector<std::uint64_t>& hashes,
                      const Body& body) const;

    std::vector<Part> parts_;
    std::span<const float> idf_;
    Weighting weighting_;
    std::int64_t features_ = 0;
};

}  // namespace carya
