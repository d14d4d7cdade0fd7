#include "term_counter.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace carya {

namespace {

constexpr std::int64_t kCountedRowsPerTask = 256;
constexpr std::size_t kPrefetchDistance = 16;
constexpr std::size_t kMaxReserved = std::size_t{1} << 24;

}  // namespace

TermCounter::TermCounter(std::vector<TextAnalyzer> analyzers, bool keep_rows, int lead_words, int threads)
    : analyzers_(std::move(analyzers)),
      keep_rows_(keep_rows),
      lead_words_(lead_words),
      threads_(threads),
      row_locations_(analyzers_.size()) {
    for (int w = 0; w < threads; ++w) {
        Worker& worker = workers_.emplace_back();
        for (const TextAnalyzer& analyzer : analyzers_) {
            worker.tokenizers.emplace_back(analyzer.options);
            worker.bucket_dfs.emplace_back(static_cast<std::size_t>(analyzer.n_buckets));
        }
        worker.tables.resize(analyzers_.size());
        worker.items.resize(analyzers_.size());
    }
}

void TermCounter::add(std::span<const std::string_view> texts, Monitor* monitor) {
    const std::int64_t first = n_texts_;
    const auto count = static_cast<std::int64_t>(texts.size());
    if (count > std::numeric_limits<std::int32_t>::max() - first)
        throw std::length_error("There are too many texts; the maximum is 2147483647.");
    if (monitor) monitor->total = static_cast<std::uint64_t>(count);
    if (keep_rows_) {
        for (auto& locations : row_locations_) locations.resize(static_cast<std::size_t>(first + count));
        // Memory that is never written to uses no physical memory, so a generous reservation is cheaper than
        // reallocations.
        std::size_t bytes = 0;
        for (const std::string_view text : texts) bytes += text.size();
        for (Worker& worker : workers_)
            for (std::size_t analyzer = 0; analyzer < analyzers_.size(); ++analyzer) {
                const auto runs = static_cast<std::size_t>(analyzers_[analyzer].options.max_n -
                                                           analyzers_[analyzer].options.min_n + 1);
                const std::size_t units = analyzers_[analyzer].options.unit == TokenUnit::word ? bytes / 6 : bytes;
                const std::size_t expected = std::min(runs * units / workers_.size(), kMaxReserved);
                RawVector<TermCount>& items = worker.items[analyzer];
                if (items.size() + expected > items.capacity())
                    items.reserve(std::max(items.size() + expected, 2 * items.capacity()));
            }
    }
    parallel_each(count, kTextsPerTask, threads_, monitor, [&](int w, std::int64_t i) {
        Worker& worker = workers_[w];
        ++worker.n_texts;
        const std::uint32_t lead_end = find_lead_end(texts[i], lead_words_);
        for (std::size_t analyzer = 0; analyzer < analyzers_.size(); ++analyzer) {
            worker.tokenizers[analyzer].read(texts[i], first + i);
            RawVector<TermCount>& items = worker.items[analyzer];
            if (!keep_rows_) items.clear();
            const std::size_t begin = items.size();
            if (analyzers_[analyzer].n_buckets > 0)
                count_buckets(worker, analyzer, lead_end);
            else
                count_terms(worker, analyzer, lead_end);
            if (keep_rows_) row_locations_[analyzer][first + i] = {w, begin, items.size()};
        }
    });
    n_texts_ += count;
}

void TermCounter::count_terms(Worker& worker, std::size_t analyzer, std::uint32_t lead_end) {
    const Tokenizer& tokenizer = worker.tokenizers[analyzer];
    const char* text = tokenizer.normalized().data();
    TermTable& table = worker.tables[analyzer];
    RawVector<TermCount>& items = worker.items[analyzer];
    const std::size_t begin = items.size();
    worker.terms.clear();
    worker.hashes.clear();
    tokenizer.for_each_term([&](const TermSpan& term) {
        worker.terms.push_back(term);
        worker.hashes.push_back(hash_term(text + term.begin, term.size));
        table.prefetch_slot(worker.hashes.back());
    });
    for (std::size_t i = 0; i < worker.terms.size(); ++i) {
        if (i + kPrefetchDistance < worker.terms.size()) table.prefetch_record(worker.hashes[i + kPrefetchDistance]);
        const TermSpan& term = worker.terms[i];
        TermTable::Record& record = table.find(text + term.begin, term.size, worker.hashes[i]);
        ++record.total;
        if (record.last_text == worker.n_texts) {
            items[begin + record.index_in_text].add(in_lead(term, lead_end));
            continue;
        }
        record.last_text = worker.n_texts;
        record.index_in_text = static_cast<std::uint32_t>(items.size() - begin);
        ++record.document_frequency;
        items.push_back({record.number, 0, 0});
        items.back().add(in_lead(term, lead_end));
    }
}

