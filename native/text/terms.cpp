#include "terms.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <stdexcept>

#include "../parallel.hpp"

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

constexpr std::size_t kFirstSlots = std::size_t{1} << 12;

}  // namespace

std::int64_t bucket_of(std::string_view term, std::int64_t buckets) {
    // MurmurHash3 by Austin Appleby, the 32-bit variant for x86.
    constexpr std::uint32_t c1 = 0xCC9E2D51;
    constexpr std::uint32_t c2 = 0x1B873593;
    const auto scrambled = [](std::uint32_t k) { return std::rotl(k * c1, 15) * c2; };
    std::uint32_t hash = 0;
    std::size_t at = 0;
    for (; at + 4 <= term.size(); at += 4) {
        std::uint32_t k;
        std::memcpy(&k, term.data() + at, sizeof k);
        hash = std::rotl(hash ^ scrambled(k), 13) * 5 + 0xE6546B64;
    }
    std::uint32_t tail = 0;
    for (std::size_t i = term.size(); i-- > at;) tail = tail << 8 | static_cast<std::uint8_t>(term[i]);
    if (at < term.size()) hash ^= scrambled(tail);
    hash ^= static_cast<std::uint32_t>(term.size());
    hash = (hash ^ hash >> 16) * 0x85EBCA6B;
    hash = (hash ^ hash >> 13) * 0xC2B2AE35;
    hash ^= hash >> 16;
    return std::abs(std::int64_t{static_cast<std::int32_t>(hash)}) % buckets;
}

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

TermArrays TermArrays::of(std::span<const HashedTerm> sorted, int threads) {
    constexpr std::int64_t kTermsPerTask = 4096;
    constexpr std::size_t kAhead = 16;
    TermArrays out;
    if (sorted.size() >= std::numeric_limits<std::int32_t>::max()) throw std::length_error("too many terms");
    out.ends.reserve(sorted.size());
    std::int64_t end = 0;
    for (const HashedTerm& term : sorted) out.ends.push_back(end += static_cast<std::int64_t>(term.text.size()));
    out.bytes.resize(static_cast<std::size_t>(end) + Terms::kPadding);
    parallel_each(std::ssize(sorted), kTermsPerTask, threads, nullptr, [&](int, std::int64_t number) {
        const std::string_view text = sorted[number].text;
        std::copy(text.begin(), text.end(), out.bytes.begin() + out.ends[number] - std::ssize(text));
    });
    out.slots.resize(slots_for(sorted.size()));
    for (std::size_t number = 0; number < sorted.size(); ++number) {
        if (number + kAhead < sorted.size())
            __builtin_prefetch(&out.slots[sorted[number + kAhead].hash & (out.slots.size() - 1)], 1);
        const std::uint64_t hash = sorted[number].hash;
        out.slots[probe(out.slots, hash, never)] = slot_of(hash, number);
    }
    return out;
}

TermArrays TermArrays::of(const std::vector<std::string>& sorted) {
    std::vector<HashedTerm> terms;
    std::string padded;
    for (const std::string& text : sorted) {
        padded.assign(text).append(Terms::kPadding, '\0');
        terms.push_back({text, hash_term(padded.data(), text.size())});
    }
    return of(terms);
}

void TermTable::grow() {
    std::vector<std::uint64_t> larger(std::max(kFirstSlots, 2 * slots_for(count_ + 1)));
    for (const Chunk& chunk : chunks_)
        for (std::size_t at = 0; at < chunk.used;) {
            const Record& record = *reinterpret_cast<const Record*>(chunk.words.get() + at);
            larger[probe(larger, record.hash, never)] = slot_of(record.hash, chunk.first + at);
            at += words_for(record.size);
        }
    slots_ = std::move(larger);
}

// The place of so many words behind all records.
std::size_t TermTable::make_room(std::size_t words) {
    if (chunks_.empty() || chunks_.back().used + words > chunks_.back().size) {
        const std::size_t size = (words + kChunk - 1) / kChunk * kChunk;
        const std::size_t first = starts_.size() * kChunk;
        if (first + size >= std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many terms");
        auto memory = std::make_unique_for_overwrite<std::uint64_t[]>(size);
        for (std::size_t at = 0; at < size; at += kChunk) starts_.push_back(memory.get() + at);
        chunks_.push_back({std::move(memory), first, 0, size});
    }
    return chunks_.back().first + chunks_.back().used;
}

TermTable::Record& TermTable::find(const char* term, std::size_t size, std::uint64_t hash) {
    if (2 * count_ >= slots_.size()) grow();
    const auto record_at = [&](std::size_t at) { return reinterpret_cast<Record*>(place(at)); };
    const std::uint64_t slot = probe(slots_, hash, [&](std::uint32_t at) {
        const Record& record = *record_at(at);
        return record.hash == hash && record.size == size && std::memcmp(record.bytes(), term, size) == 0;
    });
    if (slots_[slot] != 0) return *record_at(static_cast<std::uint32_t>(slots_[slot]) - 1);
    const std::size_t at = make_room(words_for(size));
    std::uint64_t* words = place(at);
    Record& record = *new (words) Record{hash, static_cast<std::uint32_t>(count_), static_cast<std::uint32_t>(size)};
    std::memcpy(words + sizeof(Record) / 8, term, size);
    slots_[slot] = slot_of(hash, at);
    chunks_.back().used += words_for(size);
    ++count_;
    return record;
}

}  // namespace carya
