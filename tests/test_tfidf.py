"""Tests for Tfidf: comparison with scikit-learn and a reference tokenizer for many languages and unusual strings."""

from __future__ import annotations

import copy
import sys
import threading
import unicodedata
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer

import carya
from carya.errors import InputError, MissingExtraError, NotFittedError, ParameterError, UnknownParameterError

from reference_tokenizer import reference_analyzer

pytestmark = pytest.mark.filterwarnings("ignore::carya.errors.FewTermsWarning")  # many texts here are single characters

LANGUAGES = [
    "The quick brown fox jumps over the lazy dog, the dog sleeps.",
    "Größere Straßen führen über die Brücke; GROẞE STRASSE",
    "ΟΔΥΣΣΕΥΣ ΣΟΦΟΣ, Σ Σ. ΑΣ' ὁδός Ὀδυσσεύς ΤΟΥΣ",
    "İstanbul'da IĞDIR ışık ve İZMİR",
    "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "Zażółć gęślą jaźń, ZAŻÓŁĆ GĘŚLĄ JAŹŃ",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "שלום עולם, ברוך הבא",
    "مرحبا بالعالم العَرَبِيّ ١٢٣",
    "नमस्ते दुनिया हिन्दी क्षत्रिय क़िला क्‍ष",
    "বাংলা ভাষা কোণ",
    "می‌خواهم می خواهم مِيَاه",
    "ភាសាខ្មែរ ລາວພາສາ မြန်မာဘာသာ ᩈᩢᨠ 機器學習Python程式ที่ ๒๕๖๗",
    "か\u3099くせい がくせい ｶﾞ 한\u1112\u1161\u11ab x\u0304 H\u0331 a\u0334\u0323\u0301 İ\u0334 \u0301a \u212b \u0958",
    "สวัสดีชาวโลก ภาษาไทย",
    "你好，世界！机器学习 與 機器學習",
    "こんにちは世界 ｶﾀｶﾅ カタカナ ㍿ ①②",
    "안녕하세요 세계 한국어 문장",
    "emoji 👩‍👩‍👧 🏳️‍🌈 flag 🇫🇮 ok",
    "zero\u200bwidth joi\u200dner soft\u00adhyphen \ufeffbom",
    "e\u0301cole école ÉCOLE E\u0301COLE naïve ﬁne ﬃ ſ K Å",
    "a\x00b nul \x1c\x1d\x85 tab\ttab\u2028line\u2029par\u3000wide",
    "snake_case camelCase x1 2² ½ Ⅷ ⅷ 10,000.00",
    "ǅ ǆ Ǆ ᾳ ᾼ ΐ ŉ ẖ ᲀ Ა ა Ꭰ ꭰ 𐐀 𐐨 𝒳 𝟘",
    "\U0010ffff \ue000 \ufffd \ufdfa",
    "",
    "  ",
    "a",
]

# Unassigned characters are compared only if Python and the native tables use the same Unicode version.
SAME_UNICODE = unicodedata.unidata_version == "14.0.0"


def comparable(text: str) -> bool:
    """Return whether Python and the native tables agree on all characters of a text."""
    return SAME_UNICODE or all(unicodedata.category(c) != "Cn" for c in text)


def sklearn_tfidf(*, tokenizer: str = "sklearn", **settings: Any) -> TfidfVectorizer:
    """Return scikit-learn's vectorizer with float64 values; tokenizer="unicode" selects the reference tokenizer."""
    if tokenizer == "unicode":
        names = ("analyzer", "ngram_range", "lowercase", "strip_accents", "min_word_length", "segmenter", "stop_words")
        terms = reference_analyzer(**{name: settings.pop(name) for name in names if name in settings})
        settings["analyzer"] = terms
    return TfidfVectorizer(dtype=np.float64, **settings)


def carya_tfidf(**settings: Any) -> carya.Tfidf:
    """Return Carya's vectorizer with scikit-learn's default settings."""
    defaults: dict[str, Any] = {
        "ngram_range": (1, 1),
        "min_df": 1,
        "sublinear_tf": False,
        "tokenizer": "sklearn",
        "lead_weight": 0,
    }
    return carya.Tfidf(**defaults | settings)