void TermCounter::count_buckets(Worker& worker, std::size_t analyzer, std::uint32_t lead_end) {
    const Tokenizer& tokenizer = worker.tokenizers[analyzer];
    RawVector<TermCount>& items = worker.items[analyzer];
    worker.bucket_ids.clear();
    tokenizer.for_each_term([&](const TermSpan& term) {
        const std::string_view text = tokenizer.normalized().substr(term.begin, term.size);
        const auto bucket = static_cast<std::uint32_t>(hash_bucket(text, analyzers_[analyzer].n_buckets));
        worker.bucket_ids.push_back(bucket << 1 | static_cast<std::uint32_t>(in_lead(term, lead_end)));
    });
    std::sort(worker.bucket_ids.begin(), worker.bucket_ids.end());
    for (std::size_t i = 0; i < worker.bucket_ids.size(); ++i) {
        const std::uint32_t bucket = worker.bucket_ids[i] >> 1;
        if (i == 0 || worker.bucket_ids[i - 1] >> 1 != bucket) {
            items.push_back({bucket, 0, 0});
            ++worker.bucket_dfs[analyzer][bucket];
        }
        items.back().add((worker.bucket_ids[i] & 1) != 0);
    }
}

namespace {

// Equal terms from different workers are merged. The upper bits of a term's hash determine its shard, and shards are
// merged in parallel.
constexpr int kShardBits = 6;
constexpr std::int64_t kShards = 1 << kShardBits;

std::int64_t shard_of(std::uint64_t hash) { return static_cast<std::int64_t>(hash >> (64 - kShardBits)); }

struct MergedTerm {
    const TermTable::Record* record;  // the first of the merged records
    std::uint64_t total;
    std::uint32_t document_frequency;
    std::int32_t feature = -1;
};

struct Shard {
    std::vector<MergedTerm> terms;
    std::vector<std::vector<const TermTable::Record*>> records;  // per worker: its terms in this shard
    std::vector<std::vector<std::uint32_t>> merged_ids;          // per worker: the index of each record in `terms`
};

void merge(Shard& shard) {
    std::size_t n_records = 0;
    for (const auto& records : shard.records) n_records += records.size();
    shard.terms.reserve(n_records);
    std::vector<std::uint32_t> slots(std::bit_ceil(2 * n_records + 1));
    const std::uint64_t mask = slots.size() - 1;
    for (std::size_t w = 0; w < shard.records.size(); ++w) {
        shard.merged_ids[w].reserve(shard.records[w].size());
        const std::vector<const TermTable::Record*>& records = shard.records[w];
        for (std::size_t i = 0; i < records.size(); ++i) {
            if (i + kPrefetchDistance < records.size()) __builtin_prefetch(records[i + kPrefetchDistance]);
            const TermTable::Record* record = records[i];
            std::uint64_t slot = record->hash & mask;
            for (; slots[slot] != 0; slot = (slot + 1) & mask) {
                const TermTable::Record& known = *shard.terms[slots[slot] - 1].record;
                if (known.hash == record->hash && known.text() == record->text()) break;
            }
            if (slots[slot] == 0) {
                shard.terms.push_back({record, 0, 0});
                slots[slot] = static_cast<std::uint32_t>(shard.terms.size());
            }
            MergedTerm& merged = shard.terms[slots[slot] - 1];
            merged.total += record->total;
            merged.document_frequency += record->document_frequency;
            shard.merged_ids[w].push_back(slots[slot] - 1);
        }
    }
}

// Sort key of a term. The first 16 bytes decide most comparisons; the complete term is compared only if they are equal.
struct SortKey {
    std::uint64_t head[2] = {};
    MergedTerm* term;

