// Tests of the native core without Python, for cross-compiled builds that run under emulation.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "../../native/core/random.hpp"
#include "../../native/indexing/label_representations.hpp"
#include "../../native/indexing/recursive_partition.hpp"
#include "../../native/kernels/kernels.hpp"
#include "../../native/layouts/packing.hpp"
#include "../../native/search/beam_search.hpp"
#include "../../native/solver/train_layers.hpp"
#include "../../native/text/term_counter.hpp"
#include "../../native/text/vectorizer.hpp"

namespace {

using namespace carya;

int failures = 0;

void expect(bool ok, const char* what) {
    if (ok) return;
    std::printf("FAILED: %s\n", what);
    ++failures;
}

float uniform(Random& random) { return static_cast<float>(random.below(1U << 20)) / static_cast<float>(1U << 20); }

void test_dot() {
    Random random(1);
    for (int size = 0; size < 130; ++size)
        for (int shift = 0; shift < 3; ++shift) {  // including misaligned arrays
            std::vector<float> a(size + shift), b(size + shift);
            for (float& x : a) x = uniform(random);
            for (float& x : b) x = uniform(random);
            double expected = 0.0;
            for (int i = shift; i < size + shift; ++i) expected += static_cast<double>(a[i]) * b[i];
            const float actual = kernels().dot(a.data() + shift, b.data() + shift, size);
            expect(std::fabs(actual - expected) < 1e-4 * (1.0 + expected), "dot returns the inner product");
        }
}

// A small data set: the rows of label l contain features 3l, 3l + 1 and 3l + 2, plus noise.
struct Dataset {
    Csr x;
    Csr positives;
    std::vector<float> dense;
};

Dataset make_dataset(int rows, int labels) {
    Random random(7);
    Dataset dataset;
    dataset.x.cols = 3 * labels + 10;
    dataset.positives.cols = rows;
    std::vector<std::vector<std::int32_t>> of_label(labels);
    for (int row = 0; row < rows; ++row) {
        const auto label = static_cast<std::int32_t>(random.below(labels));
        of_label[label].push_back(row);
        for (int i = 0; i < 3; ++i) {
            if (random.below(4) == 0) continue;
            dataset.x.indices.push_back(3 * label + i);
            dataset.x.values.push_back(0.5F);
        }
        dataset.x.indices.push_back(3 * labels + static_cast<std::int32_t>(random.below(10)));
        dataset.x.values.push_back(0.3F);
        dataset.x.indptr.push_back(static_cast<std::int64_t>(dataset.x.indices.size()));
        for (int j = 0; j < 5; ++j) dataset.dense.push_back(uniform(random) - 0.5F);
    }
    for (const auto& list : of_label) {
        for (const std::int32_t row : list) {
            dataset.positives.indices.push_back(row);
            dataset.positives.values.push_back(1.0F);
        }
        dataset.positives.indptr.push_back(static_cast<std::int64_t>(dataset.positives.indices.size()));
    }
    return dataset;
}

void test_train_and_rank(int threads, Loss loss) {
    constexpr int kRows = 400;
    constexpr int kLabels = 37;
    const Dataset dataset = make_dataset(kRows, kLabels);
    const Features features{dataset.x.view(), {dataset.dense.data(), kRows, 5}};
    features.sparse.check("x");

    Monitor monitor;
    const LabelGroup root = make_root_group(
        aggregate_positives(features, dataset.positives.view(), {0.9, 8, 0}, threads, monitor), threads);
    Monitor tree_monitor;
    const int branching[] = {3, 4};
    const auto levels = partition(root, branching, {}, threads, tree_monitor);
    expect(levels.size() == 2, "the tree has two levels");

    std::vector<std::int32_t> order(kLabels);
    std::iota(order.begin(), order.end(), 0);
    const std::vector<std::int64_t> chunks{0, kLabels};
    LayerProblem problem;
    problem.positives = dataset.positives.view();
    problem.order = order;
    problem.chunks = chunks;
    problem.all_rows = true;
    SolverOptions options;
    options.loss = loss;
    Monitor train_monitor;
    std::vector<LayerWeights> layers = train_layers(features, {&problem, 1}, options, {}, threads, train_monitor);
    expect(train_monitor.done <= train_monitor.total, "progress does not exceed the total");

    SearchLayer layer;
    std::vector<ChunkWeightsView> weights;
    for (const ChunkWeights& chunk : layers[0].chunks) weights.push_back(chunk.view());
    const Packed packed = pack(weights, chunks, features.sparse.cols, WeightDtype::int8, threads);
    layer.weights = packed.view();
    layer.dense = {layers[0].dense.data(), kLabels, 5};
    layer.biases = layers[0].biases;
    layer.chunks = chunks;
    layer.order = order;
    for (const char* layout : {"packed", "by-label", "by-feature", "hash", "search"}) {
        const BeamSearch search({layer}, {layout});
        const Csr rankings = search.predict(features, {1, 10}, threads, nullptr);
        int n_correct = 0;
        for (int label = 0; label < kLabels; ++label)
            for (std::int64_t e = dataset.positives.indptr[label]; e < dataset.positives.indptr[label + 1]; ++e)
                n_correct += rankings.indices[dataset.positives.indices[e]] == label;
        expect(n_correct > kRows * 9 / 10, "for more than 90% of the rows, the correct label is ranked first");
    }
}

// Checks that packing gives the same result if the memory of the weights is released while they are packed.
void test_discarded_weights(int threads) {
    constexpr std::uint32_t kFeatures = 40'000;  // so that the arrays of a chunk consist of several pages
    const std::vector<std::int64_t> chunks{0, 20, 400, 410};
    std::vector<Packed> results;
    for (const std::size_t min_discarded_bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{0}}) {
        Random random(3);
        std::vector<ChunkWeights> owned;
        for (std::size_t c = 0; c + 1 < chunks.size(); ++c) {
            ChunkWeightsBuilder builder;
            for (std::uint32_t feature = 0; feature < kFeatures; feature += 1 + random.below(3)) {
                builder.begin_feature(feature);
                builder.append(random.below(5), uniform(random) - 0.5F);
                builder.append(5 + random.below(5), uniform(random) - 0.5F);
            }
            owned.push_back(builder.finish(chunks[c + 1] - chunks[c], WeightDtype::int8));
        }
        std::vector<ChunkWeightsView> weights;
        for (const ChunkWeights& chunk : owned) weights.push_back(chunk.view());
        results.push_back(pack(weights, chunks, kFeatures, WeightDtype::int8, threads, min_discarded_bytes));
#ifdef __linux__
        const bool released = weights[1].features[5000] == 0;
        expect(released == (min_discarded_bytes == 0), "the weights are released only if this is requested");
#endif
    }
    expect(results[0].n_weights > 0 && results[0].data == results[1].data,
           "the packed weights do not depend on whether the original weights are released");
}

