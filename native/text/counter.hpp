// Learns which terms there are from texts, and counts them.
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

// Which terms become features: those in at least and at most so many texts, and of these the most frequent ones.
struct TermLimits {
    double min_texts = 1;
    double max_texts = 1;
    std::int64_t max_features = 0;  // of a part; 0 is all
    bool binary = false;            // frequent is what is in many texts, however often
};

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

}  // namespace carya
