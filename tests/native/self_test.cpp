// The kernels against plain loops, without Python: what a cross-compiled build can run under emulation.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "../../native/beam.hpp"
#include "../../native/cluster/partition.hpp"
#include "../../native/cluster/represent.hpp"
#include "../../native/kernels/kernels.hpp"
#include "../../native/random.hpp"
#include "../../native/solve/train.hpp"
#include "../../native/text/counter.hpp"
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
        for (int shift = 0; shift < 3; ++shift) {  // misaligned too
            std::vector<float> a(size + shift), b(size + shift);
            for (float& x : a) x = uniform(random);
            for (float& x : b) x = uniform(random);
            double want = 0.0;
            for (int i = shift; i < size + shift; ++i) want += static_cast<double>(a[i]) * b[i];
            const float got = kernels().dot(a.data() + shift, b.data() + shift, size);
            expect(std::fabs(got - want) < 1e-4 * (1.0 + want), "dot");
        }
}

// Rows of a small world: label l has features 3l, 3l + 1, 3l + 2 and noise.
struct World {
    Csr x;
    Csr positives;
    std::vector<float> dense;
};

World make_world(int rows, int labels) {
    Random random(7);
    World world;
    world.x.cols = 3 * labels + 10;
    world.positives.cols = rows;
    std::vector<std::vector<std::int32_t>> of_label(labels);
    for (int row = 0; row < rows; ++row) {
        const auto label = static_cast<std::int32_t>(random.below(labels));
        of_label[label].push_back(row);
        for (int i = 0; i < 3; ++i) {
            if (random.below(4) == 0) continue;
            world.x.indices.push_back(3 * label + i);
            world.x.values.push_back(0.5F);
        }
        world.x.indices.push_back(3 * labels + static_cast<std::int32_t>(random.below(10)));
        world.x.values.push_back(0.3F);
        world.x.indptr.push_back(static_cast<std::int64_t>(world.x.indices.size()));
        for (int j = 0; j < 5; ++j) world.dense.push_back(uniform(random) - 0.5F);
    }
    for (const auto& list : of_label) {
        for (const std::int32_t row : list) {
            world.positives.indices.push_back(row);
            world.positives.values.push_back(1.0F);
        }
        world.positives.indptr.push_back(static_cast<std::int64_t>(world.positives.indices.size()));
    }
    return world;
}

void test_train_and_rank(int threads, Loss loss) {
    constexpr int kRows = 400;
    constexpr int kLabels = 37;
    const World world = make_world(kRows, kLabels);
    const Features features{world.x.view(), {world.dense.data(), kRows, 5}};
    features.sparse.check("x");

    Monitor monitor;
    const Representation z = aggregate_positives(features, world.positives.view(), 8, threads, monitor);
    const Features representation{z.sparse.view(), {z.dense.data(), kLabels, 5}};
    Monitor tree_monitor;
    const int branching[] = {3, 4};
    const auto levels = partition(representation, branching, {}, threads, tree_monitor);
    expect(levels.size() == 2, "two levels");

    std::vector<std::int32_t> order(kLabels);
    std::iota(order.begin(), order.end(), 0);
    const std::vector<std::int64_t> chunks{0, kLabels};
    LayerProblem problem;
    problem.positives = world.positives.view();
    problem.order = order;
    problem.chunks = chunks;
    problem.every_row = true;
    SolverOptions options;
    options.loss = loss;
    Monitor train_monitor;
    std::vector<LayerWeights> layers = train_layers(features, {&problem, 1}, options, threads, train_monitor);
    expect(train_monitor.done <= train_monitor.total, "progress");

    SearchLayer layer;
    const Packed packed = pack(layers[0].weights.view(), chunks, Precision::int8, threads);
    layer.weights = packed.view();
    layer.dense = {layers[0].dense.data(), kLabels, 5};
    layer.offsets = layers[0].offsets;
    layer.chunks = chunks;
    layer.order = order;
    for (const char* layout : {"packed", "by-label", "by-feature", "hash", "search"}) {
        const BeamSearch search({layer}, {layout});
        const Csr best = search.predict(features, {1, 10}, threads, nullptr);
        int right = 0;
        for (int label = 0; label < kLabels; ++label)
            for (std::int64_t e = world.positives.indptr[label]; e < world.positives.indptr[label + 1]; ++e)
                right += best.indices[world.positives.indices[e]] == label;
        expect(right > kRows * 9 / 10, "nine of ten rows find their label");
    }
}