// Checks that every learned term is found, that transform returns the same features as fit, and that the number of
// threads does not affect the result.
void test_vectorizer(const TextAnalyzer& analyzer, const Weighting& weighting,
                     std::span<const std::string_view> texts) {
    std::vector<Csr> rows;
    for (const int threads : {1, 3}) {
        TermCounter counter({analyzer}, true, weighting.active_lead_words(), threads);
        counter.add(texts.first(150), nullptr);
        counter.add(texts.subspan(150), nullptr);
        TermCounter::FittedVocabulary fitted = counter.fit({2, 1e9, 0, false});
        const Vocabulary terms = analyzer.n_buckets > 0 ? Vocabulary() : fitted.terms[0].view();
        for (std::int64_t term = 0; term < terms.size(); ++term) {
            const std::string padded = std::string(terms[term]) + std::string(Vocabulary::kPadding, '\0');
            expect(terms.find(padded.data(), terms[term].size()) == term, "find returns the index of a learned term");
            expect(term == 0 || terms[term - 1] < terms[term], "terms are sorted");
        }
        const auto idf = inverse_document_frequency(fitted.document_frequencies, counter.n_texts(), true);
        weight_rows(fitted.counts, fitted.lead_counts, idf, weighting, threads);
        const Vectorizer vectorizer({{analyzer, terms}}, idf, weighting);
        const Csr again = vectorizer.transform(texts, threads, nullptr);
        expect(again.indices == fitted.counts.indices, "transform returns the same features as fit");
        expect(again.values == fitted.counts.values, "transform returns the same values as fit");
        for (const std::string_view text : texts) vectorizer.locate_terms(text);
        rows.push_back(std::move(fitted.counts));
    }
    expect(rows[0].indices == rows[1].indices && rows[0].values == rows[1].values,
           "the result does not depend on the number of threads");
}

