// Rows of weighted terms for texts, from terms that were learned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../matrix.hpp"
#include "../parallel.hpp"
#include "reader.hpp"
#include "terms.hpp"
#include "weighting.hpp"

namespace carya {

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
