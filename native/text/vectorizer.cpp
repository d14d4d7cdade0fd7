#include "vectorizer.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace carya {

Vectorizer::Vectorizer(std::vector<FittedAnalyzer> analyzers, std::span<const float> idf, Weighting weighting)
    : analyzers_(std::move(analyzers)), idf_(idf), weighting_(weighting) {
    for (const FittedAnalyzer& fitted : analyzers_) n_features_ += fitted.n_features();
    if (n_features_ > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("There are too many features; the maximum is 2147483647.");
    if (!idf.empty() && std::ssize(idf) != n_features_)
        throw std::invalid_argument("idf must have one entry for each of the " + std::to_string(n_features_) +
                                    " features.");
}

template <class Body>
void Vectorizer::for_each_feature(Tokenizer& tokenizer, const FittedAnalyzer& fitted, std::int64_t first_feature,
                                  std::vector<std::uint64_t>& hashes, const Body& body) const {
    const char* text = tokenizer.normalized().data();
    if (fitted.analyzer.n_buckets > 0) {
        tokenizer.for_each_term([&](const TermSpan& term) {
            body(first_feature + hash_bucket({text + term.begin, term.size}, fitted.analyzer.n_buckets), term);
        });
        return;
    }
    hashes.clear();
    tokenizer.for_each_term([&](const TermSpan& term) {
        hashes.push_back(hash_term(text + term.begin, term.size));
        fitted.vocabulary.prefetch(hashes.back());
    });
    std::size_t i = 0;
    tokenizer.for_each_term([&](const TermSpan& term) {
        const std::int64_t number = fitted.vocabulary.find(text + term.begin, term.size, hashes[i++]);
        if (number >= 0) body(first_feature + number, term);
    });
}

Csr Vectorizer::transform(std::span<const std::string_view> texts, int threads, Monitor* monitor) const {
    struct Worker {
        std::vector<Tokenizer> tokenizers;
        std::vector<std::uint64_t> hashes;
        std::vector<std::uint32_t> features;    // twice the feature index, plus 1 if the term is in the lead
        std::vector<std::uint8_t> lead_counts;  // of the current row; empty if its lead has no weight
        RawVector<std::int32_t> indices;
        RawVector<float> values;
    };
    struct RowLocation {
        int worker;
        std::size_t begin;
    };
    const auto count = static_cast<std::int64_t>(texts.size());
    if (monitor) monitor->total = static_cast<std::uint64_t>(count);
    std::vector<Worker> workers(static_cast<std::size_t>(threads));
    for (Worker& worker : workers)
        for (const FittedAnalyzer& fitted : analyzers_) worker.tokenizers.emplace_back(fitted.analyzer.options);
    std::vector<RowLocation> locations(texts.size());
    Csr out;
    out.cols = n_features_;
    out.indptr.assign(texts.size() + 1, 0);
    parallel_each(count, kTextsPerTask, threads, monitor, [&](int w, std::int64_t row) {
        Worker& worker = workers[w];
        worker.features.clear();
        worker.lead_counts.clear();
        const std::uint32_t lead_end = find_lead_end(texts[row], weighting_.active_lead_words());
        std::int64_t first_feature = 0;
        for (std::size_t p = 0; p < analyzers_.size(); ++p) {
            const FittedAnalyzer& fitted = analyzers_[p];
            worker.tokenizers[p].read(texts[row], row);
            for_each_feature(worker.tokenizers[p], fitted, first_feature, worker.hashes,
                             [&](std::int64_t feature, const TermSpan& term) {
                                 worker.features.push_back(static_cast<std::uint32_t>(feature) << 1 |
                                                           static_cast<std::uint32_t>(in_lead(term, lead_end)));
                             });
            first_feature += fitted.n_features();
        }
        std::sort(worker.features.begin(), worker.features.end());
        const std::size_t begin = worker.indices.size();
        for (std::size_t i = 0; i < worker.features.size(); ++i) {
            if (i > 0 && worker.features[i] >> 1 == worker.features[i - 1] >> 1) {
                worker.values.back() += 1.0F;
            } else {
                worker.indices.push_back(static_cast<std::int32_t>(worker.features[i] >> 1));
                worker.values.push_back(1.0F);
                if (lead_end > 0) worker.lead_counts.push_back(0);
            }
            if ((worker.features[i] & 1) != 0 && worker.lead_counts.back() < kMaxLeadCount) ++worker.lead_counts.back();
        }
        const std::size_t size = worker.indices.size() - begin;
        weight_row({worker.indices.data() + begin, size}, {worker.values.data() + begin, size}, worker.lead_counts,
                   idf_, weighting_);
        locations[row] = {w, begin};
        out.indptr[row + 1] = static_cast<std::int64_t>(size);
    });
    for (std::int64_t row = 0; row < count; ++row) out.indptr[row + 1] += out.indptr[row];
    if (threads == 1 || count == 1) {  // the worker's arrays are already the result
        out.indices = std::move(workers[locations.empty() ? 0 : locations[0].worker].indices);
        out.values = std::move(workers[locations.empty() ? 0 : locations[0].worker].values);
        return out;
    }
    out.indices.resize(static_cast<std::size_t>(out.indptr.back()));
    out.values.resize(out.indices.size());
    parallel_each(count, kTextRowsPerTask, threads, nullptr, [&](int, std::int64_t row) {
        const Worker& worker = workers[locations[row].worker];
        const std::int64_t size = out.indptr[row + 1] - out.indptr[row];
        std::copy_n(worker.indices.data() + locations[row].begin, size, out.indices.data() + out.indptr[row]);
        std::copy_n(worker.values.data() + locations[row].begin, size, out.values.data() + out.indptr[row]);
    });
    return out;
}

std::vector<Vectorizer::TermOccurrence> Vectorizer::locate_terms(std::string_view text) const {
    std::vector<TermOccurrence> out;
    std::vector<std::uint64_t> hashes;
    std::int64_t first_feature = 0;
    for (const FittedAnalyzer& fitted : analyzers_) {
        Tokenizer tokenizer(fitted.analyzer.options);
        tokenizer.read(text, 0);
        for_each_feature(tokenizer, fitted, first_feature, hashes, [&](std::int64_t feature, const TermSpan& term) {
            out.push_back({static_cast<std::int32_t>(feature), term.char_begin, term.char_end,
                           std::string(tokenizer.normalized().substr(term.begin, term.size))});
        });
        first_feature += fitted.n_features();
    }
    return out;
}

}  // namespace carya
