// Sets of terms: an immutable set that views saved arrays, and a growing set that is filled while texts are read.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carya {

// Returns a hash of `size` bytes. The memory must be readable up to 8 bytes past the end. The hash h starts as `size`;
// for each 8-byte word w, zero-padded at the end, h = fold(h ^ w), where fold(x) is the bitwise XOR of the two halves
// of the 128-bit product x * kMultiplier.
inline std::uint64_t hash_term(const char* bytes, std::size_t size) {
    constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
    __extension__ using Wide = unsigned __int128;
    std::uint64_t hash = size;
    const auto mix = [&](std::uint64_t word) {
        const Wide product = static_cast<Wide>(hash ^ word) * kMultiplier;
        hash = static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
    };
    std::uint64_t word;
    for (; size >= sizeof word; size -= sizeof word, bytes += sizeof word) {
        std::memcpy(&word, bytes, sizeof word);
        mix(word);
    }
    if (size > 0) {
        std::memcpy(&word, bytes, sizeof word);
        mix(word & ((std::uint64_t{1} << 8 * size) - 1));
    }
    return hash;
}

// Returns the bucket of a term: |MurmurHash3 x86 32-bit with seed 0| mod buckets, as in scikit-learn's
// HashingVectorizer.
std::int64_t hash_bucket(std::string_view term, std::int64_t buckets);

// Terms in ascending byte order, numbered 0, 1, …, with a hash table. A slot contains either 0 or the upper half of a
// term's hash combined with the term's number plus 1. Collisions are resolved by linear probing.
class Vocabulary {
public:
    static constexpr std::size_t kPadding = 8;

    Vocabulary() = default;
    // Throws std::invalid_argument unless the ends are non-decreasing, the terms are followed by kPadding bytes, the
    // number of slots is a power of 2, at least one slot is free, and all other slots refer to existing terms.
    Vocabulary(std::span<const std::uint8_t> bytes, std::span<const std::int64_t> ends,
               std::span<const std::uint64_t> slots);

    std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
    std::string_view operator[](std::int64_t term) const {
        const std::int64_t begin = term == 0 ? 0 : ends_[term - 1];
        return {bytes_ + begin, static_cast<std::size_t>(ends_[term] - begin)};
    }

    // Returns the number of a term, or -1 if it is not in the vocabulary. Memory must be readable up to 8 bytes beyond
    // the term.
    std::int64_t find(const char* term, std::size_t size) const { return find(term, size, hash_term(term, size)); }
    std::int64_t find(const char* term, std::size_t size, std::uint64_t hash) const;
    void prefetch(std::uint64_t hash) const { __builtin_prefetch(slots_.data() + (hash & mask_)); }

private:
    const char* bytes_ = nullptr;
    std::span<const std::int64_t> ends_;
    std::span<const std::uint64_t> slots_;
    std::uint64_t mask_ = 0;
};

struct HashedTerm {
    std::string_view text;
    std::uint64_t hash;
};

// The arrays that a Vocabulary views.
struct VocabularyArrays {
    std::vector<std::uint8_t> bytes;
    std::vector<std::int64_t> ends;
    std::vector<std::uint64_t> slots;

    // Builds the arrays from distinct terms in ascending order.
    static VocabularyArrays from_sorted(std::span<const HashedTerm> sorted, int threads = 1);
    static VocabularyArrays from_sorted(const std::vector<std::string>& sorted);
    Vocabulary view() const { return {bytes, ends, slots}; }
};

// A growing hash table of terms, which are numbered in order of insertion. A term is stored next to its counts, so
// counting it accesses only two memory locations: its slot and its record.
class TermTable {
public:
    struct Record {
        std::uint64_t hash;
        std::uint32_t number;
        std::uint32_t size;
        std::uint32_t document_frequency = 0;
        std::uint32_t total = 0;
        std::uint32_t last_text = 0;      // 1-based number of the last text that contains the term
        std::uint32_t index_in_text = 0;  // index of the term's count within that text

        const char* bytes() const { return reinterpret_cast<const char*>(this + 1); }
        std::string_view text() const { return {bytes(), size}; }
    };

    // Returns the record of a term. The record is created if necessary and never moves. Throws std::length_error if
    // there are too many terms.
    Record& find(const char* term, std::size_t size, std::uint64_t hash);
    std::size_t size() const { return count_; }

    // Calls body(record) for each term, in order of the term numbers.
    template <class Body>
    void for_each(const Body& body) const {
        for (const Slab& slab : slabs_)
            for (std::size_t offset = 0; offset < slab.used;) {
                const Record& record = *reinterpret_cast<const Record*>(slab.words.get() + offset);
                body(record);
                offset += words_for(record.size);
            }
    }

    // Prefetch the memory that find() will access: first the slot, then the record it refers to.
    void prefetch_slot(std::uint64_t hash) const {
        if (!slots_.empty()) __builtin_prefetch(slots_.data() + (hash & (slots_.size() - 1)));
    }
    void prefetch_record(std::uint64_t hash) const {
        const std::uint64_t slot = slots_.empty() ? 0 : slots_[hash & (slots_.size() - 1)];
        if (slot == 0) return;
        const std::uint64_t* record = word_at(static_cast<std::uint32_t>(slot) - 1);
        __builtin_prefetch(record, 1);
        __builtin_prefetch(record + 7, 1);
    }

private:
    // Records are stored in slabs that never move. Slab c starts at index c * kSlabWords; a larger slab for a long term
    // occupies the indices of several slabs.
    struct Slab {
        std::unique_ptr<std::uint64_t[]> words;
        std::size_t first;
        std::size_t used;
        std::size_t size;
    };
    static constexpr std::size_t kSlabWords = std::size_t{1} << 17;

    static std::size_t words_for(std::size_t size) { return (sizeof(Record) + size + 7) / 8; }
    std::uint64_t* word_at(std::size_t index) const { return slab_starts_[index / kSlabWords] + index % kSlabWords; }
    void grow();
    std::size_t allocate(std::size_t words);

    std::vector<std::uint64_t> slots_;  // as in Vocabulary, but with the index of a record instead of a term number
    std::vector<Slab> slabs_;
    std::vector<std::uint64_t*> slab_starts_;  // one entry per kSlabWords words
    std::size_t count_ = 0;
};

}  // namespace carya