def assert_same(texts: list[str], others: list[str], **settings: Any) -> bool:
    """Check that both vectorizers return the same rows; return False if both reject the texts."""
    sklearn = sklearn_tfidf(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = sklearn.fit_transform(texts)
        except ValueError:
            with pytest.raises((InputError, ParameterError)):
                carya_tfidf(**settings).fit(texts)
            return False
        expected_others = sklearn.transform(others)
    tfidf = carya_tfidf(**settings)
    X = tfidf.fit_transform(texts)
    assert tfidf.get_feature_names_out().tolist() == sklearn.get_feature_names_out().tolist()
    assert_close(X, expected)
    assert_close(tfidf.transform(others), expected_others)
    single_threaded = carya_tfidf(**settings, n_jobs=1).fit(iter(texts))
    assert (single_threaded.transform(texts) != X).nnz == 0
    return True


def assert_close(X: sp.csr_array, expected: sp.csr_matrix) -> None:
    """Check that two matrices are equal up to float32 rounding."""
    assert X.shape == expected.shape
    if expected.size:
        assert abs(X - expected).max() <= 1e-6 * max(1, abs(expected).max())


ANALYSES = [
    {"analyzer": "word", "ngram_range": (1, 1)},
    {"analyzer": "word", "ngram_range": (1, 3)},
    {"analyzer": "word", "ngram_range": (2, 2)},
    {"analyzer": "char", "ngram_range": (1, 1)},
    {"analyzer": "char", "ngram_range": (1, 4)},
    {"analyzer": "char", "ngram_range": (3, 3)},
    {"analyzer": "char_wb", "ngram_range": (1, 5)},
    {"analyzer": "char_wb", "ngram_range": (4, 4)},
]


TOKENIZERS: list[dict[str, Any]] = [
    {"tokenizer": "sklearn"},
    {"tokenizer": "unicode"},
    {"tokenizer": "unicode", "segmenter": None},
]


@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("analysis", ANALYSES, ids=str)
def test_texts_in_many_languages(analysis: dict[str, Any], lowercase: bool, accents: str | None) -> None:
    texts = [text for text in LANGUAGES if comparable(text)]
    for tokenizer in TOKENIZERS if analysis["analyzer"] == "word" else TOKENIZERS[:2]:
        settings = analysis | tokenizer
        assert assert_same(texts, texts[::-1], lowercase=lowercase, strip_accents=accents, **settings)


@pytest.mark.skipif(not SAME_UNICODE, reason="requires the Unicode version of the native tables")
@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
@pytest.mark.parametrize("tokenizer", ["sklearn", "unicode"])
def test_every_character(tokenizer: str, accents: str | None) -> None:
    """Test each character between two letters, where it can separate words, and before Σ, which becomes σ or ς."""
    points = [p for p in range(sys.maxunicode + 1) if not 0xD800 <= p < 0xE000]
    texts = ["".join(f"q{chr(p)}x{chr(p)}Σ " for p in points[i : i + 256]) for i in range(0, len(points), 256)]
    assert assert_same(texts, texts[:1], strip_accents=accents, ngram_range=(1, 1), tokenizer=tokenizer)


@pytest.mark.skipif(not SAME_UNICODE, reason="requires the Unicode version of the native tables")
def test_every_character_in_decomposed_form() -> None:
    """NFD texts have the same terms as NFC texts, for each character with and without additional marks."""
    points = [p for p in range(sys.maxunicode + 1) if not 0xD800 <= p < 0xE000]
    points = [p for p in points if unicodedata.normalize("NFD", chr(p)) != chr(p)]
    for marks in ("", "\u0301", "\u0323\u0301", "\u0334"):
        texts = [unicodedata.normalize("NFD", f"q{chr(p)}{marks}x") for p in points]
        assert assert_same(texts, [f"q{chr(p)}{marks}x" for p in points], tokenizer="unicode")


# Letters with marks that NFC composes or reorders, jamo, joiners, and scripts without spaces.
TRICKY = st.text("aAeEhHİIΣσq \u0301\u0323\u0331\u0334\u0307\u0345\u093c\u094dकि\u09be\u09c7\u200c\u200d\u00ad\ufe0f"
                 "\u1100\u1161\u11a8가機器のか\u3099ที่๑a1_-,", max_size=24)  # fmt: skip


@given(
    texts=st.lists(TRICKY, min_size=1, max_size=6),
    analysis=st.sampled_from(ANALYSES),
    lowercase=st.booleans(),
    accents=st.sampled_from([None, "unicode", "ascii"]),
    stop_words=st.sampled_from([None, ["機", "の", "aa"]]),
)
def test_marks_and_joiners_in_any_order(
    texts: list[str], analysis: dict[str, Any], lowercase: bool, accents: str | None, stop_words: list[str] | None
) -> None:
    settings = analysis | {"lowercase": lowercase, "strip_accents": accents, "stop_words": stop_words}
    if not assert_same(texts, texts, tokenizer="unicode", **settings):
        return
    tfidf = carya_tfidf(tokenizer="unicode", **settings).fit(texts)
    for text in texts:
        features, _ = tfidf.row(text)
        terms = tfidf.terms_in(text)
        assert sorted({term.feature for term in terms}) == features.tolist()
        assert all(0 <= term.begin <= term.end <= len(text) for term in terms)


WORDS = st.lists(st.sampled_from(["red", "Red", "GREEN", "blue", "éclair", "x", "Σας", "blue-green", "7"]), max_size=12)
TEXTS = st.lists(st.one_of(WORDS.map(" ".join), st.text(max_size=20)), min_size=1, max_size=12)


@example(texts=["aa aa bb"], others=["aa"], settings={"norm": None}, analysis=ANALYSES[0])
@given(
    texts=TEXTS,
    others=TEXTS,
    settings=st.fixed_dictionaries(
        {
            "min_df": st.sampled_from([1, 2, 0.2, 0.5]),
            "max_df": st.sampled_from([1.0, 0.5, 3]),
            "binary": st.booleans(),
            "use_idf": st.booleans(),
            "smooth_idf": st.booleans(),
            "sublinear_tf": st.booleans(),
            "norm": st.sampled_from(["l1", "l2", None]),
            "strip_accents": st.sampled_from([None, "unicode", "ascii"]),
            "lowercase": st.booleans(),
            "stop_words": st.sampled_from([None, ["red", "blue"], ["σας"]]),
        }
    ),
    analysis=st.sampled_from(ANALYSES),
)
def test_all_settings_equal_scikit_learn(
    texts: list[str], others: list[str], settings: dict[str, Any], analysis: dict[str, Any]
) -> None:
    texts, others = ([text for text in part if comparable(text)] for part in (texts, others))
    if texts:
        assert_same(texts, others, **(settings | analysis))


def test_max_features_keeps_the_most_frequent_terms() -> None:
    texts = ["aa aa aa bb bb cc", "bb dd dd dd dd", "cc ee"]
    assert assert_same(texts, texts, max_features=1)  # dd occurs four times
    # aa and bb are equally frequent, and Carya keeps aa; scikit-learn does not specify which of them it keeps.
    assert carya_tfidf(max_features=2).fit(texts).get_feature_names_out().tolist() == ["aa", "dd"]
    assert carya_tfidf(max_features=1, binary=True).fit(texts).get_feature_names_out().tolist() == ["bb"]


@given(TEXTS, st.sampled_from([1, 7, 1000]))
def test_buckets_equal_scikit_learn_hashing(texts: list[str], n_buckets: int) -> None:
    texts = [text for text in texts if comparable(text)]
    if not texts:
        return
    counts = HashingVectorizer(n_features=n_buckets, alternate_sign=False, norm=None).transform(texts)
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    X = carya.Tfidf(ngram_range=(1, 1), n_buckets=n_buckets, tokenizer="sklearn").fit_transform(texts)
    assert X.shape == (len(texts), n_buckets)
    assert np.allclose(X.toarray(), expected.toarray(), rtol=1e-6, atol=1e-7)


def test_features_of_several_analyzers_are_concatenated() -> None:
    texts = ["red green", "green blue", "blue red red"]
    both = carya_tfidf(analyzer=["word", "char"], ngram_range=[(1, 1), (2, 2)], norm=None).fit(texts)
    words = sklearn_tfidf(norm=None).fit(texts)
    chars = sklearn_tfidf(norm=None, analyzer="char", ngram_range=(2, 2)).fit(texts)
    expected = np.hstack([words.transform(texts).toarray(), chars.transform(texts).toarray()])
    assert np.allclose(both.transform(texts).toarray(), expected, rtol=1e-6)
    assert both.get_feature_names_out()[:4].tolist() == ["word:blue", "word:green", "word:red", "char: b"]
    normalized = carya_tfidf(analyzer=["word", "char"], ngram_range=[(1, 1), (2, 2)]).fit_transform(texts).toarray()
    assert np.allclose(normalized, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)


def test_long_texts() -> None:
    texts = ["word " * 200_000, "x" * 1_000_000, "é" * 1_000_000 + " other"]
    assert assert_same(texts, texts)


def test_invalid_texts_are_rejected() -> None:
    for texts, message in [
        ("abc", "texts must be a list of strings, got a single str. Pass [text] for one text."),
        (5, "texts must be a list, tuple, iterator, one-dimensional array or column of strings, got int."),
        (["a", None], "Text 1 must be a string, got NoneType."),
        ([b"a"], "Text 0 must be a string, got bytes."),
        (["ok", "bad \ud800"], "Text 1 contains a lone surrogate, which is not valid Unicode text."),
        ([], "texts is empty. At least one text is required."),
    ]:
        with pytest.raises(InputError) as caught:
            carya.Tfidf(min_df=1).fit(texts)
        assert str(caught.value) == message
    with pytest.raises(
        InputError, match=r"No term occurs in at least 2 and at most 2 of the 2 texts\. Decrease min_df \(now 2\)"
    ):
        carya.Tfidf().fit(["one two", "three four"])
    fitted = carya.Tfidf(min_df=1).fit(["one two"])
    with pytest.raises(InputError, match="Text 0 must be a string, got int"):
        fitted.row(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"analyzer": "words"}, "analyzer must be one of 'word', 'char', 'char_wb', a list of these, or 'auto'"),
        ({"analyzer": []}, "analyzer must be one of"),
        ({"ngram_range": (2, 1)}, "ngram_range must be a pair of integers (min, max)"),
        ({"ngram_range": 2}, "ngram_range must be a pair of integers"),
        ({"ngram_range": [(1, 2), (1, 2)]}, "ngram_range must have one pair per analyzer (1), got 2 pairs"),
        ({"stop_words": "french"}, "stop_words must be a list of words, 'english' or None"),
        ({"min_df": 1.5}, "min_df must be an integer >= 1 or a number between 0 and 1, got 1.5"),
        ({"min_df": 3, "max_df": 2}, "max_df must not be less than min_df, got max_df=2 and min_df=3 for 4 texts"),
        ({"norm": "l3"}, "norm must be 'l1', 'l2' or None, got 'l3'"),
        ({"n_buckets": 0}, "n_buckets must be an integer"),
        ({"min_df": 10**400}, "min_df must be an integer between 1 and 2147483647 or a number between 0 and 1"),
        ({"stop_words": ["\ud800"]}, "which contains a lone surrogate"),
    ],
)
def test_invalid_parameters_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        carya.Tfidf(**settings).fit(["some words"] * 4)
    assert message in str(caught.value)


