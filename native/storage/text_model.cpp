#include "text_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "model_parts.hpp"

namespace carya {

namespace {

// Returns a parameter by its name or, in models from earlier versions, by its former name.
const Json& renamed(const Json& parameters, const char* name, const char* former_name) {
    const Json* value = parameters.find(name);
    return value ? *value : member(parameters, former_name);
}

bool flag(const Json& parameters, const char* name) {
    const auto value = member(parameters, name).boolean();
    if (!value) fail_inconsistent(std::string(name) + " is not true or false");
    return *value;
}

// Returns the index of a string in a list of names; a JSON null matches the name "null".
int choice(const Json& value, const char* name, std::initializer_list<const char*> names) {
    const std::string text = value.is_null() ? "null" : value.text().value_or("");
    const auto match = std::find(names.begin(), names.end(), text);
    if (match == names.end()) fail_inconsistent(std::string("unknown ") + name + " '" + text + "'");
    return static_cast<int>(match - names.begin());
}

int small_integer(const Json& value, const char* name, std::int64_t low, std::int64_t high) {
    const std::int64_t number = value.integer().value_or(-1);
    if (number < low || number > high) fail_inconsistent(std::string(name) + " is out of range");
    return static_cast<int>(number);
}

std::vector<std::string> to_strings(const Json& list) {
    std::vector<std::string> out;
    for (const Json& item : list.items()) {
        const auto text = item.text();
        if (!text) fail_inconsistent("a stop word is not a string");
        out.push_back(*text);
    }
    return out;
}

}  // namespace

TextModel::Strings::Strings(std::span<const std::uint8_t> bytes, std::span<const std::int64_t> ends)
    : bytes_(bytes), ends_(ends) {
    std::int64_t previous = 0;
    for (const std::int64_t end : ends) {
        if (end < previous) fail_inconsistent("the end offsets of strings decrease");
        previous = end;
    }
    if (previous != std::ssize(bytes)) fail_inconsistent("the end offsets of strings do not match the number of bytes");
}

std::string_view TextModel::Strings::operator[](std::int64_t i) const {
    const std::int64_t begin = i == 0 ? 0 : ends_[i - 1];
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, static_cast<std::size_t>(ends_[i] - begin)};
}

TextModel::TextModel(const ModelFolder& folder) {
    open_vectorizer(folder, member(member(folder.manifest(), "parameters"), "text"));
    const ArrayReader arrays(folder);
    const auto strings = [&](const std::string& name) {
        return Strings(arrays.read<std::uint8_t>(name + ".bytes", "uint8"),
                       arrays.read<std::int64_t>(name + ".ends", "int64"));
    };
    ids_ = strings("labels.ids");
    names_ = arrays.has("labels.names.ends") ? strings("labels.names") : ids_;
    if (names_.size() != ids_.size()) fail_inconsistent("the numbers of label ids and names differ");
    if (!arrays.has("calibration.scores")) return;
    scores_ = arrays.read<float>("calibration.scores", "float32");
    const char* current = "calibration.probabilities";
    probabilities_ = arrays.read<float>(arrays.has(current) ? current : "calibration.chances", "float32");
    if (scores_.empty() || scores_.size() != probabilities_.size())
        fail_inconsistent("the numbers of calibration scores and probabilities differ");
    for (std::size_t i = 0; i < scores_.size(); ++i) {
        if (!std::isfinite(scores_[i]) || !std::isfinite(probabilities_[i]) || (i > 0 && scores_[i] <= scores_[i - 1]))
            fail_inconsistent("calibration scores must be finite and increasing, and probabilities must be finite");
    }
}

