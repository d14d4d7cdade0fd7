#include "counter.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace carya {

namespace {

constexpr std::int64_t kTextsPerTask = 64;
constexpr std::int64_t kRowsPerTask = 256;
constexpr std::size_t kAhead = 16;
constexpr std::size_t kMostReserved = std::size_t{1} << 24;

}  // namespace

TermCounter::TermCounter(std::vector<TextPart> parts, bool keep_rows, int threads)
    : parts_(std::move(parts)), keep_rows_(keep_rows), threads_(threads), places_(parts_.size()) {
    for (int w = 0; w < threads; ++w) {
        Worker& worker = workers_.emplace_back();
        for (const TextPart& part : parts_) {
            worker.readers.emplace_back(part.analysis);
            worker.bucket_texts.emplace_back(static_cast<std::size_t>(part.buckets));
        }
        worker.tables.resize(parts_.size());
        worker.items.resize(parts_.size());
    }
}

void TermCounter::add(std::span<const std::string_view> texts, Monitor* monitor) {
    const std::int64_t first = texts_;
    const auto count = static_cast<std::int64_t>(texts.size());
    if (count > std::numeric_limits<std::int32_t>::max() - first) throw std::length_error("too many texts");
    if (monitor) monitor->total = static_cast<std::uint64_t>(count);
    if (keep_rows_) {
        for (auto& places : places_) places.resize(static_cast<std::size_t>(first + count));
        // Memory that is not used is not taken: better too much than to move it all again and again.
        std::size_t bytes = 0;
        for (const std::string_view text : texts) bytes += text.size();
        for (Worker& worker : workers_)
            for (std::size_t part = 0; part < parts_.size(); ++part) {
                const auto runs =
                    static_cast<std::size_t>(parts_[part].analysis.max_n - parts_[part].analysis.min_n + 1);
                const std::size_t units = parts_[part].analysis.unit == Unit::word ? bytes / 6 : bytes;
                const std::size_t expected = std::min(runs * units / workers_.size(), kMostReserved);
                std::vector<Item>& items = worker.items[part];
                if (items.size() + expected > items.capacity())
                    items.reserve(std::max(items.size() + expected, 2 * items.capacity()));
            }
    }
    parallel_each(count, kTextsPerTask, threads_, monitor, [&](int w, std::int64_t i) {
        Worker& worker = workers_[w];
        ++worker.texts;
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            worker.readers[part].read(texts[i], first + i);
            std::vector<Item>& items = worker.items[part];
            if (!keep_rows_) items.clear();
            const std::size_t begin = items.size();
            if (parts_[part].buckets > 0)
                count_buckets(worker, part);
            else
                count_terms(worker, part);
            if (keep_rows_) places_[part][first + i] = {w, begin, items.size()};
        }
    });
    texts_ += count;
}

void TermCounter::count_terms(Worker& worker, std::size_t part) {
    const Reader& reader = worker.readers[part];
    const char* letters = reader.letters().data();
    TermTable& table = worker.tables[part];
    std::vector<Item>& items = worker.items[part];
    const std::size_t begin = items.size();
    worker.terms.clear();
    worker.hashes.clear();
    reader.each([&](const Term& term) {
        worker.terms.push_back(term);
        worker.hashes.push_back(hash_term(letters + term.begin, term.size));
        table.prefetch_slot(worker.hashes.back());
    });
    for (std::size_t i = 0; i < worker.terms.size(); ++i) {
        if (i + kAhead < worker.terms.size()) table.prefetch_record(worker.hashes[i + kAhead]);
        const Term& term = worker.terms[i];
        TermTable::Record& record = table.find(letters + term.begin, term.size, worker.hashes[i]);
        ++record.total;
        if (record.last == worker.texts) {
            ++items[begin + record.place].count;
            continue;
        }
        record.last = worker.texts;
        record.place = static_cast<std::uint32_t>(items.size() - begin);
        ++record.texts;
        items.push_back({record.number, 1});
    }
}

void TermCounter::count_buckets(Worker& worker, std::size_t part) {
    const Reader& reader = worker.readers[part];
    std::vector<Item>& items = worker.items[part];
    worker.buckets.clear();
    reader.each([&](const Term& term) {
        const std::string_view text = reader.letters().substr(term.begin, term.size);
        worker.buckets.push_back(static_cast<std::uint32_t>(bucket_of(text, parts_[part].buckets)));
    });
    std::sort(worker.buckets.begin(), worker.buckets.end());
    for (std::size_t i = 0; i < worker.buckets.size(); ++i) {
        const std::uint32_t bucket = worker.buckets[i];
        if (i > 0 && worker.buckets[i - 1] == bucket) {
            ++items.back().count;
            continue;
        }
        items.push_back({bucket, 1});
        ++worker.bucket_texts[part][bucket];
    }
}