def test_unknown_parameters_and_unfitted_vectorizers_are_rejected() -> None:
    with pytest.raises(UnknownParameterError, match=r"Tfidf has no parameter 'token_pattern'\. Use min_word_length\."):
        carya.Tfidf(token_pattern=r"\w+")  # type: ignore[call-arg]
    with pytest.raises(NotFittedError):
        carya.Tfidf().transform(["a"])


def test_scikit_learn_can_clone_vectorizers() -> None:
    copied = clone(carya.Tfidf(ngram_range=(1, 3), n_buckets=10))
    assert copied.get_params() == carya.Tfidf(ngram_range=(1, 3), n_buckets=10).get_params()


def test_english_stop_words_are_dropped() -> None:
    english = carya.Tfidf(stop_words="english", min_df=1, ngram_range=(1, 1)).fit(["the cat and the dog"])
    assert english.get_feature_names_out().tolist() == ["cat", "dog"]


@pytest.mark.parametrize("tokenizer", ["sklearn", "unicode"])
@pytest.mark.parametrize("analysis", ANALYSES, ids=str)
@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
def test_terms_have_their_spans_in_the_text(analysis: dict[str, Any], accents: str | None, tokenizer: str) -> None:
    tfidf = carya_tfidf(strip_accents=accents, tokenizer=tokenizer, **analysis).fit(LANGUAGES)
    names = tfidf.get_feature_names_out()
    for text in LANGUAGES:
        terms = tfidf.terms_in(text)
        features, _ = tfidf.row(text)
        assert sorted({term.feature for term in terms}) == features.tolist()
        for term in terms:
            assert names[term.feature] == term.text
            assert 0 <= term.begin <= term.end <= len(text)
            if accents is None and text.isascii():
                span = " ".join(text[term.begin : term.end].split()).lower()
                if analysis["analyzer"] == "char_wb":
                    assert span == term.text.strip()
                if analysis["analyzer"] == "word" and analysis["ngram_range"] == (1, 1):
                    assert span == term.text


