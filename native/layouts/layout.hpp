// One interface for every way of keeping a layer's weights: given a query and some chunks, add up the raw scores.
//
// Four layouts are the paper's (section 3.1), `packed` is the one models are saved in and searched by default. All give
// the same sums within rounding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "../buffer.hpp"
#include "packed.hpp"

namespace carya {

// The sparse and dense features of one row.
struct Query {
    std::span<const std::int32_t> indices;
    std::span<const float> values;
    const float* dense = nullptr;
};

// A chunk that is to be scored.
struct Part {
    std::int32_t parent;
    float score;         // of the parent
    std::int64_t begin;  // its positions
    std::int64_t end;
    std::uint32_t base;  // where its sums stand; never 0

    std::int64_t size() const { return end - begin; }
};

// Scratch of one thread, all zeros between uses but for `sums`.
struct Scratch {
    Buffer<float> sums;
    std::int64_t room = 0;             // floats in sums
    Buffer<float> whole;               // sums of all nodes of a level
    std::vector<std::uint32_t> base;   // of each chunk, 0 for those not asked for
    std::vector<std::int32_t> wanted;  // the chunks asked for
    std::vector<float> query;          // one a feature, for layouts that look features up
};

class Layout {
public:
    virtual ~Layout() = default;
    // sums[part.base + child] += value * weight over the sparse features. Parts are ascending.
    virtual void add(const Query& query, std::span<const Part> parts, Scratch& scratch) const = 0;
    // What the sums of a chunk are to be multiplied by.
    virtual float scale([[maybe_unused]] std::int32_t chunk) const { return 1.0F; }
};

// by-label     the weights of each label, looked up in the query
// by-feature   the weights of each feature, searched for the chunks' labels
// hash         for each chunk a hash table of its features
// search       for each chunk a sorted list of its features
// packed       for each feature a block of its chunks
std::unique_ptr<Layout> make_layout(std::string_view name, const PackedView& packed,
                                    std::span<const std::int64_t> chunks);

// Floats that must follow any base, so that no child of a damaged block leads out of the sums.
std::int64_t padding(const PackedForm& form);

}  // namespace carya
