#include "vocabulary.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <stdexcept>

#include "../core/parallel.hpp"

namespace carya {

namespace {

constexpr std::uint64_t kHashTag = 0xFFFFFFFF00000000ULL;

std::uint64_t make_slot(std::uint64_t hash, std::uint64_t number) { return (hash & kHashTag) | (number + 1); }

// Returns the slot of the equal term if there is one, otherwise the first free slot.
template <class IsEqual>
std::uint64_t probe(std::span<const std::uint64_t> slots, std::uint64_t hash, const IsEqual& is_equal) {
    const std::uint64_t mask = slots.size() - 1;
    std::uint64_t slot = hash & mask;
    for (; slots[slot] != 0; slot = (slot + 1) & mask)
        if (((slots[slot] ^ hash) & kHashTag) == 0 && is_equal(static_cast<std::uint32_t>(slots[slot]) - 1)) break;
    return slot;
}

std::uint64_t slots_for(std::size_t terms) { return std::bit_ceil(std::max<std::size_t>(2 * terms, 16)); }

bool never_equal(std::uint32_t) { return false; }

constexpr std::size_t kFirstSlots = std::size_t{1} << 12;

}  // namespace

std::int64_t hash_bucket(std::string_view term, std::int64_t buckets) {
    // MurmurHash3 by Austin Appleby, 32-bit variant for x86.
    constexpr std::uint32_t c1 = 0xCC9E2D51;
    constexpr std::uint32_t c2 = 0x1B873593;
    const auto scramble = [](std::uint32_t k) { return std::rotl(k * c1, 15) * c2; };
    std::uint32_t hash = 0;
    std::size_t offset = 0;
    for (; offset + 4 <= term.size(); offset += 4) {
        std::uint32_t k;
        std::memcpy(&k, term.data() + offset, sizeof k);
        hash = std::rotl(hash ^ scramble(k), 13) * 5 + 0xE6546B64;
    }
    std::uint32_t tail = 0;
    for (std::size_t i = term.size(); i-- > offset;) tail = tail << 8 | static_cast<std::uint8_t>(term[i]);
    if (offset < term.size()) hash ^= scramble(tail);
    hash ^= static_cast<std::uint32_t>(term.size());
    hash = (hash ^ hash >> 16) * 0x85EBCA6B;
    hash = (hash ^ hash >> 13) * 0xC2B2AE35;
    hash ^= hash >> 16;
    return std::abs(std::int64_t{static_cast<std::int32_t>(hash)}) % buckets;
}

Vocabulary::Vocabulary(std::span<const std::uint8_t> bytes, std::span<const std::int64_t> ends,
                       std::span<const std::uint64_t> slots)
    : bytes_(reinterpret_cast<const char*>(bytes.data())), ends_(ends), slots_(slots), mask_(slots.size() - 1) {
    std::int64_t previous_end = 0;
    for (const std::int64_t end : ends) {
        if (end < previous_end) throw std::invalid_argument("The end offsets of terms must not decrease.");
        previous_end = end;
    }
    if (bytes.size() != static_cast<std::size_t>(previous_end) + kPadding)
        throw std::invalid_argument("The terms have the wrong number of bytes.");
    if (!std::has_single_bit(slots.size())) throw std::invalid_argument("The number of slots must be a power of 2.");
    bool has_free_slot = false;
    for (const std::uint64_t slot : slots) {
        has_free_slot = has_free_slot || slot == 0;
        const auto number = static_cast<std::uint32_t>(slot);
        if (slot != 0 && (number == 0 || number > ends.size()))
            throw std::invalid_argument("A slot refers to a term that does not exist.");
    }
    if (!has_free_slot) throw std::invalid_argument("The hash table must have a free slot.");
}

std::int64_t Vocabulary::find(const char* term, std::size_t size, std::uint64_t hash) const {
    const std::uint64_t slot =
        probe(slots_, hash, [&](std::uint32_t number) { return (*this)[number] == std::string_view(term, size); });
    return static_cast<std::int64_t>(static_cast<std::uint32_t>(slots_[slot])) - 1;
}

VocabularyArrays VocabularyArrays::from_sorted(std::span<const HashedTerm> sorted, int threads) {
    constexpr std::int64_t kTermsPerTask = 4096;
    constexpr std::size_t kPrefetchDistance = 16;
    VocabularyArrays out;
    if (sorted.size() >= std::numeric_limits<std::int32_t>::max())
        throw std::length_error("There are too many terms; the maximum is 2147483646.");
    out.ends.reserve(sorted.size());
    std::int64_t end = 0;
    for (const HashedTerm& term : sorted) out.ends.push_back(end += static_cast<std::int64_t>(term.text.size()));
    out.bytes.resize(static_cast<std::size_t>(end) + Vocabulary::kPadding);
    parallel_each(std::ssize(sorted), kTermsPerTask, threads, nullptr, [&](int, std::int64_t number) {
        const std::string_view text = sorted[number].text;
        std::copy(text.begin(), text.end(), out.bytes.begin() + out.ends[number] - std::ssize(text));
    });
    out.slots.resize(slots_for(sorted.size()));
    for (std::size_t number = 0; number < sorted.size(); ++number) {
        if (number + kPrefetchDistance < sorted.size())
            __builtin_prefetch(&out.slots[sorted[number + kPrefetchDistance].hash & (out.slots.size() - 1)], 1);
        const std::uint64_t hash = sorted[number].hash;
        out.slots[probe(out.slots, hash, never_equal)] = make_slot(hash, number);
    }
    return out;
}

VocabularyArrays VocabularyArrays::from_sorted(const std::vector<std::string>& sorted) {
    std::vector<HashedTerm> terms;
    std::string padded;
    for (const std::string& text : sorted) {
        padded.assign(text).append(Vocabulary::kPadding, '\0');
        terms.push_back({text, hash_term(padded.data(), text.size())});
    }
    return from_sorted(terms);
}

void TermTable::grow() {
    std::vector<std::uint64_t> new_slots(std::max<std::size_t>(kFirstSlots, 2 * slots_for(count_ + 1)));
    for (const Slab& slab : slabs_)
        for (std::size_t offset = 0; offset < slab.used;) {
            const Record& record = *reinterpret_cast<const Record*>(slab.words.get() + offset);
            new_slots[probe(new_slots, record.hash, never_equal)] = make_slot(record.hash, slab.first + offset);
            offset += words_for(record.size);
        }
    slots_ = std::move(new_slots);
}

// Allocates memory for `words` words after all existing records and returns its index.
std::size_t TermTable::allocate(std::size_t words) {
    if (slabs_.empty() || slabs_.back().used + words > slabs_.back().size) {
        const std::size_t size = (words + kSlabWords - 1) / kSlabWords * kSlabWords;
        const std::size_t first = slab_starts_.size() * kSlabWords;
        if (first + size >= std::numeric_limits<std::uint32_t>::max())
            throw std::length_error("The terms exceed the limit of 32 GiB per table.");
        auto memory = std::make_unique_for_overwrite<std::uint64_t[]>(size);
        for (std::size_t offset = 0; offset < size; offset += kSlabWords) slab_starts_.push_back(memory.get() + offset);
        slabs_.push_back({std::move(memory), first, 0, size});
    }
    return slabs_.back().first + slabs_.back().used;
}

TermTable::Record& TermTable::find(const char* term, std::size_t size, std::uint64_t hash) {
    if (2 * count_ >= slots_.size()) grow();
    const auto record_at = [&](std::size_t index) { return reinterpret_cast<Record*>(word_at(index)); };
    const std::uint64_t slot = probe(slots_, hash, [&](std::uint32_t index) {
        const Record& record = *record_at(index);
        return record.hash == hash && record.size == size && std::memcmp(record.bytes(), term, size) == 0;
    });
    if (slots_[slot] != 0) return *record_at(static_cast<std::uint32_t>(slots_[slot]) - 1);
    const std::size_t index = allocate(words_for(size));
    std::uint64_t* words = word_at(index);
    Record& record = *new (words) Record{hash, static_cast<std::uint32_t>(count_), static_cast<std::uint32_t>(size)};
    std::memcpy(words + sizeof(Record) / 8, term, size);
    slots_[slot] = make_slot(hash, index);
    slabs_.back().used += words_for(size);
    ++count_;
    return record;
}

}  // namespace carya
