#include "terms.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
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
    std::vector<std::uint64_t> larger(2 * slots_for(count_ + 1));
    std::size_t at = 0;
    each([&](const Record& record) {
        larger[probe(larger, record.hash, never)] = slot_of(record.hash, at);
        at += words_for(record.size);
    });
    slots_ = std::move(larger);
}

TermTable::Record& TermTable::find(const char* term, std::size_t size, std::uint64_t hash) {
    if (2 * count_ >= slots_.size()) grow();
    const auto record_at = [&](std::size_t at) { return reinterpret_cast<Record*>(words_.data() + at); };
    const std::uint64_t slot = probe(slots_, hash, [&](std::uint32_t at) {
        const Record& record = *record_at(at);
        return record.hash == hash && record.size == size && std::memcmp(record.bytes(), term, size) == 0;
    });
    if (slots_[slot] != 0) return *record_at(static_cast<std::uint32_t>(slots_[slot]) - 1);
    const std::size_t end = used_ + words_for(size);
    if (end >= std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many terms");
    if (end > words_.size()) words_.resize(std::max(2 * words_.size(), end));
    Record& record =
        *new (words_.data() + used_) Record{hash, static_cast<std::uint32_t>(count_), static_cast<std::uint32_t>(size)};
    std::memcpy(words_.data() + used_ + sizeof(Record) / 8, term, size);
    slots_[slot] = slot_of(hash, used_);
    used_ = end;
    ++count_;
    return record;
}

}  // namespace carya