def words_and_spans(text: str, **settings: Any) -> dict[str, str]:
    """Map each term of a text to the substring that its span covers."""
    defaults: dict[str, Any] = {"min_df": 1, "ngram_range": (1, 1)}
    tfidf = carya.Tfidf(**defaults | settings).fit([text])
    return {term.text: text[term.begin : term.end] for term in tfidf.terms_in(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("हिन्दी की किताब", {"हिन्दी": "हिन्दी", "की": "की", "किताब": "किताब"}),
        ("বাংলা ভাষা", {"বাংলা": "বাংলা", "ভাষা": "ভাষা"}),
        ("العَرَبِيَّة", {"العَرَبِيَّة": "العَرَبِيَّة"}),
        ("A\u0308rger u\u0308ber", {"ärger": "A\u0308rger", "über": "u\u0308ber"}),
        ("\u00c4rger", {"ärger": "\u00c4rger"}),
        ("می\u200cخواهم", {"میخواهم": "می\u200cخواهم"}),
        ("x 機器 y", {"機": "機", "器": "器", "機器": "機器"}),
        ("ที่นี่", {"ที่": "ที่", "นี่": "นี่", "ที่นี่": "ที่นี่"}),
        ("Python語abc", {"python": "Python", "語": "語", "abc": "abc"}),
        ("か\u3099く", {"が": "か\u3099", "く": "く", "がく": "か\u3099く"}),
        ("๒๕๖๗ soft\u00adhyphen", {"๒๕๖๗": "๒๕๖๗", "softhyphen": "soft\u00adhyphen"}),
    ],
)
def test_words_of_many_languages_and_their_spans(text: str, expected: dict[str, str]) -> None:
    assert words_and_spans(text) == expected


