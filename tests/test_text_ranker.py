"""Texts and names of labels in, ranked names out."""

from __future__ import annotations

import contextlib
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import carya
from carya.core.matrices import Csr
from carya.core.strings import Strings
from carya.errors import InputError, ModelFormatError, NotFittedError, UnknownParameterError
from carya.ranking import NeuralRanker
from carya.text.labels import LabelRows, label_matrix

from forging import forge
from topics import TOPICS, corpus


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    texts, labels = corpus()
    names = {topic: topic.title() for topic in TOPICS}
    return carya.TextRanker(carya.Tfidf(), carya.XRLinear(branching=4, max_leaf=6)).fit(texts, labels, names=names)


def test_finds_the_topic(ranker: carya.TextRanker) -> None:
    texts, labels = corpus(100, seed=1)
    assert ranker.score(texts, labels) > 0.95
    best = ranker.suggest("the telescope shows a distant planet and its moon", top_k=5)
    assert len(best) == 5
    assert best[0].score >= best[1].score >= best[2].score
    assert "astronomy" in {one.label for one in best}
    assert {one.name for one in best} & {"Astronomy"}
    assert ranker.suggest("") == ranker.suggest("nothing known here") == []


def test_one_by_one_is_as_in_batch(ranker: carya.TextRanker) -> None:
    texts, _ = corpus(40, seed=2)
    assert ranker.suggest_all(texts, top_k=4) == [ranker.suggest(text, top_k=4) for text in texts]
    S = ranker.predict(texts, top_k=4)
    assert S.shape == (40, len(ranker.labels_))
    for row, best in enumerate(ranker.suggest_all(texts, top_k=4)):
        at = slice(S.indptr[row], S.indptr[row + 1])
        assert [ranker.labels_[label] for label in S.indices[at]] == [one.label for one in best]


def test_saved_and_opened(ranker: carya.TextRanker, tmp_path: Path) -> None:
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
    ranker.save(tmp_path / "exact", precision="float32")
    assert carya.load(tmp_path / "exact").model_.layers_[0].weights.precision == "float32"


def test_labels_in_a_matrix_are_as_in_lists(tmp_path: Path) -> None:
    texts, labels = corpus(300)
    ids = ["unused", *sorted({one for row in labels for one in row}, reverse=True)]
    rows = LabelRows(Csr.of_scipy(label_matrix(labels, ids)[0]), ids)
    settings = {"n_jobs": 2, "max_leaf": 2, "branching": 2}
    for name, given_labels in (("lists", labels), ("matrix", rows)):
        carya.TextRanker(model=carya.XRLinear(**settings)).fit(texts, given_labels).save(tmp_path / name)
    for file in ("manifest.json", "arrays.bin"):
        assert (tmp_path / "lists" / file).read_bytes() == (tmp_path / "matrix" / file).read_bytes()
    with pytest.raises(InputError, match="there are 299 texts but labels for 300"):
        carya.TextRanker().fit(texts[1:], rows)


def test_a_model_with_everything(tmp_path: Path) -> None:
    texts, labels = corpus()
    tfidf = carya.Tfidf(
        analyzer=["word", "char_wb"],
        ngram_range=[(1, 1), (3, 4)],
        stop_words={"salt", "dust"},
        strip_accents="unicode",
        max_features=500,
    )
    about = {f"{topic}/{word}": f"{word} in {topic}" for topic, words in TOPICS.items() for word in words.split()}
    made = carya.TextRanker(tfidf, carya.XRLinear(max_leaf=6, representation="pifa+lf"))
    made.fit(texts, labels, label_texts=about).save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert opened.suggest_all(texts) == made.suggest_all(texts)
    hashed = carya.TextRanker(carya.Tfidf(buckets=1000)).fit(texts, labels)
    hashed.save(tmp_path / "hashed")
    assert carya.load(tmp_path / "hashed").suggest_all(texts) == hashed.suggest_all(texts)


@given(st.data())
def test_a_flipped_bit_is_noticed(ranker: carya.TextRanker, tmp_path_factory: Any, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flipped") / "model"
    ranker.save(folder)
    path = folder / data.draw(st.sampled_from(["arrays.bin", "manifest.json"]))
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)

    def use() -> None:
        for layer in carya.load(folder).model_.layers_:
            layer.verify()

    with pytest.raises(ModelFormatError):
        use()


@given(st.integers(0, 10_000))
def test_a_forged_model_is_an_error_or_answers(ranker: carya.TextRanker, tmp_path_factory: Any, seed: int) -> None:
    folder = tmp_path_factory.mktemp("forged")
    ranker.save(folder / "model")
    forge(folder / "model", folder / "forged", seed)
    with contextlib.suppress(ModelFormatError, InputError):
        opened = carya.load(folder / "forged")
        for text in corpus(5, seed)[0]:
            opened.suggest(text)
            opened.explain(text, opened.labels_[0])