namespace {

// Terms of all workers with equal texts made one. Those of a shard are told by the upper bits of their hashes, so that
// shards can be worked on by several threads.
constexpr int kShardBits = 6;
constexpr std::int64_t kShards = 1 << kShardBits;

std::int64_t shard_of(std::uint64_t hash) { return static_cast<std::int64_t>(hash >> (64 - kShardBits)); }

struct Merged {
    const TermTable::Record* record;  // the first of them
    std::uint64_t total;
    std::uint32_t texts;
    std::int32_t feature = -1;
};

struct Shard {
    std::vector<Merged> terms;
    std::vector<std::vector<const TermTable::Record*>> from;  // by worker: its terms of this shard
    std::vector<std::vector<std::uint32_t>> to;               // and which of `terms` each of them is
};

void merge(Shard& shard) {
    std::size_t most = 0;
    for (const auto& from : shard.from) most += from.size();
    shard.terms.reserve(most);
    std::vector<std::uint32_t> slots(std::bit_ceil(2 * most + 1));
    const std::uint64_t mask = slots.size() - 1;
    for (std::size_t w = 0; w < shard.from.size(); ++w) {
        shard.to[w].reserve(shard.from[w].size());
        const std::vector<const TermTable::Record*>& from = shard.from[w];
        for (std::size_t i = 0; i < from.size(); ++i) {
            if (i + kAhead < from.size()) __builtin_prefetch(from[i + kAhead]);
            const TermTable::Record* record = from[i];
            std::uint64_t at = record->hash & mask;
            for (; slots[at] != 0; at = (at + 1) & mask) {
                const TermTable::Record& known = *shard.terms[slots[at] - 1].record;
                if (known.hash == record->hash && known.text() == record->text()) break;
            }
            if (slots[at] == 0) {
                shard.terms.push_back({record, 0, 0});
                slots[at] = static_cast<std::uint32_t>(shard.terms.size());
            }
            Merged& merged = shard.terms[slots[at] - 1];
            merged.total += record->total;
            merged.texts += record->texts;
            shard.to[w].push_back(slots[at] - 1);
        }
    }
}

// A term to be sorted by its bytes, most of the time by the first sixteen of them alone.
struct Key {
    std::uint64_t head[2] = {};
    Merged* term;

    explicit Key(Merged& merged) : term(&merged) {
        const std::string_view text = merged.record->text();
        std::memcpy(head, text.data(), std::min(text.size(), sizeof head));
        for (std::uint64_t& half : head) half = __builtin_bswap64(half);
    }
    std::string_view text() const { return term->record->text(); }
    bool operator<(const Key& other) const {
        if (head[0] != other.head[0]) return head[0] < other.head[0];
        return head[1] != other.head[1] ? head[1] < other.head[1] : text() < other.text();
    }
};

void sort_keys(std::vector<Key>& keys, int threads) {
    const auto bound = [&](std::int64_t part) {
        return keys.begin() + static_cast<std::ptrdiff_t>(keys.size()) * part / threads;
    };
    parallel_for(threads, threads, nullptr, [&](int, std::int64_t part) { std::sort(bound(part), bound(part + 1)); });
    for (std::int64_t part = 1; part < threads; ++part) std::inplace_merge(keys.begin(), bound(part), bound(part + 1));
}

}  // namespace