def test_spans_of_decomposed_texts_cover_the_original_characters() -> None:
    text = "xx A\u0308\u0323b xx"  # normalized to Ạ̈, with the marks in the opposite order
    assert words_and_spans(text) == {"xx": "xx", "ạ\u0308b": "A\u0308\u0323b"}
    tfidf = carya.Tfidf(analyzer="char_wb", ngram_range=(3, 3), min_df=1).fit(["\u00e9a"])
    assert [(term.begin, term.end) for term in tfidf.terms_in("- e\u0301a")] == [(2, 5), (2, 5)]


def test_icu_splits_scripts_without_spaces_into_words() -> None:
    pytest.importorskip("icu4py")
    assert words_and_spans("機器學習 and ภาษาไทย!", segmenter="icu") == {
        "機器": "機器", "學習": "學習", "and": "and", "ภาษา": "ภาษา", "ไทย": "ไทย"
    }  # fmt: skip
    # 𠮷 takes two UTF-16 code units, and か + U+3099 become one character.
    assert words_and_spans("𠮷 か\u3099くせいは学校", segmenter="icu")["学校"] == "学校"
    both = carya.Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 1), (4, 4)], segmenter="icu", min_df=1)
    names = both.fit(["機器學習"]).get_feature_names_out().tolist()
    assert {"word:機器", "word:學習", "char_wb:機器學習"} <= set(names)
    assert both.rows(iter(["機器", "x"]))[0].tolist()[1] > 0


def test_missing_icu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu4py", None)
    monkeypatch.setitem(sys.modules, "icu4py.breakers", None)
    with pytest.raises(MissingExtraError, match=r"segmenter='icu' requires icu4py\. .*carya\[icu\].*'bigrams'"):
        carya.Tfidf(segmenter="icu").fit(["a b"])


