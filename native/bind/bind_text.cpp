#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "../text/term_counter.hpp"
#include "../text/vectorizer.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

// UTF-8 views of Python strings. The strings own the memory.
class Texts {
public:
    // Error messages refer to the strings by consecutive numbers, starting with `first_number`.
    explicit Texts(nb::handle strings, std::int64_t first_number = 0)
        : strings_(nb::steal<nb::tuple>(call_python([&] { return PySequence_Tuple(strings.ptr()); }))),
          first_number_(first_number) {
        if (!strings_.is_valid()) throw nb::python_error();
        views.reserve(nb::len(strings_));
        for (const nb::handle string : strings_) {
            views.push_back(view(string));
            bytes += views.back().size();
        }
    }

    std::vector<std::string_view> views;
    std::size_t bytes = 0;

private:
    std::string_view view(nb::handle string) const {
        const std::string name = "Text " + std::to_string(first_number_ + std::ssize(views));
        if (!PyUnicode_Check(string.ptr()))
            throw std::invalid_argument(name + " must be a string, got " +
                                        nb::cast<std::string>(nb::str(string.type().attr("__name__"))) + ".");
        Py_ssize_t size = 0;
        const char* start = PyUnicode_AsUTF8AndSize(string.ptr(), &size);
        if (!start) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
            PyErr_Clear();
            throw std::invalid_argument(name + " contains a lone surrogate, which is not valid Unicode text.");
        }
        return {start, static_cast<std::size_t>(size)};
    }

    nb::tuple strings_;
    std::int64_t first_number_;
};

// A TextAnalyzer together with the stop words that it references.
struct PyTextAnalyzer {
    PyTextAnalyzer(TokenUnit unit, int min_n, int max_n, bool lowercase, Accents accents, int min_word_length,
                   const std::vector<std::string>& stop_words, std::int64_t n_buckets, TokenizerKind tokenizer,
                   Segmenter segmenter, const StemTable* stems)
        : arrays(VocabularyArrays::from_sorted(stop_words)), vocabulary(arrays.view()) {
        analyzer.options = {.unit = unit,
                            .min_n = min_n,
                            .max_n = max_n,
                            .lowercase = lowercase,
                            .accents = accents,
                            .min_word_length = min_word_length,
                            .stop_words = stop_words.empty() ? nullptr : &vocabulary,
                            .tokenizer = tokenizer,
                            .segmenter = segmenter,
                            .stems = stems};
        analyzer.n_buckets = n_buckets;
    }
    PyTextAnalyzer(const PyTextAnalyzer&) = delete;

    VocabularyArrays arrays;
    Vocabulary vocabulary;
    TextAnalyzer analyzer;
};

std::vector<TextAnalyzer> to_analyzers(const std::vector<const PyTextAnalyzer*>& analyzers) {
    std::vector<TextAnalyzer> out;
    for (const PyTextAnalyzer* analyzer : analyzers) out.push_back(analyzer->analyzer);
    return out;
}

nb::tuple to_numpy(VocabularyArrays&& terms) {
    return nb::make_tuple(bind::to_numpy(std::move(terms.bytes)), bind::to_numpy(std::move(terms.ends)),
                          bind::to_numpy(std::move(terms.slots)));
}

struct PyFittedAnalyzer {
    const PyTextAnalyzer* analyzer;
    Array<std::uint8_t> bytes;
    Array<std::int64_t> ends;
    Array<std::uint64_t> slots;
};

class PyVectorizer {
public:
    PyVectorizer(std::vector<PyFittedAnalyzer> analyzers, Array<float> idf, const Weighting& weighting)
        : analyzers_(std::move(analyzers)),
          idf_(std::move(idf)),
          vectorizer(fitted_analyzers(), span(idf_), weighting) {}

private:
    std::vector<Vectorizer::FittedAnalyzer> fitted_analyzers() const {
        std::vector<Vectorizer::FittedAnalyzer> out;
        for (const PyFittedAnalyzer& fitted : analyzers_) {
            const bool hashed = fitted.analyzer->analyzer.n_buckets > 0;
            out.push_back(
                {fitted.analyzer->analyzer,
                 hashed ? Vocabulary() : Vocabulary(span(fitted.bytes), span(fitted.ends), span(fitted.slots))});
        }
        return out;
    }

