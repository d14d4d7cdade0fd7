"""Tfidf against scikit-learn, over many languages and odd strings."""

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

# Characters whose meaning may differ between the Unicode of the tables and that of this Python are not compared.
KNOWN = unicodedata.unidata_version == "14.0.0"


def comparable(text: str) -> bool:
    return KNOWN or all(unicodedata.category(c) != "Cn" for c in text)


def theirs(**settings: Any) -> TfidfVectorizer:
    return TfidfVectorizer(dtype=np.float64, **settings)


def ours(**settings: Any) -> carya.Tfidf:
    return carya.Tfidf(**({"ngram_range": (1, 1), "min_df": 1, "sublinear_tf": False} | settings))


def assert_same(texts: list[str], others: list[str], **settings: Any) -> None:
    """Fitted on texts, rows for the texts and for others are the same; or both find no terms."""
    sklearn = theirs(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = sklearn.fit_transform(texts)
        except ValueError:
            with pytest.raises((InputError, ParameterError)):
                ours(**settings).fit(texts)
            return
        want_others = sklearn.transform(others)
    mine = ours(**settings)
    got = mine.fit_transform(texts)
    assert mine.get_feature_names_out().tolist() == sklearn.get_feature_names_out().tolist()
    assert_close(got, want)
    assert_close(mine.transform(others), want_others)
    again = ours(**settings, n_jobs=1).fit(iter(texts))
    assert (again.transform(texts) != got).nnz == 0


def assert_close(got: sp.csr_array, want: sp.csr_matrix) -> None:
    assert got.shape == want.shape
    if want.size:
        assert abs(got - want).max() <= 1e-6 * max(1, abs(want).max())


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
def test_languages(analysis: dict[str, Any], lowercase: bool, accents: str | None) -> None:
    texts = [text for text in LANGUAGES if comparable(text)]
    assert_same(texts, texts[::-1], lowercase=lowercase, strip_accents=accents, **analysis)


@pytest.mark.skipif(not KNOWN, reason="the tables are of another Unicode than this Python's")
@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
def test_every_character(accents: str | None) -> None:
    """Each one between letters, so that what ends a word is seen, and before a capital sigma, which minds that."""
    points = [p for p in range(sys.maxunicode + 1) if not 0xD800 <= p < 0xE000]
    texts = ["".join(f"q{chr(p)}x{chr(p)}Σ " for p in points[i : i + 256]) for i in range(0, len(points), 256)]
    assert_same(texts, texts[:1], strip_accents=accents, ngram_range=(1, 1))


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
def test_settings(texts: list[str], others: list[str], settings: dict[str, Any], analysis: dict[str, Any]) -> None:
    texts, others = ([text for text in some if comparable(text)] for some in (texts, others))
    if texts:
        assert_same(texts, others, **(settings | analysis))


def test_max_features_keeps_the_most_frequent() -> None:
    texts = ["aa aa aa bb bb cc", "bb dd dd dd dd", "cc ee"]
    assert_same(texts, texts, max_features=1)  # dd, four times
    # aa and bb are equally frequent: the first of them stays. scikit-learn's choice among equals is not said.
    assert ours(max_features=2).fit(texts).get_feature_names_out().tolist() == ["aa", "dd"]
    assert ours(max_features=1, binary=True).fit(texts).get_feature_names_out().tolist() == ["bb"]


@given(TEXTS, st.sampled_from([1, 7, 1000]))
def test_hashing(texts: list[str], buckets: int) -> None:
    texts = [text for text in texts if comparable(text)]
    if not texts:
        return
    counts = HashingVectorizer(n_features=buckets, alternate_sign=False, norm=None).transform(texts)
    want = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    got = carya.Tfidf(ngram_range=(1, 1), buckets=buckets).fit_transform(texts)
    assert got.shape == (len(texts), buckets)
    assert np.allclose(got.toarray(), want.toarray(), rtol=1e-6, atol=1e-7)


def test_analyzers_side_by_side() -> None:
    texts = ["red green", "green blue", "blue red red"]
    both = ours(analyzer=["word", "char"], ngram_range=[(1, 1), (2, 2)], norm=None).fit(texts)
    words = theirs(norm=None).fit(texts)
    chars = theirs(norm=None, analyzer="char", ngram_range=(2, 2)).fit(texts)
    want = np.hstack([words.transform(texts).toarray(), chars.transform(texts).toarray()])
    assert np.allclose(both.transform(texts).toarray(), want, rtol=1e-6)
    assert both.get_feature_names_out()[:4].tolist() == ["word:blue", "word:green", "word:red", "char: b"]
    whole = ours(analyzer=["word", "char"], ngram_range=[(1, 1), (2, 2)]).fit_transform(texts).toarray()
    assert np.allclose(whole, want / np.linalg.norm(want, axis=1, keepdims=True), rtol=1e-6)


def test_long_lines() -> None:
    texts = ["word " * 200_000, "x" * 1_000_000, "é" * 1_000_000 + " other"]
    assert_same(texts, texts)


def test_texts_that_are_none() -> None:
    for texts, message in [
        ("abc", "texts must be several strings, got one str: put it in a list"),
        (5, "texts must be several strings, got int"),
        (["a", None], "text 1 must be a string, got NoneType"),
        ([b"a"], "text 0 must be a string, got bytes"),
        (["ok", "bad \ud800"], "text 1 has a lone surrogate: it is no text"),
        ([], "there are no texts to learn from"),
    ]:
        with pytest.raises(InputError) as caught:
            carya.Tfidf(min_df=1).fit(texts)  # type: ignore[arg-type]
        assert str(caught.value) == message
    with pytest.raises(InputError, match="no term is in at least 2 and at most 2 of the 2 texts: lower min_df"):
        carya.Tfidf().fit(["one two", "three four"])
    fitted = carya.Tfidf(min_df=1).fit(["one two"])
    with pytest.raises(InputError, match="text 0 must be a string, got int"):
        fitted.row(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"analyzer": "words"}, "'analyzer' of Tfidf must be one of 'word', 'char', 'char_wb', or a list of them"),
        ({"analyzer": []}, "'analyzer'"),
        ({"ngram_range": (2, 1)}, "'ngram_range' of Tfidf must be a pair of integers"),
        ({"ngram_range": 2}, "'ngram_range'"),
        ({"ngram_range": [(1, 2), (1, 2)]}, "ngram_range has 2 pairs, there are 1 analyzers"),
        ({"stop_words": "french"}, "'stop_words' of Tfidf must be a list of words, 'english' or None"),
        ({"min_df": 1.5}, "'min_df'"),
        ({"min_df": 3, "max_df": 2}, "max_df=2 allows fewer texts than min_df=3 of 4"),
        ({"norm": "l3"}, "'norm'"),
        ({"buckets": 0}, "'buckets'"),
        ({"min_df": 10**400}, "'min_df'"),
        ({"stop_words": ["\ud800"]}, "a lone surrogate"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        carya.Tfidf(**settings).fit(["some words"] * 4)
    assert message in str(caught.value)


def test_unknown_settings() -> None:
    with pytest.raises(UnknownParameterError, match="it is called min_length"):
        carya.Tfidf(token_pattern=r"\w+")  # type: ignore[call-arg]
    with pytest.raises(NotFittedError):
        carya.Tfidf().transform(["a"])


def test_lives_with_scikit_learn() -> None:
    twin = clone(carya.Tfidf(ngram_range=(1, 3), buckets=10))
    assert twin.get_params() == carya.Tfidf(ngram_range=(1, 3), buckets=10).get_params()
    english = carya.Tfidf(stop_words="english", min_df=1, ngram_range=(1, 1)).fit(["the cat and the dog"])
    assert english.get_feature_names_out().tolist() == ["cat", "dog"]


@pytest.mark.parametrize("analysis", ANALYSES, ids=str)
@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
def test_terms_stand_where_they_say(analysis: dict[str, Any], accents: str | None) -> None:
    tfidf = ours(strip_accents=accents, **analysis).fit(LANGUAGES)
    names = tfidf.get_feature_names_out()
    for text in LANGUAGES:
        found = tfidf.terms_in(text)
        features, _ = tfidf.row(text)
        assert sorted({term.feature for term in found}) == features.tolist()
        for term in found:
            assert names[term.feature] == term.text
            assert 0 <= term.begin <= term.end <= len(text)
            if accents is None and text.isascii():
                said = " ".join(text[term.begin : term.end].split()).lower()
                assert said == term.text.strip() or analysis["analyzer"] != "char_wb"
                if analysis["analyzer"] == "word" and analysis["ngram_range"] == (1, 1):
                    assert said == term.text


def test_damaged_terms_are_refused() -> None:
    tfidf = carya.Tfidf(min_df=1).fit(["one two three", "two three four"])
    data, ends, slots = tfidf.terms_[0]

    def refused(message: str, *arrays: np.ndarray, idf: np.ndarray = tfidf.idf_) -> None:
        with pytest.raises(InputError, match=message):
            carya.Tfidf(min_df=1).set_learned([arrays], idf)  # type: ignore[list-item]

    refused("the ends of terms do not ascend", data, ends[::-1].copy(), slots)
    refused("another number of bytes", data[:-1], ends, slots)
    refused("no power of two", data, ends, slots[:-1])
    refused("names none of them", data, ends, slots | np.uint64(0xFFFF))
    refused("are full", data, ends, np.full_like(slots, 1))
    refused("an idf for each of", data, ends, slots, idf=tfidf.idf_[:-1])
    with pytest.raises(InputError, match="terms for each part"):
        carya.Tfidf(min_df=1).set_learned([], tfidf.idf_)


def test_texts_of_iterators_are_numbered_through() -> None:
    with pytest.raises(InputError, match="text 9000 must be a string, got int"):
        carya.Tfidf().fit(iter(["aa"] * 9000 + [3]))  # type: ignore[list-item]


def test_what_was_learned_cannot_be_changed() -> None:
    tfidf = carya.Tfidf(min_df=1).fit(["one two three"])
    for array in (*tfidf.terms_[0], tfidf.idf_):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = 0


def test_parameters_set_later_change_nothing_learned() -> None:
    tfidf = carya.Tfidf(min_df=1, stop_words="english").fit(["the red green blue", "the black"])
    want = tfidf.row("the red black")[0].tolist()
    tfidf.set_params(analyzer="char", stop_words=None)
    twin = copy.deepcopy(tfidf)
    assert twin.analyzer == "char"
    assert twin.row("the red black")[0].tolist() == want
    assert tfidf.learned_with_["analyzer"] == "word"
    assert "the" in tfidf.learned_with_["stop_words"]


def test_an_error_of_the_iterator_is_its_own() -> None:
    def texts() -> Iterator[str]:
        yield from ["some words"] * 10_000
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        carya.Tfidf().fit(texts())
    assert not [thread for thread in threading.enumerate() if thread.name == "read ahead"]
