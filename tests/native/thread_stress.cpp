// Stress test for ThreadSanitizer: 64 threads rank labels while models are opened, replaced and closed, and while other
// threads train trees and vectorizers.
//
//     carya_thread_stress MODEL_A MODEL_B FOLDER SECONDS
//
// MODEL_A and MODEL_B are text models; FOLDER is a path where they replace each other. tools/check-threads creates
// them.

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../../native/core/exchange_paths.hpp"
#include "../../native/core/random.hpp"
#include "../../native/include/carya.h"
#include "../../native/indexing/label_representations.hpp"
#include "../../native/indexing/recursive_partition.hpp"
#include "../../native/text/stem_table.hpp"
#include "../../native/text/term_counter.hpp"
#include "../../native/text/vectorizer.hpp"

namespace {

namespace fs = std::filesystem;

constexpr int kRankingThreads = 64;
constexpr std::int64_t kTopK = 5;
constexpr const char* kTexts[] = {"a fast web server", "a small mail server", "\xE6\xA9\x9F\xE5\x99\xA8 learning", ""};

void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "FAILED: %s (%s)\n", what, carya_error());
    std::abort();
}

struct Close {
    void operator()(carya_model* model) const { carya_close(model); }
};
using Model = std::shared_ptr<carya_model>;

Model open_model(const std::string& folder) {
    carya_model* model = carya_open(folder.c_str());
    require(model != nullptr, "a model is opened");
    return {model, Close()};
}

// Ranks all texts and returns the labels and scores.
std::vector<carya_label> rank(const carya_model* model) {
    std::vector<carya_label> out;
    for (const char* text : kTexts) {
        carya_label best[kTopK];
        const std::int64_t count = carya_rank_text(model, text, -1, nullptr, best, kTopK);
        require(count >= 0, "a text is ranked");
        for (std::int64_t i = 0; i < count; ++i) {
            require(carya_label_name(model, best[i].label).size >= 0, "a label has a name");
            out.push_back(best[i]);
        }
    }
    return out;
}

bool equal(const std::vector<carya_label>& a, const std::vector<carya_label>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i].label != b[i].label || a[i].score != b[i].score) return false;
    return true;
}

// Fits and applies a vectorizer with stems, and builds a label tree, each with several threads.
void train() {
    using namespace carya;
    StemTable stems;
    const AnalyzerOptions options{.min_n = 1, .max_n = 2, .stems = &stems};
    const std::vector<std::string_view> texts(50, kTexts[0]);
    const auto missing = stems.missing(texts, options, 4);
    stems.add(missing, missing);
    TermCounter counter({TextAnalyzer{options, 0}}, true, 0, 4);
    counter.add(texts, nullptr);
    TermCounter::FittedVocabulary fitted = counter.fit({1, 1e9, 0, false});
    const auto idf = inverse_document_frequency(fitted.document_frequencies, counter.n_texts(), true);
    const Vectorizer vectorizer({{TextAnalyzer{options, 0}, fitted.terms[0].view()}}, idf, Weighting{});
    Monitor monitor;
    const Csr rows = vectorizer.transform(texts, 4, &monitor);

    Csr positives;
    positives.cols = rows.view().rows();
    for (std::int32_t label = 0; label < 25; ++label) {
        for (const std::int32_t row : {2 * label, 2 * label + 1}) {
            positives.indices.push_back(row);
            positives.values.push_back(1.0F);
        }
        positives.indptr.push_back(static_cast<std::int64_t>(positives.indices.size()));
    }
    const Features features{rows.view(), {nullptr, positives.cols, 0}};
    const LabelGroup root =
        make_root_group(aggregate_positives(features, positives.view(), {0.9, 8, 0}, 4, monitor), 4);
    const int branching[] = {3, 4};
    require(partition(root, branching, {}, 4, monitor).size() == 2, "the tree has two levels");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return EXIT_FAILURE;
    const std::string folder = argv[3];
    std::vector<std::vector<carya_label>> expected;
    for (const int number : {1, 2}) expected.push_back(rank(open_model(argv[number]).get()));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[4]));
    std::atomic<bool> stop{false};
    std::atomic<long> rankings{0}, loads{0}, trainings{0}, replacements{0};
    std::shared_mutex mutex;  // protects `current`
    Model current = open_model(folder);

    std::vector<std::thread> threads;
    const auto repeat = [&](auto body) {
        threads.emplace_back([&stop, body] {
            while (!stop) body();
        });
    };
    for (int i = 0; i < kRankingThreads; ++i)
        repeat([&] {
            Model model;
            {
                const std::shared_lock lock(mutex);
                model = current;
            }
            const std::vector<carya_label> labels = rank(model.get());
            require(equal(labels, expected[0]) || equal(labels, expected[1]), "the results are those of one model");
            ++rankings;
        });
    for (int i = 0; i < 2; ++i)
        repeat([&] {
            Model model = open_model(folder);
            ++loads;
            const std::unique_lock lock(mutex);
            current.swap(model);
        });
    repeat([&] {
        train();
        ++trainings;
    });
    while (std::chrono::steady_clock::now() < deadline) {
        const fs::path next = folder + ".next";
        fs::remove_all(next);
        fs::copy(argv[1 + replacements % 2], next);
        require(carya::exchange_paths(next.c_str(), folder.c_str()) == 0, "the model is replaced");
        ++replacements;
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    std::printf("%ld rankings, %ld loads, %ld replacements and %ld trainings\n", rankings.load(), loads.load(),
                replacements.load(), trainings.load());
    return EXIT_SUCCESS;
}
