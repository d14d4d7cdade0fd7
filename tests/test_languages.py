"""Tests for rankers in many languages: explanation spans, the explorer, the server, stemming and warnings."""

from __future__ import annotations

import json
import sys
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya.errors import CaryaWarning, FewTermsWarning, MissingExtraError, ModelFormatError, ParameterError
from carya.text.explore.explorer import Explorer

from command_line import run
from topics import corpus

HINDI = ["हिन्दी भाषा की किताब", "हिन्दी कविता", "पानी और नदी", "नदी का पानी ठंडा", "किताब और कविता"]
GERMAN = ["Ärger über Müll", "Müllabfuhr und Ärger", "Äpfel und Käse", "Käse über alles", "Äpfel für alle"]
CHINESE = ["機器學習的方法", "學習機器語言", "蘋果很好吃", "好吃的水果蘋果", "機器的語言"]
THAI = ["ภาษาไทยง่าย", "เรียนภาษาไทย", "อาหารอร่อยมาก", "ชอบอาหารไทย", "ภาษาและอาหาร"]
LABELS = [["a"], ["a"], ["b"], ["b"], ["a", "b"]]

# For each language: training texts, a query, and the substrings of the query that known terms must cover.
QUERIES = {
    "Hindi": (HINDI, "हिन्दी की नई किताब!", ["हिन्दी", "किताब"]),
    "NFD German": (
        [unicodedata.normalize("NFC", text) for text in GERMAN],
        unicodedata.normalize("NFD", "Der Ärger über Käse"),
        [unicodedata.normalize("NFD", word) for word in ("Ärger", "über", "Käse")],
    ),
    "Chinese": (CHINESE, "我在學習 machine 機器語言。", ["學習", "機器語言"]),
    "Thai": (THAI, "เรียน ภาษาไทย ครับ", ["เรียน", "ภาษาไทย"]),
}
ENGLISH = ["fast web servers", "a web server", "photo editors", "editing photos", "serving photos on the web"]
# Further cases, in which some terms are not words; each also contains the settings and the required package.
OPTIONAL: dict[str, tuple[list[str], str, list[str], dict[str, Any], str]] = {
    "stems": (ENGLISH, "The Webs: SERVERS, edited", ["SERVERS", "edited"], {"stemmer": "english"}, "snowballstemmer"),
    "stems and characters": (
        ENGLISH,
        "Webserver 機器 SERVERS",
        ["Webserver", "SERVERS"],
        {"stemmer": "english", "analyzer": "auto"},
        "snowballstemmer",
    ),
    "ICU Chinese": (CHINESE, "我在學習 machine 機器語言。", ["學習", "機器語言"], {"segmenter": "icu"}, "icu4py"),
    "ICU Thai": (THAI, "เรียน ภาษาไทย ครับ", ["เรียน", "ภาษาไทย"], {"segmenter": "icu"}, "icu4py"),
    "ICU and characters": (
        CHINESE,
        "我在學習 machine 機器語言。",
        ["學習", "機器語言"],
        {"segmenter": "icu", "analyzer": "auto"},
        "icu4py",
    ),
    "characters": (HINDI, "हिन्दी की नई किताब!", ["हिन्दी", "किताब"], {"analyzer": "auto"}, "carya"),
}


@pytest.fixture(params=list(QUERIES), ids=list(QUERIES))
def case(request: pytest.FixtureRequest) -> tuple[carya.TextRanker, str, list[str]]:
    """A ranker for texts in one language, a query, and the parts of the query that contain known terms."""
    texts, query, known = QUERIES[request.param]
    return carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, LABELS), query, known


@pytest.fixture(params=[*QUERIES, *OPTIONAL], ids=[*QUERIES, *OPTIONAL])
def any_case(request: pytest.FixtureRequest) -> tuple[carya.TextRanker, str, list[str]]:
    """The same as `case`, plus rankers with stemming, ICU segmentation or character n-grams."""
    if request.param in QUERIES:
        texts, query, known = QUERIES[request.param]
        return carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, LABELS), query, known
    texts, query, known, settings, package = OPTIONAL[request.param]
    pytest.importorskip(package)
    return carya.TextRanker(carya.Tfidf(min_df=1, **settings)).fit(texts, LABELS), query, known