def test_a_stemmer_joins_the_forms_of_a_word() -> None:
    pytest.importorskip("snowballstemmer")
    texts = ["The servers are running", "a server runs fast"]
    tfidf = carya.Tfidf(stemmer="english", min_df=2, ngram_range=(1, 2)).fit(texts)
    assert tfidf.get_feature_names_out().tolist() == ["run", "server"]
    # The word forms in the query do not occur in the training texts.
    query = "Serverless? RUNNING server's"
    assert [(query[t.begin : t.end], t.text) for t in tfidf.terms_in(query)] == [
        ("RUNNING", "run"),
        ("server", "server"),
    ]
    for n_jobs in (1, 3):
        again = carya.Tfidf(stemmer="english", min_df=2, n_jobs=n_jobs).fit_transform(iter(texts * 50))
        assert (again[:2] != carya.Tfidf(stemmer="english", min_df=2).fit(texts * 50).transform(texts)).nnz == 0
    stops = carya.Tfidf(stemmer="english", min_df=1, stop_words=["running"]).fit(["running runs"])
    assert stops.get_feature_names_out().tolist() == ["run"]  # stop words are removed before stemming
    assert words_and_spans("機器 houses", stemmer="english") == {
        "機": "機",
        "器": "器",
        "機器": "機器",
        "hous": "houses",
    }
    copied = copy.deepcopy(tfidf.set_params(stemmer=None))
    assert copied.row(query)[0].tolist() == tfidf.row(query)[0].tolist()


def test_each_distinct_word_is_stemmed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    snowballstemmer = pytest.importorskip("snowballstemmer")
    calls: list[list[str]] = []
    real = snowballstemmer.stemmer

    class Recorder:
        def __init__(self, language: str) -> None:
            self._stemmer = real(language)

        def stemWords(self, words: list[str]) -> list[str]:  # noqa: N802 (the name in snowballstemmer)
            calls.append(words)
            return list(self._stemmer.stemWords(words))

    monkeypatch.setattr(snowballstemmer, "stemmer", Recorder)
    tfidf = carya.Tfidf(stemmer="english", min_df=1).fit(iter(["red cats", "cats run"] * 5000))
    assert calls == [["cats", "red", "run"]]
    tfidf.row("cats")
    tfidf.transform(["new cats", "new"])
    tfidf.terms_in("new")
    assert calls[1:] == [["cats"], ["new"]]  # the fitted vectorizer caches stems in its own table


def test_a_full_table_of_stems_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("snowballstemmer")
    from carya.text.preprocessing import stemming

    tfidf = carya.Tfidf(stemmer="english", min_df=1).fit(["cats run"])
    expected = tfidf.row("cat running dogs")[0].tolist()
    monkeypatch.setattr(stemming, "_MAX_WORDS", 4)
    for number in range(20):
        assert tfidf.row(f"cat running dogs{number}")[0].tolist() == expected
        assert len(tfidf._state.stemmer.table) <= 4 + 3  # type: ignore[union-attr]