// Bytes of every kind, most of them no UTF-8: nothing is read or written where it should not be (the sanitizers watch),
// every term that was learned is found again, and threads change nothing.
void test_texts() {
    Random random(7);
    std::vector<std::string> texts(400);
    for (std::string& text : texts) {
        const auto size = random.below(120);
        for (std::uint64_t i = 0; i < size; ++i) {
            const auto kind = random.below(4);
            const auto byte = kind == 0 ? random.below(256) : kind == 1 ? ' ' : 'a' + random.below(3);
            text.push_back(static_cast<char>(byte));
        }
    }
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const TermArrays stop = TermArrays::of(std::vector<std::string>{"aa", "b"});
    const Terms stop_words = stop.view();
    for (const Unit unit : {Unit::word, Unit::character, Unit::character_in_word})
        for (const Accents accents : {Accents::keep, Accents::unicode, Accents::ascii})
            for (const std::int64_t buckets : {0, 13}) {
                const TextPart part{{unit, 1, 3, true, accents, 1, &stop_words}, buckets};
                std::vector<Csr> rows;
                for (const int threads : {1, 3}) {
                    TermCounter counter({part}, true, threads);
                    counter.add(std::span(views).first(150), nullptr);
                    counter.add(std::span(views).subspan(150), nullptr);
                    TermCounter::Learned learned = counter.learn({2, 1e9, 0, false});
                    const Terms terms = buckets > 0 ? Terms() : learned.terms[0].view();
                    for (std::int64_t term = 0; term < terms.size(); ++term) {
                        const std::string padded = std::string(terms[term]) + std::string(Terms::kPadding, '\0');
                        expect(terms.find(padded.data(), terms[term].size()) == term, "a term is found");
                        expect(term == 0 || terms[term - 1] < terms[term], "terms ascend");
                    }
                    const Weighting weighting{false, true, Norm::l2};
                    const auto idf = inverse_frequency(learned.texts, counter.texts(), true);
                    weigh_terms(learned.counts, idf, weighting, threads);
                    const Vectorizer vectorizer({{part, terms}}, idf, weighting);
                    const Csr again = vectorizer.transform(views, threads, nullptr);
                    expect(again.indices == learned.counts.indices, "the same features");
                    expect(again.values == learned.counts.values, "the same values");
                    for (const std::string_view text : views) vectorizer.trace(text);
                    rows.push_back(std::move(learned.counts));
                }
                expect(rows[0].indices == rows[1].indices && rows[0].values == rows[1].values, "threads");
            }
}

void test_errors_come_out_of_threads() {
    bool caught = false;
    try {
        parallel_for(100, 4, nullptr, [](int, std::int64_t task) {
            if (task == 50) throw std::runtime_error("task 50");
        });
    } catch (const std::runtime_error&) {
        caught = true;
    }
    expect(caught, "an exception leaves a parallel loop");
}

}  // namespace

int main() {
    std::printf("kernels: %s\n", carya::kernels().name);
    test_dot();
    for (const carya::Loss loss : {carya::Loss::squared_hinge, carya::Loss::hinge, carya::Loss::logistic})
        for (const int threads : {1, 3}) test_train_and_rank(threads, loss);
    test_texts();
    test_errors_come_out_of_threads();
    std::printf(failures == 0 ? "all right\n" : "%d failures\n", failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