    explicit SortKey(MergedTerm& merged) : term(&merged) {
        const std::string_view text = merged.record->text();
        std::memcpy(head, text.data(), std::min(text.size(), sizeof head));
        for (std::uint64_t& half : head) half = __builtin_bswap64(half);
    }
    std::string_view text() const { return term->record->text(); }
    bool operator<(const SortKey& other) const {
        if (head[0] != other.head[0]) return head[0] < other.head[0];
        return head[1] != other.head[1] ? head[1] < other.head[1] : text() < other.text();
    }
};

void sort_keys(std::vector<SortKey>& keys, int threads) {
    const auto bound = [&](std::int64_t analyzer) {
        return keys.begin() + static_cast<std::ptrdiff_t>(keys.size()) * analyzer / threads;
    };
    parallel_for(threads, threads, nullptr,
                 [&](int, std::int64_t analyzer) { std::sort(bound(analyzer), bound(analyzer + 1)); });
    for (std::int64_t analyzer = 1; analyzer < threads; ++analyzer)
        std::inplace_merge(keys.begin(), bound(analyzer), bound(analyzer + 1));
}

}  // namespace

TermCounter::FeatureIds TermCounter::select_features(std::size_t analyzer, const VocabularyLimits& limits,
                                                     std::int64_t first, FittedVocabulary& fitted) {
    FeatureIds features(workers_.size());
    if (analyzers_[analyzer].n_buckets > 0) {
        const auto n_buckets = static_cast<std::size_t>(analyzers_[analyzer].n_buckets);
        fitted.document_frequencies.resize(static_cast<std::size_t>(first) + n_buckets);
        fitted.terms.emplace_back();
        for (std::size_t w = 0; w < workers_.size(); ++w) {
            features[w].resize(n_buckets);
            for (std::size_t b = 0; b < n_buckets; ++b) {
                features[w][b] = static_cast<std::int32_t>(first + static_cast<std::int64_t>(b));
                fitted.document_frequencies[first + b] += workers_[w].bucket_dfs[analyzer][b];
            }
        }
        return features;
    }

    std::vector<const TermTable*> tables;
    for (const Worker& worker : workers_) tables.push_back(&worker.tables[analyzer]);
    std::vector<Shard> shards(kShards);
    for (Shard& shard : shards) {
        shard.records.resize(tables.size());
        shard.merged_ids.resize(tables.size());
    }
    parallel_for(std::ssize(tables), threads_, nullptr, [&](int, std::int64_t w) {
        tables[w]->for_each(
            [&](const TermTable::Record& record) { shards[shard_of(record.hash)].records[w].push_back(&record); });
    });
    std::vector<std::vector<SortKey>> kept(kShards);
    parallel_for(kShards, threads_, nullptr, [&](int, std::int64_t s) {
        merge(shards[s]);
        for (MergedTerm& term : shards[s].terms) {
            const auto df = static_cast<double>(term.document_frequency);
            if (df >= limits.min_df && df <= limits.max_df) kept[s].emplace_back(term);
        }
    });
    std::vector<SortKey> keys;
    for (const std::vector<SortKey>& shard_keys : kept) keys.insert(keys.end(), shard_keys.begin(), shard_keys.end());
    sort_keys(keys, threads_);
    const auto max_features = static_cast<std::size_t>(limits.max_features);
    if (max_features > 0 && keys.size() > max_features) {
        const auto more_frequent = [&](const SortKey& a, const SortKey& b) {
            const std::uint64_t left = limits.binary ? a.term->document_frequency : a.term->total;
            const std::uint64_t right = limits.binary ? b.term->document_frequency : b.term->total;
            return left != right ? left > right : a < b;
        };
        std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(max_features), keys.end(),
                         more_frequent);
        keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(max_features), keys.end());
        sort_keys(keys, threads_);
    }
    std::vector<HashedTerm> sorted(keys.size());
    fitted.document_frequencies.resize(static_cast<std::size_t>(first) + keys.size());
    parallel_each(std::ssize(keys), kCountedRowsPerTask, threads_, nullptr, [&](int, std::int64_t i) {
        MergedTerm& term = *keys[i].term;
        term.feature = static_cast<std::int32_t>(first + i);
        sorted[i] = {term.record->text(), term.record->hash};
        fitted.document_frequencies[first + i] = term.document_frequency;
    });
    fitted.terms.push_back(VocabularyArrays::from_sorted(sorted, threads_));

    parallel_for(std::ssize(tables), threads_, nullptr, [&](int, std::int64_t w) {
        features[w].resize(tables[w]->size());
        for (const Shard& shard : shards)
            for (std::size_t i = 0; i < shard.records[w].size(); ++i)
                features[w][shard.records[w][i]->number] = shard.terms[shard.merged_ids[w][i]].feature;
    });
    return features;
}