def test_stemmers_can_be_used_by_several_threads() -> None:
    pytest.importorskip("snowballstemmer")
    tfidf = carya.Tfidf(stemmer="english", min_df=1).fit(["cats run"])
    found: list[list[int]] = []

    def query(seed: int) -> None:
        for number in range(200):
            found.append(tfidf.row(f"cat running words{number * seed}")[0].tolist())

    threads = [threading.Thread(target=query, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 800
    assert {tuple(features) for features in found} == {tuple(tfidf.row("cat run")[0].tolist())}


def test_unknown_languages_and_missing_stemmers_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("snowballstemmer")
    with pytest.raises(
        ParameterError, match=r"stemmer must be None or one of .*'german'.*, got 'germn'\. .*'german'\?"
    ):
        carya.Tfidf(stemmer="germn").fit(["a b"])
    with pytest.raises(ParameterError, match="stemmer requires the analyzer 'word', got analyzer='char'"):
        carya.Tfidf(stemmer="german", analyzer="char").fit(["a b"])
    with pytest.raises(ParameterError, match="segmenter='icu' requires tokenizer='unicode'"):
        carya.Tfidf(segmenter="icu", tokenizer="sklearn").fit(["a b"])
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(MissingExtraError, match=r"stemmer='german' requires snowballstemmer\. .*carya\[stem\]"):
        carya.Tfidf(stemmer="german").fit(["a b"])


def test_inconsistent_vocabularies_are_rejected() -> None:
    tfidf = carya.Tfidf(min_df=1).fit(["one two three", "two three four"])
    data, ends, slots = tfidf.terms_[0]

    def refused(message: str, *arrays: np.ndarray, idf: np.ndarray = tfidf.idf_) -> None:
        with pytest.raises(InputError, match=message):
            carya.Tfidf(min_df=1).set_fitted([arrays], idf)  # type: ignore[list-item]

    refused("The end offsets of terms must not decrease", data, ends[::-1].copy(), slots)
    refused("wrong number of bytes", data[:-1], ends, slots)
    refused("power of 2", data, ends, slots[:-1])
    refused("refers to a term that does not exist", data, ends, slots | np.uint64(0xFFFF))
    refused("must have a free slot", data, ends, np.full_like(slots, 1))
    refused("idf.* for each of", data, ends, slots, idf=tfidf.idf_[:-1])
    with pytest.raises(InputError, match="terms must have one entry per analyzer"):
        carya.Tfidf(min_df=1).set_fitted([], tfidf.idf_)


def test_texts_from_an_iterator_are_numbered_across_batches() -> None:
    with pytest.raises(InputError, match="Text 9000 must be a string, got int"):
        carya.Tfidf().fit(iter(["aa"] * 9000 + [3]))


def test_fitted_arrays_are_read_only() -> None:
    tfidf = carya.Tfidf(min_df=1).fit(["one two three"])
    for array in (*tfidf.terms_[0], tfidf.idf_):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = 0


def test_parameters_set_after_fit_do_not_change_the_fitted_state() -> None:
    tfidf = carya.Tfidf(min_df=1, stop_words="english").fit(["the red green blue", "the black"])
    expected = tfidf.row("the red black")[0].tolist()
    tfidf.set_params(analyzer="char", stop_words=None)
    copied = copy.deepcopy(tfidf)
    assert copied.analyzer == "char"
    assert copied.row("the red black")[0].tolist() == expected
    assert tfidf.fitted_parameters_["analyzer"] == "word"
    assert "the" in tfidf.fitted_parameters_["stop_words"]


def test_errors_in_an_iterator_are_raised() -> None:
    def texts() -> Iterator[str]:
        yield from ["some words"] * 10_000
        raise KeyError("from the iterator")

    with pytest.raises(KeyError, match="from the iterator"):
        carya.Tfidf().fit(texts())
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


LONG = [
    "Größe und  Gewicht der Bücher\tin Bibliotheken: eine Studie über Größe, Gewicht und Alter",
    "red red green blue, and later red again and green and yellow",
    " four words at most ",
    "",
]


@pytest.mark.parametrize("norm", ["l1", "l2", None])
@pytest.mark.parametrize(
    "settings",
    [{}, {"analyzer": ["word", "char_wb", "char"], "ngram_range": [(1, 2), (3, 4), (1, 2)]}, {"n_buckets": 7}],
    ids=str,
)
def test_the_lead_is_added_to_the_complete_text(settings: dict[str, Any], norm: str | None) -> None:
    common: dict[str, Any] = {"min_df": 1, "norm": norm} | settings
    plain = carya.Tfidf(lead_weight=0, **common).fit(LONG)
    tfidf = carya.Tfidf(lead_weight=0.7, lead_words=4, **common)
    X = tfidf.fit_transform(LONG)
    assert (tfidf.transform(LONG) != X).nnz == 0
    assert (carya.Tfidf(lead_weight=0.7, lead_words=4, n_jobs=1, **common).fit_transform(iter(LONG)) != X).nnz == 0
    leads = ["Größe und  Gewicht der", "red red green blue,"]
    full = plain.transform(LONG).toarray().astype(float)
    for row, lead in enumerate(leads):
        part = _single(plain, lead)
        kind = 1 if norm == "l1" else 2
        scale = np.linalg.norm(full[row], kind) / np.linalg.norm(part, kind)
        expected = (full[row] + 0.7 * scale * part) / 1.7
        if norm is not None:
            expected /= np.linalg.norm(expected, kind)
        np.testing.assert_allclose(X[[row]].toarray().ravel(), expected, rtol=2e-6, atol=1e-7)
    np.testing.assert_array_equal(X[2:].toarray(), plain.transform(LONG[2:]).toarray())  # at most lead_words words


def _single(tfidf: carya.Tfidf, text: str) -> Any:
    """Return the features of one text as a dense row."""
    return tfidf.transform([text]).toarray().ravel().astype(float)


def test_the_lead_weight_is_saved(tmp_path: Any) -> None:
    texts = [" ".join(f"word{(i * j) % 17}" for j in range(40)) for i in range(1, 30)]
    tfidf = carya.Tfidf(lead_weight=2.5, lead_words=3, min_df=1).fit(texts)
    tfidf.save(tmp_path / "tfidf")
    loaded = carya.load(tmp_path / "tfidf")
    assert (loaded.transform(texts) != tfidf.transform(texts)).nnz == 0
    assert (loaded.transform(texts) != carya.Tfidf(min_df=1).fit_transform(texts)).nnz > 0
