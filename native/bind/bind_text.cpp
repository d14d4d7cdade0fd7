#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "../text/counter.hpp"
#include "../text/vectorizer.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

// Strings of Python as UTF-8, which they keep themselves.
class Texts {
public:
    // The first of them has that number in messages.
    explicit Texts(nb::handle items, std::int64_t first = 0)
        : items_(nb::steal<nb::tuple>(PySequence_Tuple(items.ptr()))), first_(first) {
        if (!items_.is_valid()) throw nb::python_error();
        views.reserve(nb::len(items_));
        for (const nb::handle item : items_) {
            views.push_back(view(item));
            bytes += views.back().size();
        }
    }

    std::vector<std::string_view> views;
    std::size_t bytes = 0;

private:
    std::string_view view(nb::handle item) const {
        const std::string which = "text " + std::to_string(first_ + std::ssize(views));
        if (!PyUnicode_Check(item.ptr()))
            throw std::invalid_argument(which + " must be a string, got " +
                                        nb::cast<std::string>(nb::str(item.type().attr("__name__"))));
        Py_ssize_t size = 0;
        const char* start = PyUnicode_AsUTF8AndSize(item.ptr(), &size);
        if (!start) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
            PyErr_Clear();
            throw std::invalid_argument(which + " has a lone surrogate: it is no text");
        }
        return {start, static_cast<std::size_t>(size)};
    }

    nb::tuple items_;
    std::int64_t first_;
};

// A TextPart with the stop words that it looks into.
struct Part {
    Part(Unit unit, int min_n, int max_n, bool lower, Accents accents, int min_length,
         const std::vector<std::string>& stop, std::int64_t buckets)
        : words(TermArrays::of(stop)), terms(words.view()) {
        part.analysis = {unit, min_n, max_n, lower, accents, min_length, stop.empty() ? nullptr : &terms};
        part.buckets = buckets;
    }
    Part(const Part&) = delete;

    TermArrays words;
    Terms terms;
    TextPart part;
};

std::vector<TextPart> parts_of(const std::vector<const Part*>& parts) {
    std::vector<TextPart> out;
    for (const Part* part : parts) out.push_back(part->part);
    return out;
}

nb::tuple give(TermArrays&& terms) {
    return nb::make_tuple(bind::give(std::move(terms.bytes)), bind::give(std::move(terms.ends)),
                          bind::give(std::move(terms.slots)));
}

struct PartTerms {
    const Part* part;
    Array<std::uint8_t> bytes;
    Array<std::int64_t> ends;
    Array<std::uint64_t> slots;
};

class PyVectorizer {
public:
    PyVectorizer(std::vector<PartTerms> parts, Array<float> idf, const Weighting& weighting)
        : parts_(std::move(parts)), idf_(std::move(idf)), vectorizer(made(), span(idf_), weighting) {}

private:
    std::vector<Vectorizer::Part> made() const {
        std::vector<Vectorizer::Part> out;
        for (const PartTerms& one : parts_) {
            const bool hashed = one.part->part.buckets > 0;
            out.push_back({one.part->part, hashed ? Terms() : Terms(span(one.bytes), span(one.ends), span(one.slots))});
        }
        return out;
    }

    std::vector<PartTerms> parts_;
    Array<float> idf_;

public:
    const Vectorizer vectorizer;
};

constexpr std::size_t kFewBytes = 1 << 16;  // these are not worth a thread

}  // namespace