def covered(text: str, spans: Any) -> str:
    """Replace each character outside the spans with a space."""
    inside = {position for begin, end in spans for position in range(begin, end)}
    return "".join(c if position in inside else " " for position, c in enumerate(text))


def test_explanations_and_the_explorer_mark_the_original_words(case: tuple[carya.TextRanker, str, list[str]]) -> None:
    ranker, query, known = case
    assert ranker.suggest(query, top_k=1)[0].label == "a"
    explanation = ranker.explain(query, "a")
    marked = covered(query, [span for term in explanation.terms for span in term.spans])
    assert any(word in marked for word in known)  # terms without weights are not listed
    trace = Explorer(ranker).search(query)
    marked = covered(query, trace.known_spans)
    assert all(word in marked for word in known)
    for begin, _ in trace.known_spans:  # no combining mark is separated from its base letter
        assert not unicodedata.combining(query[begin])
    for term in explanation.terms:
        for begin, end in term.spans:
            compared = unicodedata.normalize("NFC", query[begin:end].lower())
            assert "".join(c for c in compared if c.isalnum()) == "".join(c for c in term.term if c.isalnum())


def test_the_server_returns_spans_in_the_original_text(
    any_case: tuple[carya.TextRanker, str, list[str]], tmp_path: Path
) -> None:
    pytest.importorskip("starlette")
    from carya.serve.app import create_app
    from carya.serve.settings import ServerSettings

    from serving import Client

    ranker, query, known = any_case
    ranker.save(tmp_path / "m")
    with Client(create_app({"m": tmp_path / "m"}, ServerSettings(log_level="error"))) as client:
        suggestions = client.post("/v1/suggest", {"text": query}).json()["results"][0]["suggestions"]
        assert [suggestion["label"] for suggestion in suggestions] == [best.label for best in ranker.suggest(query)]
        explanation = client.post("/v1/explain", {"text": query, "label": "a"}).json()
        expected = [[list(span) for span in term.spans] for term in ranker.explain(query, "a").terms]
        assert [term["spans"] for term in explanation["terms"]] == expected
        trace = client.post("/v1/explore/text", {"text": query}).json()
        assert all(word in covered(query, trace["known_spans"]) for word in known)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert client.post("/v1/suggest", {"text": "xyz"}).json()["results"][0]["suggestions"] == []


def test_normalization_forms_give_the_same_ranking() -> None:
    ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(GERMAN, LABELS)
    for text in GERMAN:
        forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
        assert ranker.suggest(forms[0]) == ranker.suggest(forms[1])


def test_stemmed_rankers_are_saved_and_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("snowballstemmer")
    texts = ["fast web servers", "a web server", "photo editors", "editing photos", "serving photos on the web"]
    ranker = carya.TextRanker(carya.Tfidf(min_df=1, stemmer="english")).fit(texts, LABELS)
    ranker.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    query = "Web-Servers and EDITED photo"
    assert opened.vectorizer_.stemmer == "english"
    assert opened.suggest(query) == ranker.suggest(query)
    assert opened.suggest_all([query] * 20)[7] == ranker.suggest(query)
    spans = {term.term: [query[begin:end] for begin, end in term.spans] for term in opened.explain(query, "a").terms}
    assert spans["server"] == ["Servers"]
    assert spans["web server"] == ["Web-Servers"]
    assert spans["edit"] == ["EDITED"]
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(MissingExtraError, match=r"stemmer='english' requires snowballstemmer\. .*carya\[stem\]"):
        carya.load(tmp_path / "model")


def test_unknown_stemmers_in_saved_models_are_rejected(tmp_path: Path) -> None:
    pytest.importorskip("snowballstemmer")
    ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(HINDI, LABELS)
    ranker.save(tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["parameters"]["text"]["stemmer"] = "klingon"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ModelFormatError):
        carya.load(tmp_path / "model")


def test_segmented_rankers_are_saved(tmp_path: Path) -> None:
    pytest.importorskip("icu4py")
    ranker = carya.TextRanker(carya.Tfidf(min_df=1, segmenter="icu")).fit(CHINESE, LABELS)
    ranker.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    query = "我在學習機器語言。"
    assert opened.suggest(query) == ranker.suggest(query)
    spans = {term.term: [query[begin:end] for begin, end in term.spans] for term in opened.explain(query, "a").terms}
    assert spans["機器"] == ["機器"]
    assert spans["語言"] == ["語言"]


