"""Tests for text rankers: suggestions, explanations, saved models, and labels by name."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import carya
from carya.core.label_index import LabelIndex
from carya.core.matrices import Csr
from carya.core.strings import StringArray
from carya.errors import (
    InputError,
    MissingExtraError,
    ModelFormatError,
    NotFittedError,
    UnknownParameterError,
    UnknownTextWarning,
)
from carya.ranking import NeuralRanker
from carya.text.label_restriction import LabelRestriction, rank_restricted
from carya.text.labels import LabelRows, label_matrix

from forging import use_forged
from topics import TOPICS, corpus


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    """A fitted ranker; tests must not modify it."""
    texts, labels = corpus()
    names = {topic: topic.title() for topic in TOPICS}
    return carya.TextRanker(carya.Tfidf(), carya.XRLinear(branching=4, max_leaf_size=6)).fit(texts, labels, names=names)


def test_topics_are_suggested(ranker: carya.TextRanker) -> None:
    texts, labels = corpus(100, seed=1)
    assert ranker.score(texts, labels) > 0.95
    suggestions = ranker.suggest("the telescope shows a distant planet and its moon", top_k=5)
    assert len(suggestions) == 5
    assert suggestions[0].score >= suggestions[1].score >= suggestions[2].score
    assert ("astronomy", "Astronomy") in {(suggestion.label, suggestion.name) for suggestion in suggestions}
    for text in ("", "unknown words only"):
        with pytest.warns(UnknownTextWarning, match=r"^The text contains no known terms.*char_wb") as caught:
            assert ranker.suggest(text) == []
        assert caught[0].filename == __file__
        assert ranker.rank_texts([text]) == [[]]


def test_texts_without_known_terms_are_reported(ranker: carya.TextRanker) -> None:
    texts = [*corpus(3, seed=5)[0], "zzzz", "", *corpus(2, seed=6)[0]]
    for method in (ranker.suggest_all, ranker.predict):
        with pytest.warns(
            UnknownTextWarning, match=r"^2 of 7 texts contain no known terms.*; the first is text 3\."
        ) as caught:
            method(iter(texts))
        assert isinstance(caught[0].message, UnknownTextWarning)
        assert caught[0].message.rows == [3, 4]
        assert caught[0].filename == __file__


def test_batch_equals_one_by_one(ranker: carya.TextRanker) -> None:
    texts, _ = corpus(40, seed=2)
    assert ranker.suggest_all(texts, top_k=4) == [ranker.suggest(text, top_k=4) for text in texts]
    S = ranker.predict(texts, top_k=4)
    assert S.shape == (40, len(ranker.labels_))
    for row, suggestions in enumerate(ranker.suggest_all(texts, top_k=4)):
        labels = S.indices[S.indptr[row] : S.indptr[row + 1]]
        assert [ranker.labels_[label] for label in labels] == [suggestion.label for suggestion in suggestions]


def test_loaded_rankers_suggest_the_same(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    texts, _ = corpus(30, seed=3)
    assert isinstance(opened, carya.TextRanker)
    assert opened.suggest_all(texts) == ranker.suggest_all(texts)
    assert list(opened.labels_) == list(ranker.labels_)
    assert list(opened.label_names_) == list(ranker.label_names_)
    assert opened.vectorizer_.get_params() == ranker.vectorizer_.get_params()
    opened.save(tmp_path / "again")
    for name in ("arrays.bin", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    ranker.save(tmp_path / "exact", weight_dtype="float32")
    assert carya.load(tmp_path / "exact").model_.layers_[0].weights.dtype == "float32"


def test_a_label_matrix_gives_the_same_bytes_as_lists(tmp_path: Path) -> None:
    texts, labels = corpus(300)
    ids = ["unused", *sorted({label for row in labels for label in row}, reverse=True)]
    rows = LabelRows(Csr.of_scipy(label_matrix(labels, ids)[0]), ids)
    settings: dict[str, Any] = {"n_jobs": 2, "max_leaf_size": 2, "branching": 2}
    for name, form in (("lists", labels), ("matrix", rows)):
        carya.TextRanker(model=carya.XRLinear(**settings)).fit(texts, form).save(tmp_path / name)
    for file in ("manifest.json", "arrays.bin"):
        assert (tmp_path / "lists" / file).read_bytes() == (tmp_path / "matrix" / file).read_bytes()
    with pytest.raises(InputError, match="texts and labels must have the same length, got 299 and 300"):
        carya.TextRanker().fit(texts[1:], rows)


def test_rankers_with_all_options_are_saved(tmp_path: Path) -> None:
    texts, labels = corpus()
    tfidf = carya.Tfidf(
        analyzer=["word", "char_wb"],
        ngram_range=[(1, 1), (3, 4)],
        stop_words={"salt", "dust"},
        strip_accents="unicode",
        max_features=500,
    )
    label_texts = {f"{topic}/{word}": f"{word} in {topic}" for topic, words in TOPICS.items() for word in words.split()}
    ranker = carya.TextRanker(tfidf, carya.XRLinear(max_leaf_size=6, representation="pifa+lf"))
    ranker.fit(texts, labels, label_texts=label_texts).save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert opened.suggest_all(texts) == ranker.suggest_all(texts)
    hashed = carya.TextRanker(carya.Tfidf(n_buckets=1000)).fit(texts, labels)
    hashed.save(tmp_path / "hashed")
    assert carya.load(tmp_path / "hashed").suggest_all(texts) == hashed.suggest_all(texts)


@given(st.data())
def test_every_flipped_bit_is_detected(ranker: carya.TextRanker, tmp_path_factory: Any, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flipped") / "model"
    ranker.save(folder)
    path = folder / data.draw(st.sampled_from(["arrays.bin", "manifest.json"]))
    raw = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)

    def use() -> None:
        for layer in carya.load(folder).model_.layers_:
            layer.verify()

    with pytest.raises(ModelFormatError):
        use()


def test_forged_rankers_are_rejected_or_remain_usable(ranker: carya.TextRanker, tmp_path: Path) -> None:
    def use(opened: carya.TextRanker) -> None:
        for text in corpus(5, seed=9)[0]:
            opened.suggest(text)
            with contextlib.suppress(InputError):  # scores from different kinds of transforms cannot be explained
                opened.explain(text, opened.labels_[0])

    ranker.save(tmp_path / "model")
    outcomes = use_forged(tmp_path / "model", tmp_path, range(60), use)
    assert outcomes.rejected >= 10
    assert outcomes.accepted >= 5


@given(st.text(max_size=60), st.data())
def test_contributions_add_up_to_the_score(ranker: carya.TextRanker, text: str, data: st.DataObject) -> None:
    text += " " + " ".join(data.draw(st.lists(st.sampled_from(" ".join(TOPICS.values()).split()), max_size=8)))
    label = data.draw(st.sampled_from(list(ranker.labels_)))
    explanation = ranker.explain(text, label)
    assert explanation.log_scale
    total = math.fsum([explanation.base, *(term.contribution for term in explanation.terms)])
    by_level = math.fsum(
        part for level in explanation.levels for part in (level.base, *(term.contribution for term in level.terms))
    )
    assert math.exp(total) == pytest.approx(explanation.score, rel=1e-9)
    assert math.exp(by_level) == pytest.approx(explanation.score, rel=1e-9)
    assert math.prod(level.score for level in explanation.levels) == pytest.approx(explanation.score, rel=1e-9)
    (ranked,) = ranker.rank_texts([text], top_k=1000, beam_width=1000)
    scores = {ranker.labels_[number]: score for number, score in ranked}
    assert bool(scores) == bool(ranker.vectorizer_.terms_in(text))
    if scores:
        assert scores[label] == pytest.approx(explanation.score, rel=1e-3, abs=1e-6)
    for term in explanation.terms:
        assert term.spans
        assert all(" ".join(text[a:b].lower().split()) in (term.term, text[a:b].lower()) for a, b in term.spans)


@pytest.mark.parametrize("transform", ["sigmoid", "log-sigmoid", "l2-hinge", "log-l3-hinge", "noop"])
def test_explanations_equal_the_scores_of_every_transform(transform: str) -> None:
    texts, labels = corpus()
    ranker = carya.TextRanker(None, carya.XRLinear(max_leaf_size=6, transform=transform, weight_dtype="float32"))
    ranker.fit(texts, labels)
    for text in texts[:20]:
        for suggestion in ranker.suggest(text, top_k=3, beam_width=1000):
            explanation = ranker.explain(text, suggestion.label)
            assert explanation.score == pytest.approx(suggestion.score, rel=1e-3, abs=1e-5)
            total = math.fsum([explanation.base, *(term.contribution for term in explanation.terms)])
            score = math.exp(total) if explanation.log_scale else total
            assert score == pytest.approx(explanation.score, rel=1e-9, abs=1e-12)


def test_scores_that_are_not_sums_over_terms_are_not_explained() -> None:
    texts, labels = corpus()
    mixed = carya.TextRanker(None, carya.XRLinear(max_leaf_size=6, transform=("sigmoid", "noop"))).fit(texts, labels)
    with pytest.raises(
        InputError,
        match="The levels of the model use different kinds of transforms, so its scores are not sums over terms",
    ):
        mixed.explain(texts[0], "chess")


def test_terms_that_share_a_bucket_are_listed_once() -> None:
    texts, labels = corpus()
    hashed = carya.TextRanker(carya.Tfidf(n_buckets=2, ngram_range=(1, 1)), carya.XRLinear(max_leaf_size=6)).fit(
        texts, labels
    )
    explanation = hashed.explain("king queen king queen rook", "chess")
    variants = [term.term.split(" / ") for term in explanation.terms]
    assert sorted(word for words in variants for word in words) == ["king", "queen", "rook"]


def test_words_of_a_topic_contribute_to_its_label(ranker: carya.TextRanker) -> None:
    explanation = ranker.explain("a rook takes a pawn near the harbor", "chess")
    contributions = {term.term: term.contribution for term in explanation.terms}
    assert contributions["rook"] > 0
    assert contributions["pawn"] > 0
    assert contributions.get("harbor", 0) < contributions["rook"]
    assert ranker.explain("a rook", "Chess").label == "chess"  # labels can be specified by name
    as_dict = json.loads(json.dumps(explanation.to_dict()))
    assert as_dict["name"] == "Chess"
    (rook,) = (term for term in as_dict["terms"] if term["term"] == "rook")
    assert rook["spans"] == [[2, 6]]


def test_invalid_input_is_rejected(ranker: carya.TextRanker) -> None:
    calls: list[tuple[Callable[[], object], str]] = [
        (
            lambda: ranker.suggest(["a"]),  # type: ignore[arg-type]
            "text must be a string, got list. Use suggest_all for several texts.",
        ),
        (
            lambda: ranker.suggest_all("a"),
            "texts must be a list of strings, got a single str. Pass [text] for one text.",
        ),
        (lambda: ranker.explain("a", "ches"), "Unknown label 'ches'. Did you mean 'Chess'?"),
        (lambda: ranker.explain("a", 5), "label must be a string, got 5."),  # type: ignore[arg-type]
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, ["x", ["y"]]),
            "labels[1] must be a label, as in the preceding rows, got list.",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [[1.5], []]),
            "labels[0] must contain only strings or integers, got 1.5.",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, "x"),
            "labels must be a matrix with one column per label, or contain one label or one list of labels (strings or "
            "integers) per row, got 'x'.",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["x"]]),
            "texts and labels must have the same length, got 2 and 1.",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [[], []]),
            "No text has a label. At least one label is required.",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["\ud800"], []]),
            "'\\ud800' contains a lone surrogate and is not valid Unicode text.",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["x"], []], names={"x": 3}),  # type: ignore[dict-item]
            "names must map labels to strings, but 'x' is mapped to 3.",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["x"], []], names={"y": "Y"}),
            "names contains none of the labels: its first key is 'y', but the first label is 'x'. Use the label ids as "
            "keys.",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["x"], []], label_texts=["x"]),  # type: ignore[arg-type]
            "label_texts must be a mapping from labels to strings, got list.",
        ),
        (
            lambda: carya.TextRanker(None, carya.XRLinear(representation="lf")).fit(["ab cd"] * 2, [["x"], ["y"]]),
            "label_texts is missing. XRLinear(representation='lf') requires descriptions of the labels.",
        ),
    ]
    for call, message in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == message
    with pytest.raises(NotFittedError):
        carya.TextRanker().suggest("a")


def test_nested_parameters_are_read_and_set() -> None:
    ranker = carya.TextRanker(carya.Tfidf(), carya.XRLinear(C=3))
    assert ranker.get_params()["model__C"] == 3
    assert clone(ranker).get_params()["model__C"] == 3
    ranker.set_params(model__C=5, model__random_state=7, vectorizer__min_df=1)
    assert isinstance(ranker.model, carya.XRLinear)
    assert (ranker.model.C, ranker.model.seed, ranker.get_params()["vectorizer__min_df"]) == (5, 7, 1)
    with pytest.raises(UnknownParameterError, match=r"XRLinear has no parameter 'thresold'\. Did you mean 'threshold'"):
        ranker.set_params(model__thresold=1)
    with pytest.raises(UnknownParameterError, match=r"TextRanker\.model is None, which has no parameter 'C'"):
        carya.TextRanker().set_params(model__C=1)
    assert not hasattr(ranker.fit(*corpus(50)).model, "layers_"), "fit must train a copy of the model"


def test_concurrent_queries_get_the_same_suggestions(ranker: carya.TextRanker) -> None:
    texts, _ = corpus(50, seed=5)
    expected = [ranker.suggest(text) for text in texts]
    results: list[Any] = [None] * 4

    def query(i: int) -> None:
        results[i] = [ranker.suggest(text) for text in texts]

    threads = [threading.Thread(target=query, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_rerankers_find_label_names_within_unknown_words(tmp_path: Path) -> None:
    """If a word that does not occur in training contains a label name, character n-grams retrieve the label."""
    rng = np.random.default_rng(0)
    names = ["".join(rng.choice(list("abcdefghijklmnop"), 6)) for _ in range(150)]
    texts = [f"{end} for {name}{end}" for end in ("tool", "lore", "less", "ful", "ness", "ship") for name in names]
    labels = [[name] for _ in range(6) for name in names]
    new_texts = [f"{name}ware for me" for name in names]
    model = carya.Reranked(carya.XRLinear(max_leaf_size=20), NeuralRanker())
    ranker = carya.TextRanker(model=model).fit(texts, labels)
    assert ranker.vectorizer_.analyzer == ["word", "char_wb"]
    assert ranker.model_.members_[0].widths_ == (ranker.vectorizer_.widths_[0], 0)
    assert ranker.score(new_texts, labels[:150]) > 0.9
    with pytest.raises(InputError, match="relevance is 0 for every pair"):  # words alone retrieve no held-out label
        carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels)
    ranker.save(tmp_path / "model")
    assert carya.load(tmp_path / "model").suggest(new_texts[0]) == ranker.suggest(new_texts[0])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=10))
def test_string_arrays_behave_like_lists(texts: list[str]) -> None:
    strings = StringArray.of(texts)
    assert list(strings) == texts
    assert [strings[i] for i in range(len(texts))] == texts
    assert strings[1:3] == texts[1:3]
    index = LabelIndex(strings)
    assert [index.find(text) for text in texts] == [texts.index(text) for text in texts]
    with pytest.raises(IndexError):
        strings[len(texts)]
    with pytest.raises(InputError):
        StringArray(strings.data, np.append(strings.ends, np.int64(-1)))


@given(st.lists(st.lists(st.sampled_from("abcdéf"), max_size=4), max_size=6))
def test_label_matrices_have_one_column_per_label(labels: list[list[str]]) -> None:
    Y, ids = label_matrix(labels)
    assert ids == sorted({label for row in labels for label in row})
    for row, row_labels in enumerate(labels):
        assert {ids[i] for i in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]} == set(row_labels)
    assert (Y.data == 1).all()
    known = label_matrix(labels, ["a", "z"])[0]
    assert known.shape == (len(labels), 2)
    assert known.sum() == sum("a" in row for row in labels)


def test_label_matrices_without_entries_are_rejected() -> None:
    empty = LabelRows(Csr.of(np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 2), ["a", "b"])
    with pytest.raises(InputError, match="No text has a label"):
        carya.TextRanker(carya.Tfidf(min_df=1)).fit(["one", "two"], empty)


def test_rerankers_work_without_any_frequent_word() -> None:
    """If all words are too rare, only character n-grams remain as features."""
    texts = [f"{'abc' if number % 2 else 'xyz'}{number:03}" for number in range(200)]
    labels = [["odd" if number % 2 else "even"] for number in range(200)]
    ranker = carya.TextRanker(model=carya.Reranked(ranker=NeuralRanker())).fit(texts, labels)
    assert ranker.vectorizer_.widths_[0] == 0
    assert ranker.suggest("abc777", top_k=1)[0].label == "odd"


@pytest.mark.parametrize("cls", [carya.TextRanker])
def test_labels_belong_to_the_model_that_ranked_them(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suggestions are consistent even if another thread finishes `fit` between ranking and looking up label names."""
    before = cls(carya.Tfidf(min_df=1)).fit(["a cat"], [["x"]])
    after = cls(carya.Tfidf(min_df=1)).fit(["a cat"], [["p"]])
    rank_rows = carya.XRLinear.rank_rows

    def rank_and_replace(self: Any, *args: Any, **options: Any) -> Any:
        rankings = rank_rows(self, *args, **options)
        before._state = after._state
        return rankings

    monkeypatch.setattr(carya.XRLinear, "rank_rows", rank_and_replace)
    assert [suggestion.label for suggestion in before.suggest_all(["a cat"])[0]] == ["x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": -1}, "top_k must be an integer >= 1"),
        ({"top_k": 0}, "top_k must be an integer >= 1"),
        ({"top_k": "x"}, "top_k must be an integer >= 1"),
        ({"beam_width": 0}, "beam_width must be an integer >= 1"),
        ({"min_score": "a"}, "min_score must be a number or None"),
        ({"min_score": math.nan}, "min_score must be a number or None"),
        ({"texts": "abc"}, "texts must be a list of strings, got a single str"),
    ],
)
def test_arguments_are_checked_with_and_without_a_restriction(
    ranker: carya.TextRanker, arguments: dict[str, Any], message: str
) -> None:
    arguments = {"texts": ["the telescope shows a planet"]} | arguments
    allowed = np.array([0, 2], np.int32)
    nothing = np.zeros(0, np.int32)
    calls: list[Callable[[], Any]] = [
        lambda: ranker.rank_texts(**arguments),
        lambda: rank_restricted(ranker, restriction=LabelRestriction(allowed, nothing), **arguments),
        lambda: rank_restricted(ranker, restriction=LabelRestriction(None, allowed), **arguments),
    ]
    for call in calls:
        with pytest.raises(InputError, match=message):
            call()


def test_dependencies_are_checked_before_texts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    texts = iter(["a cat", "a dog"])
    for model in (carya.Reranked(), carya.Ensemble([carya.Reranked()])):
        with pytest.raises(MissingExtraError, match="requires lightgbm"):
            carya.TextRanker(model=model).fit(texts, [["pet"], ["barks"]])
    assert len(list(texts)) == 2