void TextModel::open_vectorizer(const ModelFolder& folder, const Json& parameters) {
    AnalyzerOptions options;
    const Json* tokenizer = parameters.find("tokenizer");
    if (tokenizer)
        options.tokenizer = static_cast<TokenizerKind>(choice(*tokenizer, "tokenizer", {"sklearn", "unicode"}));
    else
        options.tokenizer = TokenizerKind::sklearn;  // models from earlier versions
    if (const Json* segmenter = parameters.find("segmenter")) {
        const int index = choice(*segmenter, "segmenter", {"null", "bigrams", "icu"});
        if (index == 2)
            throw std::invalid_argument(
                "The model was trained with segmenter='icu', which requires Python. Train it with "
                "segmenter='bigrams'.");
        options.segmenter = index == 0 ? Segmenter::none : Segmenter::characters;
    }
    if (const Json* stemmer = parameters.find("stemmer"); stemmer && !stemmer->is_null())
        throw std::invalid_argument(
            "The model was trained with a stemmer, which requires Python. Train it without a stemmer.");
    options.lowercase = flag(parameters, "lowercase");
    options.accents = static_cast<Accents>(
        choice(member(parameters, "strip_accents"), "strip_accents", {"null", "unicode", "ascii"}));
    options.min_word_length = small_integer(renamed(parameters, "min_word_length", "min_length"), "min_word_length", 1,
                                            std::numeric_limits<std::int32_t>::max());
    if (const Json& words = member(parameters, "stop_words"); !words.is_null()) {
        std::vector<std::string> sorted = to_strings(words);
        std::sort(sorted.begin(), sorted.end());
        sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
        stop_words_ = VocabularyArrays::from_sorted(sorted);
        stop_word_set_ = stop_words_.view();
    }
    const Json& buckets = renamed(parameters, "n_buckets", "buckets");
    const std::int64_t n_buckets =
        buckets.is_null() ? 0 : small_integer(buckets, "n_buckets", 1, std::numeric_limits<std::int32_t>::max());

    const Json& analyzer = member(parameters, "analyzer");
    const std::vector<Json> units = analyzer.is_array() ? analyzer.items() : std::vector<Json>{analyzer};
    const Json& ranges = member(parameters, "ngram_range");
    const bool shared_range = !ranges.items().empty() && !ranges.items().front().is_array();
    if (units.empty() || ranges.items().size() != (shared_range ? 2 : units.size()))
        fail_inconsistent("ngram_range does not match analyzer");

    const ArrayReader arrays(folder);
    std::vector<Vectorizer::FittedAnalyzer> analyzers;
    for (std::size_t p = 0; p < units.size(); ++p) {
        const std::vector<Json>& range = shared_range ? ranges.items() : ranges.items()[p].items();
        if (range.size() != 2) fail_inconsistent("ngram_range is not a pair");
        AnalyzerOptions own = options;
        own.unit = static_cast<TokenUnit>(choice(units[p], "analyzer", {"word", "char", "char_wb"}));
        own.min_n = small_integer(range[0], "ngram_range", 1, 100);
        own.max_n = small_integer(range[1], "ngram_range", own.min_n, 100);
        own.stop_words = own.unit == TokenUnit::word && stop_word_set_.size() > 0 ? &stop_word_set_ : nullptr;
        const std::string prefix = "text." + std::to_string(p);
        const auto bytes = arrays.read<std::uint8_t>(prefix + ".bytes", "uint8");
        const auto ends = arrays.read<std::int64_t>(prefix + ".ends", "int64");
        const auto slots = arrays.read<std::uint64_t>(prefix + ".slots", "uint64");
        analyzers.push_back({{own, n_buckets}, n_buckets > 0 ? Vocabulary() : Vocabulary(bytes, ends, slots)});
    }
    const auto idf = arrays.read<float>("text.idf", "float32");
    if (!std::all_of(idf.begin(), idf.end(), [](float x) { return std::isfinite(x); }))
        fail_inconsistent("an idf weight is NaN or infinite");
    Weighting weighting{flag(parameters, "binary"), flag(parameters, "sublinear_tf"),
                        static_cast<Norm>(choice(member(parameters, "norm"), "norm", {"null", "l1", "l2"}))};
    if (const Json* lead_weight = parameters.find("lead_weight")) {  // missing in models from earlier versions
        weighting.lead_weight = lead_weight->number().value_or(-1.0);
        weighting.lead_words =
            small_integer(member(parameters, "lead_words"), "lead_words", 1, std::numeric_limits<std::int32_t>::max());
        if (!(weighting.lead_weight >= 0.0) || std::isinf(weighting.lead_weight))
            fail_inconsistent("lead_weight is not a finite number >= 0");
    }
    vectorizer_ = std::make_unique<Vectorizer>(std::move(analyzers), idf, weighting);
    if (idf.empty() == flag(parameters, "use_idf")) fail_inconsistent("the number of idf weights is wrong");
}

double TextModel::probability(double score) const {
    if (scores_.empty() || std::isnan(score)) return std::numeric_limits<double>::quiet_NaN();
    const auto next = std::upper_bound(scores_.begin(), scores_.end(), score);
    if (next == scores_.begin()) return probabilities_.front();
    if (next == scores_.end()) return probabilities_.back();
    const auto i = static_cast<std::size_t>(next - scores_.begin());
    const double slope = (static_cast<double>(probabilities_[i]) - probabilities_[i - 1]) /
                         (static_cast<double>(scores_[i]) - scores_[i - 1]);
    return probabilities_[i - 1] + slope * (score - scores_[i - 1]);
}

}  // namespace carya