    std::vector<PyFittedAnalyzer> analyzers_;
    Array<float> idf_;

public:
    const Vectorizer vectorizer;
};

constexpr std::size_t kMinParallelBytes = 1 << 16;  // smaller batches do not benefit from several threads

}  // namespace

void register_text(nb::module_& m) {
    nb::enum_<TokenUnit>(m, "TokenUnit")
        .value("word", TokenUnit::word)
        .value("char", TokenUnit::character)
        .value("char_wb", TokenUnit::character_in_word);
    nb::enum_<Accents>(m, "Accents")
        .value("keep", Accents::keep)
        .value("unicode", Accents::unicode)
        .value("ascii", Accents::ascii);
    nb::enum_<TokenizerKind>(m, "TokenizerKind")
        .value("sklearn", TokenizerKind::sklearn)
        .value("unicode", TokenizerKind::unicode);
    nb::enum_<Segmenter>(m, "Segmenter")
        .value("none", Segmenter::none)
        .value("characters", Segmenter::characters)
        .value("words", Segmenter::words);
    nb::enum_<Norm>(m, "Norm").value("none", Norm::none).value("l1", Norm::l1).value("l2", Norm::l2);

    nb::class_<Weighting>(m, "Weighting")
        .def(
            "__init__",
            [](Weighting* self, bool binary, bool sublinear, Norm norm, double lead_weight, int lead_words) {
                new (self) Weighting{binary, sublinear, norm, lead_weight, lead_words};
            },
            "binary"_a, "sublinear"_a, "norm"_a, "lead_weight"_a, "lead_words"_a);

    nb::class_<PyTextAnalyzer>(m, "TextAnalyzer")
        .def(nb::init<TokenUnit, int, int, bool, Accents, int, const std::vector<std::string>&, std::int64_t,
                      TokenizerKind, Segmenter, const StemTable*>(),
             "unit"_a, "min_n"_a, "max_n"_a, "lowercase"_a, "accents"_a, "min_word_length"_a, "stop_words"_a,
             "n_buckets"_a, "tokenizer"_a, "segmenter"_a, "stems"_a.none(), nb::keep_alive<1, 12>(),
             "Create an analyzer. stop_words must be sorted and distinct.");

    nb::class_<StemTable>(m, "StemTable")
        .def(nb::init<>())
        .def("__len__", &StemTable::size)
        .def(
            "missing",
            [](const StemTable& self, nb::handle strings, const PyTextAnalyzer& analyzer, int threads) {
                const Texts texts(strings);
                const ReleasedGil released;
                return self.missing(texts.views, analyzer.analyzer.options,
                                    texts.bytes < kMinParallelBytes ? 1 : threads);
            },
            "texts"_a, "analyzer"_a, "threads"_a,
            "Return the distinct words that occur in the texts but not in the table, in ascending order.")
        .def("add", &StemTable::add, "words"_a, "stems"_a, nb::call_guard<ReleasedGil>(), "Add words and their stems.");

    m.def(
        "unspaced_runs",
        [](nb::handle text) {
            const Texts texts(nb::make_tuple(text));
            return find_unspaced_runs(texts.views[0]);
        },
        "text"_a, "Return the ranges of text in scripts without spaces between words as [(begin, end)].");

    nb::class_<TermCounter>(m, "TermCounter")
        .def(
            "__init__",
            [](TermCounter* self, const std::vector<const PyTextAnalyzer*>& analyzers, bool keep_rows,
               const Weighting& weighting, int threads) {
                new (self) TermCounter(to_analyzers(analyzers), keep_rows, weighting.active_lead_words(), threads);
            },
            "analyzers"_a, "keep_rows"_a, "weighting"_a, "threads"_a, nb::keep_alive<1, 2>())
        .def_prop_ro("n_texts", &TermCounter::n_texts)
        .def(
            "add",
            [](TermCounter& self, nb::handle strings, nb::object report) {
                const Texts texts(strings, self.n_texts());
                PythonMonitor monitor(std::move(report));
                const ReleasedGil released;
                self.add(texts.views, &monitor);
            },
            "texts"_a, "report"_a.none(), "Count the terms in a batch of texts.")
        .def(
            "fit",
            [](TermCounter& self, double min_df, double max_df, std::int64_t max_features, bool idf, bool smooth_idf,
               const Weighting& weighting, int threads) {
                TermCounter::FittedVocabulary fitted;
                std::vector<float> weights;
                {
                    const ReleasedGil released;
                    fitted = self.fit({min_df, max_df, max_features, weighting.binary});
                    if (idf)
                        weights = inverse_document_frequency(fitted.document_frequencies, self.n_texts(), smooth_idf);
                    if (!fitted.counts.indptr.empty())
                        weight_rows(fitted.counts, fitted.lead_counts, weights, weighting, threads);
                }
                nb::list terms;
                for (VocabularyArrays& arrays : fitted.terms) terms.append(to_numpy(std::move(arrays)));
                return nb::make_tuple(terms, bind::to_numpy(std::move(weights)),
                                      bind::to_numpy(std::move(fitted.document_frequencies)),
                                      bind::to_numpy(std::move(fitted.counts)));
            },
            "min_df"_a, "max_df"_a, "max_features"_a, "idf"_a, "smooth_idf"_a, "weighting"_a, "threads"_a,
            "Fit the vocabulary and return ([(bytes, ends, slots) per analyzer], idf, document_frequencies, (indptr, "
            "indices, values)).");

    nb::class_<PyVectorizer>(m, "Vectorizer")
        .def(
            "__init__",
            [](PyVectorizer* self, const std::vector<const PyTextAnalyzer*>& analyzers, const nb::list& terms,
               Array<float> idf, const Weighting& weighting) {
                if (analyzers.size() != nb::len(terms))
                    throw std::invalid_argument("terms must have one entry per analyzer.");
                std::vector<PyFittedAnalyzer> fitted;
                for (std::size_t i = 0; i < analyzers.size(); ++i) {
                    const auto arrays = nb::cast<nb::tuple>(terms[i]);
                    fitted.push_back({analyzers[i], nb::cast<Array<std::uint8_t>>(arrays[0]),
                                      nb::cast<Array<std::int64_t>>(arrays[1]),
                                      nb::cast<Array<std::uint64_t>>(arrays[2])});
                }
                new (self) PyVectorizer(std::move(fitted), std::move(idf), weighting);
            },
            "analyzers"_a, "terms"_a, "idf"_a.noconvert(), "weighting"_a, nb::keep_alive<1, 2>())
        .def_prop_ro("n_features", [](const PyVectorizer& self) { return self.vectorizer.n_features(); })
        .def(
            "transform",
            [](const PyVectorizer& self, nb::handle strings, int threads, nb::object report) {
                const Texts texts(strings);
                Csr out;
                const bool few = texts.bytes < kMinParallelBytes;
                PythonMonitor monitor(std::move(report));
                {
                    const ReleasedGil released;
                    out = self.vectorizer.transform(texts.views, few ? 1 : threads, few ? nullptr : &monitor);
                }
                return bind::to_numpy(std::move(out));
            },
            "texts"_a, "threads"_a, "report"_a.none(), "Return the features of the texts as (indptr, indices, values).")
        .def(
            "locate_terms",
            [](const PyVectorizer& self, nb::handle text) {
                const Texts texts(nb::make_tuple(text));
                nb::list out;
                for (const Vectorizer::TermOccurrence& occurrence : self.vectorizer.locate_terms(texts.views[0]))
                    out.append(nb::make_tuple(occurrence.feature, occurrence.char_begin, occurrence.char_end,
                                              occurrence.term));
                return out;
            },
            "text"_a, "Return the occurrences of known terms in a text as [(feature, begin, end, term)].");
}

}  // namespace carya::bind