@pytest.mark.parametrize("as_iterator", [False, True])
@pytest.mark.parametrize("method", ["fit", "fit_transform"])
def test_texts_with_hardly_any_terms_are_reported(method: str, as_iterator: bool) -> None:
    def given(texts: list[str]) -> Any:
        return iter(texts) if as_iterator else texts

    # Without segmentation, every sentence is one word that occurs only once.
    texts = [f"{first}{second}你好世界。" for first in "機器學習方法" for second in "蘋果語言"] + ["你好", "你好"]
    with pytest.warns(
        FewTermsWarning, match=r"typical text has 0\.\d terms.* min_df \(now 2\).*segmenter='bigrams'.*char_wb"
    ):
        getattr(carya.Tfidf(segmenter=None), method)(given(texts))
    with pytest.warns(FewTermsWarning, match=r"tokenizer='unicode'"):
        getattr(carya.Tfidf(tokenizer="sklearn"), method)(given(texts))
    getattr(carya.Tfidf(), method)(given(texts))
    getattr(carya.Tfidf(segmenter=None), method)(given([*texts[:2], "你好", "你好"]))  # too few texts for a warning


def test_auto_chooses_the_analyzers_by_the_length_of_texts() -> None:
    short, _ = corpus(200)
    long = [" ".join(short[begin : begin + 20]) for begin in range(0, 200, 4)]
    assert sum(map(len, short)) <= 500 * len(short)
    assert sum(map(len, long)) > 500 * len(long)
    expected = carya.Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 3), (4, 4)]).fit_transform(short)
    for texts in (short, iter(short)):
        auto = carya.Tfidf(analyzer="auto", ngram_range=(1, 3))
        X = auto.fit_transform(texts)
        assert (expected != X).nnz == 0
        assert (auto.analyzer, auto.analyzers_) == ("auto", ["word", "char_wb"])
        assert auto.fitted_parameters_["ngram_range"] == ((1, 3), (4, 4))
    words = carya.Tfidf(analyzer="auto").fit(long)
    assert words.analyzers_ == ["word"]
    assert np.array_equal(words.get_feature_names_out(), carya.Tfidf().fit(long).get_feature_names_out())
    with pytest.raises(ParameterError, match=r"ngram_range must be a single pair \(for words\) if analyzer is 'auto'"):
        carya.Tfidf(analyzer="auto", ngram_range=[(1, 2), (3, 5)]).fit(short)
    with pytest.raises(ParameterError, match="or 'auto', got"):
        carya.Tfidf(analyzer=["auto", "word"]).fit(short)


