// Fuzz target: tokenization, and vectorizers fitted on arbitrary texts with arbitrary options.

#include <fuzzer/FuzzedDataProvider.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "../../native/text/stem_table.hpp"
#include "../../native/text/term_counter.hpp"
#include "../../native/text/tokenizer.hpp"
#include "../../native/text/vectorizer.hpp"

namespace {

using namespace carya;

void require(bool condition) {
    if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    FuzzedDataProvider input(bytes, size);
    const VocabularyArrays stop_word_arrays = VocabularyArrays::from_sorted(std::vector<std::string>{"a", "the"});
    const Vocabulary stop_words = stop_word_arrays.view();
    AnalyzerOptions options;
    options.unit = static_cast<TokenUnit>(input.ConsumeIntegralInRange(0, 2));
    options.min_n = input.ConsumeIntegralInRange(1, 4);
    options.max_n = input.ConsumeIntegralInRange(options.min_n, 6);
    options.lowercase = input.ConsumeBool();
    options.accents = static_cast<Accents>(input.ConsumeIntegralInRange(0, 2));
    options.min_word_length = input.ConsumeIntegralInRange(1, 3);
    if (input.ConsumeBool()) options.stop_words = &stop_words;
    options.tokenizer = static_cast<TokenizerKind>(input.ConsumeIntegralInRange(0, 1));
    options.segmenter = static_cast<Segmenter>(input.ConsumeIntegralInRange(0, 2));
    const std::int64_t n_buckets = input.ConsumeBool() ? input.ConsumeIntegralInRange(1, 64) : 0;
    const Weighting weighting{input.ConsumeBool(), input.ConsumeBool(),
                              static_cast<Norm>(input.ConsumeIntegralInRange(0, 2)), input.ConsumeBool() ? 0.5 : 0.0,
                              input.ConsumeIntegralInRange(0, 5)};
    const bool with_stems = input.ConsumeBool();
    const std::string content = input.ConsumeRemainingBytesAsString();

    std::vector<std::string_view> texts;  // separated by line breaks
    for (std::string_view rest = content; texts.size() < 20;) {
        const std::size_t end = rest.find('\n');
        texts.push_back(rest.substr(0, end));
        if (end == std::string_view::npos) break;
        rest.remove_prefix(end + 1);
    }
    for (const std::string_view text : texts) {
        find_unspaced_runs(text);
        require(find_lead_end(text, 3) <= text.size());
    }
    StemTable stems;
    if (with_stems) {
        options.stems = &stems;
        const std::vector<std::string> words = stems.missing(texts, options, 1);
        std::vector<std::string> longer;
        for (const std::string& word : words) longer.push_back(word + "-" + word);
        stems.add(words, longer);
        require(stems.missing(texts, options, 1).empty());
    }

    const TextAnalyzer analyzer{options, n_buckets};
    TermCounter counter({analyzer}, true, weighting.active_lead_words(), 1);
    counter.add(texts, nullptr);
    TermCounter::FittedVocabulary fitted = counter.fit({1, 1e9, 0, false});
    const Vocabulary terms = n_buckets > 0 ? Vocabulary() : fitted.terms[0].view();
    const auto idf = inverse_document_frequency(fitted.document_frequencies, counter.n_texts(), true);
    weight_rows(fitted.counts, fitted.lead_counts, idf, weighting, 1);
    const Vectorizer vectorizer({{analyzer, terms}}, idf, weighting);
    const Csr rows = vectorizer.transform(texts, 1, nullptr);
    require(rows.indices == fitted.counts.indices && rows.values == fitted.counts.values);
    for (const float value : rows.values) require(std::isfinite(value));
    for (const std::string_view text : texts)
        for (const Vectorizer::TermOccurrence& term : vectorizer.locate_terms(text))
            require(term.char_begin <= term.char_end && term.char_end <= text.size());
    return 0;
}
