#include "vectorizer.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace carya {

namespace {

constexpr std::int64_t kTextsPerTask = 64;
constexpr std::int64_t kRowsPerTask = 256;

}  // namespace

Vectorizer::Vectorizer(std::vector<Part> parts, std::span<const float> idf, Weighting weighting)
    : parts_(std::move(parts)), idf_(idf), weighting_(weighting) {
    for (const Part& part : parts_) features_ += part.features();
    if (features_ > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("there are too many features");
    if (!idf.empty() && std::ssize(idf) != features_)
        throw std::invalid_argument("there must be an idf for each of " + std::to_string(features_) + " features");
}

template <class Body>
void Vectorizer::each_feature(Reader& reader, const Part& part, std::int64_t first, std::vector<std::uint64_t>& hashes,
                              const Body& body) const {
    const char* letters = reader.letters().data();
    if (part.part.buckets > 0) {
        reader.each([&](const Term& term) {
            body(first + bucket_of({letters + term.begin, term.size}, part.part.buckets), term);
        });
        return;
    }
    hashes.clear();
    reader.each([&](const Term& term) {
        hashes.push_back(hash_term(letters + term.begin, term.size));
        part.terms.prefetch(hashes.back());
    });
    std::size_t i = 0;
    reader.each([&](const Term& term) {
        const std::int64_t number = part.terms.find(letters + term.begin, term.size, hashes[i++]);
        if (number >= 0) body(first + number, term);
    });
}

Csr Vectorizer::transform(std::span<const std::string_view> texts, int threads, Monitor* monitor) const {
    struct Worker {
        std::vector<Reader> readers;
        std::vector<std::uint64_t> hashes;
        std::vector<std::int32_t> found;
        std::vector<std::int32_t> indices;
        std::vector<float> values;
    };
    struct Place {
        int worker;
        std::size_t begin;
    };
    const auto count = static_cast<std::int64_t>(texts.size());
    if (monitor) monitor->total = static_cast<std::uint64_t>(count);
    std::vector<Worker> workers(static_cast<std::size_t>(threads));
    for (Worker& worker : workers)
        for (const Part& part : parts_) worker.readers.emplace_back(part.part.analysis);
    std::vector<Place> places(texts.size());
    Csr out;
    out.cols = features_;
    out.indptr.assign(texts.size() + 1, 0);
    parallel_each(count, kTextsPerTask, threads, monitor, [&](int w, std::int64_t row) {
        Worker& worker = workers[w];
        worker.found.clear();
        std::int64_t first = 0;
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            const Part& part = parts_[p];
            worker.readers[p].read(texts[row], row);
            each_feature(worker.readers[p], part, first, worker.hashes, [&](std::int64_t feature, const Term&) {
                worker.found.push_back(static_cast<std::int32_t>(feature));
            });
            first += part.features();
        }
        std::sort(worker.found.begin(), worker.found.end());
        const std::size_t begin = worker.indices.size();
        for (std::size_t i = 0; i < worker.found.size(); ++i) {
            if (i > 0 && worker.found[i] == worker.found[i - 1]) {
                worker.values.back() += 1.0F;
                continue;
            }
            worker.indices.push_back(worker.found[i]);
            worker.values.push_back(1.0F);
        }
        const std::size_t size = worker.indices.size() - begin;
        weigh_row({worker.indices.data() + begin, size}, {worker.values.data() + begin, size}, idf_, weighting_);
        places[row] = {w, begin};
        out.indptr[row + 1] = static_cast<std::int64_t>(size);
    });
    for (std::int64_t row = 0; row < count; ++row) out.indptr[row + 1] += out.indptr[row];
    if (threads == 1 || count == 1) {  // it stands there as it is to be
        out.indices = std::move(workers[places.empty() ? 0 : places[0].worker].indices);
        out.values = std::move(workers[places.empty() ? 0 : places[0].worker].values);
        return out;
    }
    out.indices.resize(static_cast<std::size_t>(out.indptr.back()));
    out.values.resize(out.indices.size());
    parallel_each(count, kRowsPerTask, threads, nullptr, [&](int, std::int64_t row) {
        const Worker& worker = workers[places[row].worker];
        const std::int64_t size = out.indptr[row + 1] - out.indptr[row];
        std::copy_n(worker.indices.data() + places[row].begin, size, out.indices.data() + out.indptr[row]);
        std::copy_n(worker.values.data() + places[row].begin, size, out.values.data() + out.indptr[row]);
    });
    return out;
}

std::vector<Vectorizer::Found> Vectorizer::trace(std::string_view text) const {
    std::vector<Found> out;
    std::vector<std::uint64_t> hashes;
    std::int64_t first = 0;
    for (const Part& part : parts_) {
        Reader reader(part.part.analysis);
        reader.read(text, 0);
        each_feature(reader, part, first, hashes, [&](std::int64_t feature, const Term& term) {
            out.push_back({static_cast<std::int32_t>(feature), term.from, term.to,
                           std::string(reader.letters().substr(term.begin, term.size))});
        });
        first += part.features();
    }
    return out;
}

}  // namespace carya