@given(st.text(max_size=60), st.data())
def test_shares_add_up_to_the_score(ranker: carya.TextRanker, text: str, data: st.DataObject) -> None:
    text += " " + " ".join(data.draw(st.lists(st.sampled_from(" ".join(TOPICS.values()).split()), max_size=8)))
    label = data.draw(st.sampled_from(list(ranker.labels_)))
    why = ranker.explain(text, label)
    assert why.in_logs
    total = math.fsum([why.base, *(one.share for one in why.terms)])
    by_level = math.fsum(part for level in why.levels for part in (level.base, *(one.share for one in level.terms)))
    assert math.exp(total) == pytest.approx(why.score, rel=1e-9)
    assert math.exp(by_level) == pytest.approx(why.score, rel=1e-9)
    assert math.prod(level.score for level in why.levels) == pytest.approx(why.score, rel=1e-9)
    said = {one.label: one.score for one in ranker.suggest(text, top_k=1000, beam_width=1000)}
    if label in said:
        assert said[label] == pytest.approx(why.score, rel=1e-3, abs=1e-6)
    for one in why.terms:
        assert all(" ".join(text[a:b].lower().split()) in (one.term, text[a:b].lower()) for a, b in one.places)


@pytest.mark.parametrize("transform", ["sigmoid", "log-sigmoid", "l2-hinge", "log-l3-hinge", "noop"])
def test_every_transform_is_explained(transform: str) -> None:
    texts, labels = corpus()
    made = carya.TextRanker(None, carya.XRLinear(max_leaf=6, transform=transform, precision="float32"))
    made.fit(texts, labels)
    for text in texts[:20]:
        for one in made.suggest(text, top_k=3, beam_width=1000):
            why = made.explain(text, one.label)
            assert why.score == pytest.approx(one.score, rel=1e-3, abs=1e-5)
            total = math.fsum([why.base, *(share.share for share in why.terms)])
            assert (math.exp(total) if why.in_logs else total) == pytest.approx(why.score, rel=1e-9, abs=1e-12)


def test_what_does_not_add_up_is_not_explained() -> None:
    texts, labels = corpus()
    mixed = carya.TextRanker(None, carya.XRLinear(max_leaf=6, transform=("sigmoid", "noop"))).fit(texts, labels)
    with pytest.raises(InputError, match="join their scores in different ways"):
        mixed.explain(texts[0], "chess")


def test_terms_of_one_bucket_are_named_once() -> None:
    texts, labels = corpus()
    hashed = carya.TextRanker(carya.Tfidf(buckets=2, ngram_range=(1, 1)), carya.XRLinear(max_leaf=6)).fit(texts, labels)
    why = hashed.explain("king queen king queen rook", "chess")
    for one in why.terms:
        assert sorted(set(one.term.split(" / "))) == sorted(one.term.split(" / "))


def test_words_speak_for_their_label(ranker: carya.TextRanker) -> None:
    why = ranker.explain("a rook takes a pawn near the harbour", "chess")
    shares = {one.term: one.share for one in why.terms}
    assert shares["rook"] > 0
    assert shares["pawn"] > 0
    assert shares.get("harbour", 0) < shares["rook"]
    assert ranker.explain("a rook", "Chess").label == "chess"  # by its name
    told = why.to_dict()
    assert told["name"] == "Chess"
    assert told["terms"][0]["places"]


def test_what_cannot_be(ranker: carya.TextRanker) -> None:
    for call, message in [
        (lambda: ranker.suggest(["a"]), "text must be a string, got list; for several use suggest_all"),
        (lambda: ranker.suggest_all("a"), "texts must be several strings, got one str: put it in a list"),
        (lambda: ranker.explain("a", "ches"), "there is no label 'ches'; did you mean 'Chess'?"),
        (lambda: ranker.explain("a", 5), "label must be a string, got 5"),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, ["x", "y"]),
            "the labels of text 0 must be a list of strings, got 'x'",
        ),
        (lambda: carya.TextRanker().fit(["ab cd"] * 2, [[1], []]), "the labels of text 0 must be strings, got 1"),
        (lambda: carya.TextRanker().fit(["ab cd"] * 2, "x"), "labels must be a list of lists of strings, got 'x'"),
        (lambda: carya.TextRanker().fit(["ab cd"] * 2, [["x"]]), "there are 2 texts but labels for 1"),
        (lambda: carya.TextRanker().fit(["ab cd"] * 2, [[], []]), "no text has a label: there is nothing to learn"),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["\ud800"], []]),
            "'\\ud800' has a lone surrogate: it is no text",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["x"], []], names={"x": 3}),  # type: ignore[dict-item]
            "names must be strings, that of 'x' is 3",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["x"], []], names={"y": "Y"}),
            "names has none of the labels: it has 'y', the labels are 'x' and others",
        ),
        (
            lambda: carya.TextRanker().fit(["ab cd"] * 2, [["x"], []], label_texts=["x"]),  # type: ignore[arg-type]
            "label_texts must be a mapping of labels to strings, got list",
        ),
        (
            lambda: carya.TextRanker(None, carya.XRLinear(representation="lf")).fit(["ab cd"] * 2, [["x"], ["y"]]),
            "XRLinear(representation='lf') needs label_texts",
        ),
    ]:
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == message
    with pytest.raises(NotFittedError):
        carya.TextRanker().suggest("a")


