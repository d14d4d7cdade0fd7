#include "chunk_weights.hpp"

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace carya {

namespace {

template <class Index, class Value>
void copy_indices(std::span<const Value> from, RawVector<std::uint8_t>& to) {
    to.resize(from.size() * sizeof(Index));
    for (std::size_t i = 0; i < from.size(); ++i) {
        const auto index = static_cast<Index>(from[i]);
        std::memcpy(to.data() + i * sizeof(Index), &index, sizeof(Index));
    }
}

template <class Value>
void copy_indices(std::span<const Value> from, int bytes, RawVector<std::uint8_t>& to) {
    if (bytes == 1)
        copy_indices<std::uint8_t>(from, to);
    else if (bytes == 2)
        copy_indices<std::uint16_t>(from, to);
    else
        copy_indices<std::uint32_t>(from, to);
}

template <class Index>
std::uint32_t index_at(std::span<const std::uint8_t> bytes, std::size_t i) {
    Index value;
    std::memcpy(&value, bytes.data() + i * sizeof(Index), sizeof(Index));
    return value;
}

template <class Index>
bool is_valid(const ChunkWeightsView& weights, std::int64_t chunk_size) {
    const std::size_t n_weights = weights.children.size() / sizeof(Index);
    std::size_t e = 0;
    for (std::size_t run = 0; run < weights.features.size(); ++run) {
        const std::size_t count = std::size_t{index_at<Index>(weights.counts, run)} + 1;
        if (count > n_weights - e) return false;
        for (std::size_t i = 0; i < count; ++i, ++e) {
            const std::uint32_t child = index_at<Index>(weights.children, e);
            if (child >= chunk_size || (i > 0 && child <= index_at<Index>(weights.children, e - 1))) return false;
        }
    }
    return e == n_weights;
}

}  // namespace

void ChunkWeightsView::check(std::int64_t n_features, std::int64_t chunk_size, WeightDtype dtype) const {
    const auto bytes = static_cast<std::size_t>(index_bytes);
    bool valid = index_bytes == child_index_bytes(chunk_size) && counts.size() == features.size() * bytes &&
                 children.size() % bytes == 0 &&
                 values.size() == children.size() / bytes * static_cast<std::size_t>(weight_bytes(dtype)) &&
                 std::isfinite(scale);
    for (std::size_t run = 0; run < features.size() && valid; ++run)
        valid = features[run] < n_features && (run == 0 || features[run] > features[run - 1]);
    if (valid)
        valid = bytes == 1   ? is_valid<std::uint8_t>(*this, chunk_size)
                : bytes == 2 ? is_valid<std::uint16_t>(*this, chunk_size)
                             : is_valid<std::uint32_t>(*this, chunk_size);
    if (!valid) throw std::invalid_argument("The weights of a chunk are invalid.");
}

void sort_by_feature(std::vector<WeightEntry>& entries, std::vector<WeightEntry>& scratch) {
    constexpr int kBits = 11;  // radix sort
    constexpr std::uint32_t kMask = (1U << kBits) - 1;
    std::uint32_t all_bits = 0;
    for (const WeightEntry& entry : entries) all_bits |= entry.feature;
    scratch.resize(entries.size());
    for (int shift = 0; shift < 32 && (all_bits >> shift) != 0; shift += kBits) {
        std::size_t offsets[kMask + 2] = {};
        for (const WeightEntry& entry : entries) ++offsets[(entry.feature >> shift & kMask) + 1];
        for (std::uint32_t digit = 0; digit < kMask; ++digit) offsets[digit + 1] += offsets[digit];
        for (const WeightEntry& entry : entries) scratch[offsets[entry.feature >> shift & kMask]++] = entry;
        entries.swap(scratch);
    }
}

void ChunkWeightsBuilder::append_all(std::span<const WeightEntry> entries) {
    for (std::size_t e = 0; e < entries.size(); ++e) {
        if (e == 0 || entries[e].feature != entries[e - 1].feature) begin_feature(entries[e].feature);
        append(entries[e].child, entries[e].value);
    }
}

ChunkWeights ChunkWeightsBuilder::finish(std::int64_t chunk_size, WeightDtype dtype, float scale) {
    ChunkWeights out;
    out.index_bytes = child_index_bytes(chunk_size);
    out.features.assign(features_.begin(), features_.end());
    for (std::size_t run = 0; run < begins_.size(); ++run)  // replace each begin with the number of weights minus 1
        begins_[run] = (run + 1 < begins_.size() ? begins_[run + 1] : children_.size()) - begins_[run] - 1;
    copy_indices(std::span<const std::size_t>(begins_), out.index_bytes, out.counts);
    copy_indices(std::span<const std::uint32_t>(children_), out.index_bytes, out.children);
    out.scale = encode_weights(values_, dtype, scale, out.values);
    features_.clear();
    begins_.clear();
    children_.clear();
    values_.clear();
    return out;
}

}  // namespace carya