void TermCounter::build_rows(const std::vector<FeatureIds>& features, std::int64_t cols,
                             FittedVocabulary& fitted) const {
    Csr& out = fitted.counts;
    out.cols = cols;
    out.indptr.assign(static_cast<std::size_t>(n_texts_) + 1, 0);
    const auto for_each_count = [&](std::int64_t row, std::size_t analyzer, const auto& body) {
        const RowLocation& location = row_locations_[analyzer][row];
        const std::vector<std::int32_t>& feature = features[analyzer][location.worker];
        const RawVector<TermCount>& items = workers_[location.worker].items[analyzer];
        for (std::size_t i = location.begin; i < location.end; ++i)
            if (feature[items[i].term] >= 0) body(feature[items[i].term], items[i]);
    };
    parallel_each(n_texts_, kCountedRowsPerTask, threads_, nullptr, [&](int, std::int64_t row) {
        for (std::size_t analyzer = 0; analyzer < analyzers_.size(); ++analyzer)
            for_each_count(row, analyzer, [&](std::int32_t, const TermCount&) { ++out.indptr[row + 1]; });
    });
    for (std::int64_t row = 0; row < n_texts_; ++row) out.indptr[row + 1] += out.indptr[row];
    out.indices.resize(static_cast<std::size_t>(out.indptr.back()));
    out.values.resize(out.indices.size());
    if (lead_words_ > 0) fitted.lead_counts.resize(out.indices.size());
    std::vector<std::vector<std::uint64_t>> scratch(static_cast<std::size_t>(threads_));
    parallel_each(n_texts_, kCountedRowsPerTask, threads_, nullptr, [&](int w, std::int64_t row) {
        std::vector<std::uint64_t>& entries = scratch[w];
        entries.clear();
        for (std::size_t analyzer = 0; analyzer < analyzers_.size(); ++analyzer)
            for_each_count(row, analyzer, [&](std::int32_t feature, const TermCount& item) {
                entries.push_back(static_cast<std::uint64_t>(feature) << 32 | item.count << 8 | item.lead_count);
            });
        std::sort(entries.begin(), entries.end());
        auto entry_index = static_cast<std::size_t>(out.indptr[row]);
        for (const std::uint64_t entry : entries) {
            out.indices[entry_index] = static_cast<std::int32_t>(entry >> 32);
            out.values[entry_index] = static_cast<float>(static_cast<std::uint32_t>(entry) >> 8);
            if (lead_words_ > 0) fitted.lead_counts[entry_index] = static_cast<std::uint8_t>(entry);
            ++entry_index;
        }
    });
}

TermCounter::FittedVocabulary TermCounter::fit(const VocabularyLimits& limits) {
    FittedVocabulary fitted;
    std::vector<FeatureIds> feature_ids;
    for (std::size_t analyzer = 0; analyzer < analyzers_.size(); ++analyzer)
        feature_ids.push_back(
            select_features(analyzer, limits, static_cast<std::int64_t>(fitted.document_frequencies.size()), fitted));
    const auto cols = static_cast<std::int64_t>(fitted.document_frequencies.size());
    if (cols > std::numeric_limits<std::int32_t>::max())
        throw std::length_error("There are too many features; the maximum is 2147483647.");
    if (keep_rows_) build_rows(feature_ids, cols, fitted);
    return fitted;
}

}  // namespace carya