// Tests the vectorizer on texts of random characters and bytes, most of which are not valid UTF-8. Sanitizers check
// that all memory accesses are within bounds.
void test_texts() {
    // Combining marks, characters that NFC composes or reorders, invisible characters, and scripts without spaces.
    constexpr const char* characters[] = {"\u0301", "\u0323", "\u0334", "\u0130", "\u212B", "\u1100", "\u1161",
                                          "\u11A8", "\u200D", "\u00AD", "\u0E17", "\u0E35", "\u6A5F", "\u5668"};
    Random random(7);
    std::vector<std::string> texts(400);
    for (std::string& text : texts) {
        const auto size = random.below(120);
        for (std::uint64_t i = 0; i < size; ++i) {
            const auto kind = random.below(5);
            const auto byte = kind == 0 ? random.below(256) : kind == 1 ? ' ' : 'a' + random.below(3);
            if (kind == 4)
                text.append(characters[random.below(std::size(characters))]);
            else
                text.push_back(static_cast<char>(byte));
        }
    }
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const VocabularyArrays stop_word_arrays = VocabularyArrays::from_sorted(std::vector<std::string>{"aa", "b"});
    const Vocabulary stop_words = stop_word_arrays.view();
    for (const TokenUnit unit : {TokenUnit::word, TokenUnit::character, TokenUnit::character_in_word})
        for (const Accents accents : {Accents::keep, Accents::unicode, Accents::ascii})
            for (const auto& [kind, segmenter, n_buckets] :
                 {std::tuple(TokenizerKind::sklearn, Segmenter::none, 0),
                  std::tuple(TokenizerKind::sklearn, Segmenter::none, 13),
                  std::tuple(TokenizerKind::unicode, Segmenter::none, 0),
                  std::tuple(TokenizerKind::unicode, Segmenter::words, 0),
                  std::tuple(TokenizerKind::unicode, Segmenter::characters, 0),
                  std::tuple(TokenizerKind::unicode, Segmenter::characters, 13)}) {
                StemTable stems;
                const AnalyzerOptions options{.unit = unit,
                                              .min_n = 1,
                                              .max_n = 3,
                                              .accents = accents,
                                              .min_word_length = 1,
                                              .stop_words = &stop_words,
                                              .tokenizer = kind,
                                              .segmenter = segmenter,
                                              .stems = &stems};
                const auto missing = stems.missing(views, options, 3);
                expect(!missing.empty(), "a new table has no stems");
                std::vector<std::string> long_stems;  // longer than the words, so that buffers must be enlarged
                for (const std::string& word : missing) long_stems.push_back(word + "abcdefgh" + word);
                stems.add(missing, long_stems);
                expect(stems.missing(views, options, 1).empty(), "all added words have stems");
                const TextAnalyzer analyzer{options, n_buckets};
                for (const double lead_weight : {0.0, 0.5})
                    test_vectorizer(analyzer, {.sublinear = true, .lead_weight = lead_weight, .lead_words = 4}, views);
            }
}

void test_exceptions_in_threads() {
    bool caught = false;
    try {
        parallel_for(100, 4, nullptr, [](int, std::int64_t task) {
            if (task == 50) throw std::runtime_error("task 50");
        });
    } catch (const std::runtime_error&) {
        caught = true;
    }
    expect(caught, "parallel_for rethrows an exception from a task");
}

}  // namespace

int main() {
    std::printf("kernels: %s\n", carya::kernels().name);
    test_dot();
    for (const carya::Loss loss : {carya::Loss::squared_hinge, carya::Loss::hinge, carya::Loss::logistic})
        for (const int threads : {1, 3}) test_train_and_rank(threads, loss);
    for (const int threads : {1, 3}) test_discarded_weights(threads);
    test_texts();
    test_exceptions_in_threads();
    std::printf(failures == 0 ? "all tests passed\n" : "%d failures\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
