"""Tests for Tfidf: comparison with scikit-learn on texts in many languages and unusual strings."""

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
from carya.errors import InputError, NotFittedError, ParameterError, UnknownParameterError

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
    "नमस्ते दुनिया हिन्दी क्षत्रिय",
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


def sklearn_tfidf(**settings: Any) -> TfidfVectorizer:
    """Return scikit-learn's vectorizer with float64 values."""
    return TfidfVectorizer(dtype=np.float64, **settings)


def carya_tfidf(**settings: Any) -> carya.Tfidf:
    """Return Carya's vectorizer with scikit-learn's default settings."""
    defaults: dict[str, Any] = {"ngram_range": (1, 1), "min_df": 1, "sublinear_tf": False}
    return carya.Tfidf(**defaults | settings)


def assert_same(texts: list[str], others: list[str], **settings: Any) -> bool:
    """Check that both vectorizers give the same rows; return False if both reject the texts."""
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
    """Check that two matrices are equal within float32 rounding."""
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


@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("analysis", ANALYSES, ids=str)
def test_texts_in_many_languages(analysis: dict[str, Any], lowercase: bool, accents: str | None) -> None:
    texts = [text for text in LANGUAGES if comparable(text)]
    assert assert_same(texts, texts[::-1], lowercase=lowercase, strip_accents=accents, **analysis)


@pytest.mark.skipif(not SAME_UNICODE, reason="requires the Unicode version of the native tables")
@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
def test_every_character(accents: str | None) -> None:
    """Test each character between letters, where it may end a word, and before Σ, whose lowercase depends on it."""
    points = [p for p in range(sys.maxunicode + 1) if not 0xD800 <= p < 0xE000]
    texts = ["".join(f"q{chr(p)}x{chr(p)}Σ " for p in points[i : i + 256]) for i in range(0, len(points), 256)]
    assert assert_same(texts, texts[:1], strip_accents=accents, ngram_range=(1, 1))


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
    # aa and bb are equally frequent, and aa is kept; scikit-learn does not specify which term it keeps.
    assert carya_tfidf(max_features=2).fit(texts).get_feature_names_out().tolist() == ["aa", "dd"]
    assert carya_tfidf(max_features=1, binary=True).fit(texts).get_feature_names_out().tolist() == ["bb"]


@given(TEXTS, st.sampled_from([1, 7, 1000]))
def test_buckets_equal_scikit_learn_hashing(texts: list[str], n_buckets: int) -> None:
    texts = [text for text in texts if comparable(text)]
    if not texts:
        return
    counts = HashingVectorizer(n_features=n_buckets, alternate_sign=False, norm=None).transform(texts)
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    X = carya.Tfidf(ngram_range=(1, 1), n_buckets=n_buckets).fit_transform(texts)
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
        (5, "texts must be a list of strings, got int."),
        (["a", None], "Text 1 must be a string, got NoneType."),
        ([b"a"], "Text 0 must be a string, got bytes."),
        (["ok", "bad \ud800"], "Text 1 contains a lone surrogate, which is not valid Unicode text."),
        ([], "texts is empty. At least one text is required."),
    ]:
        with pytest.raises(InputError) as caught:
            carya.Tfidf(min_df=1).fit(texts)  # type: ignore[arg-type]
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
        ({"analyzer": "words"}, "analyzer must be one of 'word', 'char', 'char_wb', or a list of them"),
        ({"analyzer": []}, "analyzer must be one of"),
        ({"ngram_range": (2, 1)}, "ngram_range must be a pair of integers (min, max)"),
        ({"ngram_range": 2}, "ngram_range must be a pair of integers"),
        ({"ngram_range": [(1, 2), (1, 2)]}, "ngram_range must have one pair per analyzer, got 2 pairs for 1 analyzers"),
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


@pytest.mark.parametrize("analysis", ANALYSES, ids=str)
@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
def test_terms_have_their_spans_in_the_text(analysis: dict[str, Any], accents: str | None) -> None:
    tfidf = carya_tfidf(strip_accents=accents, **analysis).fit(LANGUAGES)
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


def test_inconsistent_vocabularies_are_rejected() -> None:
    tfidf = carya.Tfidf(min_df=1).fit(["one two three", "two three four"])
    data, ends, slots = tfidf.terms_[0]

    def refused(message: str, *arrays: np.ndarray, idf: np.ndarray = tfidf.idf_) -> None:
        with pytest.raises(InputError, match=message):
            carya.Tfidf(min_df=1).set_fitted([arrays], idf)  # type: ignore[list-item]

    refused("The ends of terms must not decrease", data, ends[::-1].copy(), slots)
    refused("wrong number of bytes", data[:-1], ends, slots)
    refused("power of 2", data, ends, slots[:-1])
    refused("refers to a term that does not exist", data, ends, slots | np.uint64(0xFFFF))
    refused("must have a free slot", data, ends, np.full_like(slots, 1))
    refused("idf.* for each of", data, ends, slots, idf=tfidf.idf_[:-1])
    with pytest.raises(InputError, match="terms must have one entry per analyzer"):
        carya.Tfidf(min_df=1).set_fitted([], tfidf.idf_)


def test_texts_from_an_iterator_are_numbered_across_batches() -> None:
    with pytest.raises(InputError, match="Text 9000 must be a string, got int"):
        carya.Tfidf().fit(iter(["aa"] * 9000 + [3]))  # type: ignore[arg-type]


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