def test_parameters_of_parts() -> None:
    made = carya.TextRanker(carya.Tfidf(), carya.XRLinear(cost=3))
    assert made.get_params()["model__cost"] == 3
    assert clone(made).get_params()["model__cost"] == 3
    made.set_params(model__cost=5, vectorizer__min_df=1)
    assert made.model is not None
    assert (made.model.cost, made.get_params()["vectorizer__min_df"]) == (5, 1)
    with pytest.raises(UnknownParameterError, match="XRLinear has no parameter 'costs'"):
        made.set_params(model__costs=1)
    with pytest.raises(UnknownParameterError, match="model of TextRanker is None"):
        carya.TextRanker().set_params(model__cost=1)
    assert not hasattr(made.fit(*corpus(50)).model, "layers_"), "what the user gave stays as it is"


def test_many_threads_may_ask(ranker: carya.TextRanker) -> None:
    texts, _ = corpus(50, seed=5)
    want = [ranker.suggest(text) for text in texts]
    got: list[Any] = [None] * 4

    def ask(i: int) -> None:
        got[i] = [ranker.suggest(text) for text in texts]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want] * 4


def test_rerankers_find_names_within_words(tmp_path: Path) -> None:
    """Words that no text had before: only their characters tell which names are in them."""
    rng = np.random.default_rng(0)
    names = ["".join(rng.choice(list("abcdefghijklmnop"), 6)) for _ in range(150)]
    texts = [f"{end} for {name}{end}" for end in ("tool", "lore", "less", "ful", "ness", "ship") for name in names]
    labels = [[name] for _ in range(6) for name in names]
    new = [f"{name}ware for me" for name in names]
    model = carya.Reranked(carya.XRLinear(max_leaf=20), NeuralRanker())
    found = carya.TextRanker(model=model).fit(texts, labels)
    assert found.vectorizer_.analyzer == ["word", "char_wb"]
    assert found.model_.members_[0].widths_ == (found.vectorizer_.widths_[0], 0)
    assert found.score(new, labels[:150]) > 0.9
    with pytest.raises(InputError, match="no pair is relevant"):  # words alone say nothing of words held out
        carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels)
    found.save(tmp_path / "model")
    assert carya.load(tmp_path / "model").suggest(new[0]) == found.suggest(new[0])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=10))
def test_strings(texts: list[str]) -> None:
    strings = Strings.of(texts)
    assert list(strings) == texts
    assert [strings[i] for i in range(len(texts))] == texts
    assert strings[1:3] == texts[1:3]
    assert all(texts[place] == text for text, place in strings.numbers.items())
    with pytest.raises(IndexError):
        strings[len(texts)]
    with pytest.raises(InputError):
        Strings(strings.data, np.append(strings.ends, np.int64(-1)))


@given(st.lists(st.lists(st.sampled_from("abcdéf"), max_size=4), max_size=6))
def test_label_matrix(labels: list[list[str]]) -> None:
    Y, ids = label_matrix(labels)
    assert ids == sorted({label for row in labels for label in row})
    for row, given_labels in enumerate(labels):
        assert {ids[i] for i in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]} == set(given_labels)
    assert (Y.data == 1).all()
    known = label_matrix(labels, ["a", "z"])[0]
    assert known.shape == (len(labels), 2)
    assert known.sum() == sum("a" in row for row in labels)


def test_a_matrix_without_a_label_says_so() -> None:
    none = LabelRows(Csr.of(np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 2), ["a", "b"])
    with pytest.raises(InputError, match="no text has a label"):
        carya.TextRanker(carya.Tfidf(min_df=1)).fit(["one", "two"], none)


def test_texts_without_a_common_word_are_ranked_by_characters() -> None:
    """The words of a reranker's own features may all be too rare to count."""
    texts = [f"{'abc' if at % 2 else 'xyz'}{at:03}" for at in range(200)]
    labels = [["odd" if at % 2 else "even"] for at in range(200)]
    ranker = carya.TextRanker(model=carya.Reranked(ranker=NeuralRanker())).fit(texts, labels)
    assert ranker.vectorizer_.widths_[0] == 0
    assert ranker.suggest("abc777", top_k=1)[0].label == "odd"