TermCounter::Features TermCounter::choose(std::size_t part, const TermLimits& limits, std::int64_t first,
                                          Learned& learned) {
    Features features(workers_.size());
    if (parts_[part].buckets > 0) {
        const auto buckets = static_cast<std::size_t>(parts_[part].buckets);
        learned.texts.resize(static_cast<std::size_t>(first) + buckets);
        learned.terms.emplace_back();
        for (std::size_t w = 0; w < workers_.size(); ++w) {
            features[w].resize(buckets);
            for (std::size_t b = 0; b < buckets; ++b) {
                features[w][b] = static_cast<std::int32_t>(first + static_cast<std::int64_t>(b));
                learned.texts[first + b] += workers_[w].bucket_texts[part][b];
            }
        }
        return features;
    }

    std::vector<const TermTable*> tables;
    for (const Worker& worker : workers_) tables.push_back(&worker.tables[part]);
    std::vector<Shard> shards(kShards);
    for (Shard& shard : shards) {
        shard.from.resize(tables.size());
        shard.to.resize(tables.size());
    }
    parallel_for(std::ssize(tables), threads_, nullptr, [&](int, std::int64_t w) {
        tables[w]->each(
            [&](const TermTable::Record& record) { shards[shard_of(record.hash)].from[w].push_back(&record); });
    });
    std::vector<std::vector<Key>> kept(kShards);
    parallel_for(kShards, threads_, nullptr, [&](int, std::int64_t s) {
        merge(shards[s]);
        for (Merged& term : shards[s].terms) {
            const auto texts = static_cast<double>(term.texts);
            if (texts >= limits.min_texts && texts <= limits.max_texts) kept[s].emplace_back(term);
        }
    });
    std::vector<Key> keys;
    for (const std::vector<Key>& some : kept) keys.insert(keys.end(), some.begin(), some.end());
    sort_keys(keys, threads_);
    const auto wanted = static_cast<std::size_t>(limits.max_features);
    if (wanted > 0 && keys.size() > wanted) {
        const auto more = [&](const Key& a, const Key& b) {
            const std::uint64_t left = limits.binary ? a.term->texts : a.term->total;
            const std::uint64_t right = limits.binary ? b.term->texts : b.term->total;
            return left != right ? left > right : a < b;
        };
        std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(wanted), keys.end(), more);
        keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(wanted), keys.end());
        sort_keys(keys, threads_);
    }
    std::vector<HashedTerm> sorted(keys.size());
    learned.texts.resize(static_cast<std::size_t>(first) + keys.size());
    parallel_each(std::ssize(keys), kRowsPerTask, threads_, nullptr, [&](int, std::int64_t i) {
        Merged& term = *keys[i].term;
        term.feature = static_cast<std::int32_t>(first + i);
        sorted[i] = {term.record->text(), term.record->hash};
        learned.texts[first + i] = term.texts;
    });
    learned.terms.push_back(TermArrays::of(sorted, threads_));

    parallel_for(std::ssize(tables), threads_, nullptr, [&](int, std::int64_t w) {
        features[w].resize(tables[w]->size());
        for (const Shard& shard : shards)
            for (std::size_t i = 0; i < shard.from[w].size(); ++i)
                features[w][shard.from[w][i]->number] = shard.terms[shard.to[w][i]].feature;
    });
    return features;
}

Csr TermCounter::rows(const std::vector<Features>& features, std::int64_t cols) const {
    Csr out;
    out.cols = cols;
    out.indptr.assign(static_cast<std::size_t>(texts_) + 1, 0);
    const auto each_item = [&](std::int64_t row, std::size_t part, const auto& body) {
        const Place& place = places_[part][row];
        const std::vector<std::int32_t>& feature = features[part][place.worker];
        const std::vector<Item>& items = workers_[place.worker].items[part];
        for (std::size_t i = place.begin; i < place.end; ++i)
            if (feature[items[i].term] >= 0) body(feature[items[i].term], items[i].count);
    };
    parallel_each(texts_, kRowsPerTask, threads_, nullptr, [&](int, std::int64_t row) {
        for (std::size_t part = 0; part < parts_.size(); ++part)
            each_item(row, part, [&](std::int32_t, std::uint32_t) { ++out.indptr[row + 1]; });
    });
    for (std::int64_t row = 0; row < texts_; ++row) out.indptr[row + 1] += out.indptr[row];
    out.indices.resize(static_cast<std::size_t>(out.indptr.back()));
    out.values.resize(out.indices.size());
    std::vector<std::vector<std::uint64_t>> scratch(static_cast<std::size_t>(threads_));
    parallel_each(texts_, kRowsPerTask, threads_, nullptr, [&](int w, std::int64_t row) {
        std::vector<std::uint64_t>& entries = scratch[w];
        entries.clear();
        for (std::size_t part = 0; part < parts_.size(); ++part)
            each_item(row, part, [&](std::int32_t feature, std::uint32_t count) {
                entries.push_back(static_cast<std::uint64_t>(feature) << 32 | count);
            });
        std::sort(entries.begin(), entries.end());
        auto at = static_cast<std::size_t>(out.indptr[row]);
        for (const std::uint64_t entry : entries) {
            out.indices[at] = static_cast<std::int32_t>(entry >> 32);
            out.values[at++] = static_cast<float>(static_cast<std::uint32_t>(entry));
        }
    });
    return out;
}

TermCounter::Learned TermCounter::learn(const TermLimits& limits) {
    Learned learned;
    std::vector<Features> features;
    for (std::size_t part = 0; part < parts_.size(); ++part)
        features.push_back(choose(part, limits, static_cast<std::int64_t>(learned.texts.size()), learned));
    const auto cols = static_cast<std::int64_t>(learned.texts.size());
    if (cols > std::numeric_limits<std::int32_t>::max()) throw std::length_error("too many features");
    if (keep_rows_) learned.counts = rows(features, cols);
    return learned;
}

}  // namespace carya
