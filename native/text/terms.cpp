#include "terms.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

namespace carya {

namespace {

constexpr std::uint64_t kTag = 0xFFFFFFFF00000000ULL;

std::uint64_t slot_of(std::uint64_t hash, std::uint64_t number) { return (hash & kTag) | (number + 1); }

// The place in `slots` where number(slot) is accepted, or the first free one.
template <class Accept>
std::uint64_t probe(std::span<const std::uint64_t> slots, std::uint64_t hash, const Accept& accept) {
    const std::uint64_t mask = slots.size() - 1;
    std::uint64_t at = hash & mask;
    for (; slots[at] != 0; at = (at + 1) & mask)
        if (((slots[at] ^ hash) & kTag) == 0 && accept(static_cast<std::uint32_t>(slots[at]) - 1)) break;
    return at;
}

std::uint64_t slots_for(std::size_t terms) { return std::bit_ceil(std::max<std::size_t>(2 * terms, 16)); }

bool never(std::uint32_t) { return false; }

}  // namespace

Terms::Terms(std::span<const std::uint8_t> bytes, std::span<const std::int64_t> ends,
             std::span<const std::uint64_t> slots)
    : bytes_(reinterpret_cast<const char*>(bytes.data())), ends_(ends), slots_(slots), mask_(slots.size() - 1) {
    std::int64_t before = 0;
    for (const std::int64_t end : ends) {
        if (end < before) throw std::invalid_argument("the ends of terms do not ascend");
        before = end;
    }
    if (bytes.size() != static_cast<std::size_t>(before) + kPadding)
        throw std::invalid_argument("terms have another number of bytes than they should");
    if (!std::has_single_bit(slots.size())) throw std::invalid_argument("the slots of terms are no power of two");
    bool free = false;
    for (const std::uint64_t slot : slots) {
        free = free || slot == 0;
        const auto number = static_cast<std::uint32_t>(slot);
        if (slot != 0 && (number == 0 || number > ends.size()))
            throw std::invalid_argument("a slot of terms names none of them");
    }
    if (!free) throw std::invalid_argument("the slots of terms are full");
}

std::int64_t Terms::find(const char* term, std::size_t size, std::uint64_t hash) const {
    const std::uint64_t at =
        probe(slots_, hash, [&](std::uint32_t number) { return (*this)[number] == std::string_view(term, size); });
    return static_cast<std::int64_t>(static_cast<std::uint32_t>(slots_[at])) - 1;
}

TermArrays TermArrays::of(std::span<const std::string_view> sorted) {
    TermArrays out;
    if (sorted.size() >= std::numeric_limits<std::int32_t>::max()) throw std::length_error("too many terms");
    std::size_t bytes = Terms::kPadding;
    for (const std::string_view term : sorted) bytes += term.size();
    out.bytes.reserve(bytes);
    for (const std::string_view term : sorted) {
        out.bytes.insert(out.bytes.end(), term.begin(), term.end());
        out.ends.push_back(static_cast<std::int64_t>(out.bytes.size()));
    }
    out.bytes.resize(bytes);
    out.slots.resize(slots_for(sorted.size()));
    std::size_t begin = 0;
    for (std::size_t number = 0; number < sorted.size(); ++number) {
        const auto* term = reinterpret_cast<const char*>(out.bytes.data()) + begin;
        const std::uint64_t hash = hash_term(term, sorted[number].size());
        out.slots[probe(out.slots, hash, never)] = slot_of(hash, number);
        begin += sorted[number].size();
    }
    return out;
}

void TermTable::grow() {
    std::vector<std::uint64_t> larger(slots_for(entries_.size() + 1) * 2);
    for (std::size_t number = 0; number < entries_.size(); ++number) {
        const std::uint64_t hash = entries_[number].hash;
        larger[probe(larger, hash, never)] = slot_of(hash, number);
    }
    slots_ = std::move(larger);
}

std::uint32_t TermTable::number(const char* term, std::size_t size, std::uint64_t hash) {
    if (2 * entries_.size() >= slots_.size()) grow();
    const std::uint64_t at = probe(slots_, hash, [&](std::uint32_t number) {
        const Entry& entry = entries_[number];
        return entry.size == size && std::memcmp(bytes_.data() + entry.begin, term, size) == 0;
    });
    if (slots_[at] != 0) return static_cast<std::uint32_t>(slots_[at]) - 1;
    if (entries_.size() >= std::numeric_limits<std::int32_t>::max()) throw std::length_error("too many terms");
    const std::size_t begin = bytes_.size();
    bytes_.insert(bytes_.end(), term, term + size);
    entries_.push_back({hash, begin, 0, static_cast<std::uint32_t>(size), 0, 0, 0});
    slots_[at] = slot_of(hash, entries_.size() - 1);
    return static_cast<std::uint32_t>(entries_.size() - 1);
}

}  // namespace carya