void register_text(nb::module_& m) {
    nb::enum_<Unit>(m, "Unit")
        .value("word", Unit::word)
        .value("char", Unit::character)
        .value("char_wb", Unit::character_in_word);
    nb::enum_<Accents>(m, "Accents")
        .value("keep", Accents::keep)
        .value("unicode", Accents::unicode)
        .value("ascii", Accents::ascii);
    nb::enum_<Norm>(m, "Norm").value("none", Norm::none).value("l1", Norm::l1).value("l2", Norm::l2);

    nb::class_<Weighting>(m, "Weighting")
        .def(
            "__init__",
            [](Weighting* self, bool binary, bool sublinear, Norm norm) {
                new (self) Weighting{binary, sublinear, norm};
            },
            "binary"_a, "sublinear"_a, "norm"_a);

    nb::class_<Part>(m, "TextPart")
        .def(nb::init<Unit, int, int, bool, Accents, int, const std::vector<std::string>&, std::int64_t>(), "unit"_a,
             "min_n"_a, "max_n"_a, "lower"_a, "accents"_a, "min_length"_a, "stop"_a, "buckets"_a,
             "One way of cutting texts into terms; stop words are sorted and distinct.");

    nb::class_<TermCounter>(m, "TermCounter")
        .def(
            "__init__",
            [](TermCounter* self, const std::vector<const Part*>& parts, bool keep_rows, int threads) {
                new (self) TermCounter(parts_of(parts), keep_rows, threads);
            },
            "parts"_a, "keep_rows"_a, "threads"_a, nb::keep_alive<1, 2>())
        .def_prop_ro("texts", &TermCounter::texts)
        .def(
            "add",
            [](TermCounter& self, nb::handle items, nb::object report) {
                const Texts texts(items, self.texts());
                PythonMonitor monitor(std::move(report));
                const nb::gil_scoped_release released;
                self.add(texts.views, &monitor);
            },
            "texts"_a, "report"_a.none(), "Count the terms of some texts.")
        .def(
            "learn",
            [](TermCounter& self, double min_texts, double max_texts, std::int64_t max_features, bool idf, bool smooth,
               const Weighting& weighting, int threads) {
                TermCounter::Learned learned;
                std::vector<float> weights;
                {
                    const nb::gil_scoped_release released;
                    learned = self.learn({min_texts, max_texts, max_features, weighting.binary});
                    if (idf) weights = inverse_frequency(learned.texts, self.texts(), smooth);
                    if (!learned.counts.indptr.empty()) weigh_terms(learned.counts, weights, weighting, threads);
                }
                nb::list terms;
                for (TermArrays& part : learned.terms) terms.append(give(std::move(part)));
                const std::int64_t features = std::ssize(learned.texts);
                return nb::make_tuple(terms, bind::give(std::move(weights)), features,
                                      bind::give(std::move(learned.counts)));
            },
            "min_texts"_a, "max_texts"_a, "max_features"_a, "idf"_a, "smooth"_a, "weighting"_a, "threads"_a,
            "What was learned: ([(bytes, ends, slots)] by part, idf, features, (indptr, indices, values)).");

    nb::class_<PyVectorizer>(m, "Vectorizer")
        .def(
            "__init__",
            [](PyVectorizer* self, const std::vector<const Part*>& parts, const nb::list& terms, Array<float> idf,
               const Weighting& weighting) {
                if (parts.size() != nb::len(terms)) throw std::invalid_argument("there must be terms for each part");
                std::vector<PartTerms> all;
                for (std::size_t i = 0; i < parts.size(); ++i) {
                    const auto arrays = nb::cast<nb::tuple>(terms[i]);
                    all.push_back({parts[i], nb::cast<Array<std::uint8_t>>(arrays[0]),
                                   nb::cast<Array<std::int64_t>>(arrays[1]),
                                   nb::cast<Array<std::uint64_t>>(arrays[2])});
                }
                new (self) PyVectorizer(std::move(all), std::move(idf), weighting);
            },
            "parts"_a, "terms"_a, "idf"_a.noconvert(), "weighting"_a, nb::keep_alive<1, 2>())
        .def_prop_ro("features", [](const PyVectorizer& self) { return self.vectorizer.features(); })
        .def(
            "transform",
            [](const PyVectorizer& self, nb::handle items, int threads, nb::object report) {
                const Texts texts(items);
                Csr out;
                const bool few = texts.bytes < kFewBytes;
                PythonMonitor monitor(std::move(report));
                {
                    const nb::gil_scoped_release released;
                    out = self.vectorizer.transform(texts.views, few ? 1 : threads, few ? nullptr : &monitor);
                }
                return bind::give(std::move(out));
            },
            "texts"_a, "threads"_a, "report"_a.none(), "The rows of texts: (indptr, indices, values).")
        .def(
            "trace",
            [](const PyVectorizer& self, nb::handle text) {
                const Texts texts(nb::make_tuple(text));
                nb::list out;
                for (const Vectorizer::Found& found : self.vectorizer.trace(texts.views[0]))
                    out.append(nb::make_tuple(found.feature, found.from, found.to, found.term));
                return out;
            },
            "text"_a, "The terms of a text that are features: [(feature, from, to, term)].");
}

}  // namespace carya::bind
