// Sets of terms: one that never changes and lies in arrays as they are saved, and one that grows while texts are read.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carya {

// Of `size` bytes, from memory that can be read up to eight bytes beyond: h = size, and for every eight bytes w, the
// last ones filled up with zeros, h = fold(h ^ w), where fold(x) is the upper half of x * K xor the lower one.
inline std::uint64_t hash_term(const char* bytes, std::size_t size) {
    constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15ULL;
    __extension__ using Wide = unsigned __int128;
    std::uint64_t hash = size;
    const auto take = [&](std::uint64_t word) {
        const Wide product = static_cast<Wide>(hash ^ word) * kFactor;
        hash = static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
    };
    std::uint64_t word;
    for (; size >= sizeof word; size -= sizeof word, bytes += sizeof word) {
        std::memcpy(&word, bytes, sizeof word);
        take(word);
    }
    if (size > 0) {
        std::memcpy(&word, bytes, sizeof word);
        take(word & ((std::uint64_t{1} << 8 * size) - 1));
    }
    return hash;
}

// The bucket of a term: |MurmurHash3 x86 32 with seed 0| mod buckets, as scikit-learn's hashing vectorizer has it.
std::int64_t bucket_of(std::string_view term, std::int64_t buckets);

// Terms in ascending order of their bytes, numbered so, with a table to find them: a slot is 0 or holds the upper half
// of a term's hash above one more than its number, at the first free place from the hash on.
class Terms {
public:
    static constexpr std::size_t kPadding = 8;

    Terms() = default;
    // Throws std::invalid_argument unless ends grow within the bytes, which have kPadding more, and slots are a power
    // of two of which some are free and the others hold terms.
    Terms(std::span<const std::uint8_t> bytes, std::span<const std::int64_t> ends,
          std::span<const std::uint64_t> slots);

    std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
    std::string_view operator[](std::int64_t term) const {
        const std::int64_t begin = term == 0 ? 0 : ends_[term - 1];
        return {bytes_ + begin, static_cast<std::size_t>(ends_[term] - begin)};
    }

    // The number of a term, or -1; eight bytes can be read from any of it.
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

// The arrays of a Terms.
struct TermArrays {
    std::vector<std::uint8_t> bytes;
    std::vector<std::int64_t> ends;
    std::vector<std::uint64_t> slots;

    // From distinct terms in ascending order.
    static TermArrays of(std::span<const HashedTerm> sorted, int threads = 1);
    static TermArrays of(const std::vector<std::string>& sorted);
    Terms view() const { return {bytes, ends, slots}; }
};

// Grows. Terms are numbered as they come. A term and all that is kept of it lie side by side, so that to count it costs
// two places in memory: its slot and its record.
class TermTable {
public:
    struct Record {
        std::uint64_t hash;
        std::uint32_t number;
        std::uint32_t size;
        std::uint32_t texts = 0;
        std::uint32_t total = 0;
        std::uint32_t last = 0;   // the last text that had it, counted from 1
        std::uint32_t place = 0;  // of its count in that text

        const char* bytes() const { return reinterpret_cast<const char*>(this + 1); }
        std::string_view text() const { return {bytes(), size}; }
    };

    // The record of a term, new or not; it never moves. Throws std::length_error when there are too many.
    Record& find(const char* term, std::size_t size, std::uint64_t hash);
    std::size_t size() const { return count_; }

    // Calls body(record) for all terms in the order of their numbers.
    template <class Body>
    void each(const Body& body) const {
        for (const Chunk& chunk : chunks_)
            for (std::size_t at = 0; at < chunk.used;) {
                const Record& record = *reinterpret_cast<const Record*>(chunk.words.get() + at);
                body(record);
                at += words_for(record.size);
            }
    }

    // Ask for the memory that find() will need: of the slot first, then of the record it names.
    void prefetch_slot(std::uint64_t hash) const {
        if (!slots_.empty()) __builtin_prefetch(slots_.data() + (hash & (slots_.size() - 1)));
    }
    void prefetch_record(std::uint64_t hash) const {
        const std::uint64_t slot = slots_.empty() ? 0 : slots_[hash & (slots_.size() - 1)];
        if (slot == 0) return;
        const std::uint64_t* record = place(static_cast<std::uint32_t>(slot) - 1);
        __builtin_prefetch(record, 1);
        __builtin_prefetch(record + 7, 1);
    }

private:
    // Records lie in chunks that never move. Chunk c has the places from c * kChunk on; a longer one than that, for a
    // long term, takes the places of several.
    struct Chunk {
        std::unique_ptr<std::uint64_t[]> words;
        std::size_t first;
        std::size_t used;
        std::size_t size;
    };
    static constexpr std::size_t kChunk = std::size_t{1} << 17;

    static std::size_t words_for(std::size_t size) { return (sizeof(Record) + size + 7) / 8; }
    std::uint64_t* place(std::size_t at) const { return starts_[at / kChunk] + at % kChunk; }
    void grow();
    std::size_t make_room(std::size_t words);

    std::vector<std::uint64_t> slots_;  // as those of Terms, with the place of a record for its number
    std::vector<Chunk> chunks_;
    std::vector<std::uint64_t*> starts_;  // of the places of each chunk
    std::size_t count_ = 0;
};

}  // namespace carya