def test_contributions_of_character_n_grams_are_added_to_words() -> None:
    ranker = carya.TextRanker(model=carya.XRLinear(max_leaf_size=6)).fit(*corpus())
    assert ranker.vectorizer_.analyzers_ == ["word", "char_wb"]
    text = "Planetary moons, and a telescope; 機器"
    words = {"planetary", "moons", "moon", "and", "a", "telescope"}
    for label in ("astronomy", "chess"):
        explanation = ranker.explain(text, label)
        assert explanation.terms
        for terms in (explanation.terms, *(level.terms for level in explanation.levels)):
            assert {word for term in terms for word in term.term.split()} <= words
            for term in terms:
                for begin, end in term.spans:
                    assert text[begin:end].lower().split()[0].strip(",;") in words
        total = explanation.base + sum(term.contribution for term in explanation.terms)
        assert np.exp(total) == pytest.approx(explanation.score, rel=1e-6)
    # "planetary" and "moons" are unknown words, but some of their character n-grams are known.
    assert "planetary" in {term.term for term in ranker.explain(text, "astronomy").terms}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved ranker."""
    folder = tmp_path_factory.mktemp("model") / "model"
    carya.TextRanker(carya.Tfidf(min_df=1)).fit(HINDI, LABELS).save(folder)
    return folder


def test_the_command_line_warns_about_texts_without_known_terms(model: Path, tmp_path: Path) -> None:
    lines = ["नदी का पानी", "unknown", *["किताब"] * 3000, "also unknown"]
    result = run("predict", str(model), "-", input="\n".join(lines))
    assert len(result.stdout.splitlines()) == len(lines)
    assert result.stderr.splitlines() == [
        "carya: warning: Text 2 contains no known terms, so nothing is suggested for it. Train on texts in the same "
        "language and domain, or with analyzer='char_wb', which also matches parts of words.",
        "carya: warning: 2 of 3,003 texts contain no known terms.",
    ]
    assert run("predict", str(model), "-", input="नदी\n").stderr == ""
    (tmp_path / "data.jsonl").write_text(
        json.dumps({"text": "unknown", "labels": ["a"]}) + "\n" + json.dumps({"text": "नदी", "labels": ["b"]}) + "\n",
        encoding="utf-8",
    )
    result = run("evaluate", str(model), str(tmp_path / "data.jsonl"))
    assert result.returncode == 0
    assert "carya: warning: 1 of 2 texts contains no known terms, so nothing is suggested for it" in result.stderr


def test_the_command_line_warns_about_training_texts_with_few_terms(tmp_path: Path) -> None:
    rows = [{"text": f"word{number} same", "labels": ["a"]} for number in range(30)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = str(tmp_path / "model")
    result = run("train", str(tmp_path / "data.jsonl"), "-o", out, "--analyzer", "word")
    assert result.returncode == 0, result.stderr
    assert "carya: warning: A typical text has 1.0 terms" in result.stderr
    result = run("train", str(tmp_path / "data.jsonl"), "-o", out, "--force")
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr  # for short texts, the default includes character n-grams


# Command-line options, the package that they require, a query, and its expected label.
OPTIONS = {
    "stemmer": (["--stemmer", "english"], "snowballstemmer", "Photo EDITED", "b"),
    "icu": (["--segmenter", "icu"], "icu4py", "學習機器語言", "c"),
    "both": (
        ["--stemmer", "english", "--segmenter", "icu", "--analyzer", "word"],
        "icu4py",
        "edited 學習機器語言",
        "c",
    ),
    "bigrams": (["--segmenter", "bigrams", "--tokenizer", "unicode"], "carya", "學習", "c"),
}
MODELS: dict[str, list[str]] = {"tree": [], "ensemble": ["--trees", "2"], "annexml": ["--preset", "annexml"]}


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("option", list(OPTIONS))
def test_stemmers_and_segmenters_on_the_command_line(option: str, model: str, tmp_path: Path) -> None:
    options, package, query, label = OPTIONS[option]
    pytest.importorskip(package)
    pytest.importorskip("snowballstemmer" if "--stemmer" in options else "carya")
    texts = {"a": ["fast web servers", "a web server"], "b": ["photo editors", "editing photos"], "c": CHINESE[:2]}
    rows = [{"text": text, "labels": [name]} for name in texts for text in texts[name]] * 4
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = str(tmp_path / "model")
    result = run("train", str(tmp_path / "data.jsonl"), "-o", out, *options, *MODELS[model])
    assert result.returncode == 0, result.stderr
    ranker = carya.load(out)
    assert ranker.vectorizer_.stemmer == ("english" if "--stemmer" in options else None)
    assert ranker.vectorizer_.segmenter == ("icu" if "icu" in options else "bigrams")
    result = run("predict", out, "-", "--top-k", "1", input=query + "\n")
    assert json.loads(result.stdout)["labels"][0]["label"] == ranker.suggest(query)[0].label == label


def test_unknown_stemmers_on_the_command_line_are_rejected(tmp_path: Path) -> None:
    pytest.importorskip("snowballstemmer")
    (tmp_path / "data.jsonl").write_text(json.dumps({"text": "a b", "labels": ["a"]}) + "\n", encoding="utf-8")
    result = run("train", str(tmp_path / "data.jsonl"), "-o", str(tmp_path / "model"), "--stemmer", "klingon")
    assert result.returncode == 2
    assert "stemmer must be None or one of" in result.stderr


def test_warnings_have_a_common_category() -> None:
    assert issubclass(FewTermsWarning, CaryaWarning)
    assert issubclass(CaryaWarning, UserWarning)
