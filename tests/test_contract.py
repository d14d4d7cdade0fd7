"""Contract tests: each test in the first part runs on every model kind in model_kinds.py."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import json
import pickle
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import carya
from carya.core.parameters import set_in_all
from carya.data import SyntheticData
from carya.errors import InputError, NotFittedError, ParameterError, UnknownParameterError, UnknownTextWarning
from carya.models.training_data import TrainingData

from matrix_helpers import ranking_of, same_matrix, scale
from model_kinds import (
    EXHAUSTIVE,
    KINDS,
    ModelKind,
    TrainingSet,
    params,
    rank_one,
    training_set,
    training_set_with_twins,
)
from reference_search import MIN_NORMAL, AmbiguityError, ReferenceSearch


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model, its kind, its training data, and a copy of the data made before training."""

    kind: ModelKind
    model: Any
    data: TrainingSet
    data_before: TrainingSet


@pytest.fixture(scope="module", params=params(KINDS))
def fitted(request: pytest.FixtureRequest) -> Fitted:
    """A fitted model; tests must not modify it."""
    kind: ModelKind = request.param
    data = training_set(kind.form)
    before = data.copy()
    return Fitted(kind, kind.create().fit(data.inputs, data.labels), data, before)


@pytest.fixture(params=params(KINDS))
def kind(request: pytest.FixtureRequest) -> ModelKind:
    """A model kind."""
    kind: ModelKind = request.param
    return kind


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a saved model, keyed by path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_n_jobs(value: Any) -> Any:
    """Return JSON data without the number of threads and the checksum, which depends on that number."""
    if isinstance(value, dict):
        return {name: without_n_jobs(item) for name, item in value.items() if name not in ("n_jobs", "checksum")}
    return [without_n_jobs(item) for item in value] if isinstance(value, list) else value


def refusal(call: Callable[[], Any]) -> str | None:
    """Return the message of the InputError that a call raises, or None if it raises none."""
    try:
        call()
    except InputError as error:
        return str(error)
    return None


FINER_LOGARITHMS = 0.56  # for larger scores s, |log(s)| < s


def is_ordered(ranking: list[tuple[int, float]], *, saturates: bool) -> bool:
    """Return whether scores are in descending order, with ties broken in favor of the lower label.

    Trees compare log scores, which can differ even if the scores round to the same number: above `FINER_LOGARITHMS`,
    log scores have a finer resolution, and below the normal range of float32, scores have fewer significant bits.
    """
    return all(
        first > second
        or (first == second and (label < other or (saturates and not MIN_NORMAL <= first < FINER_LOGARITHMS)))
        for (label, first), (other, second) in itertools.pairwise(ranking)
    )


def test_training_rows_are_ranked_well(fitted: Fitted) -> None:
    assert fitted.model.score(fitted.data.inputs, fitted.data.labels) > fitted.kind.min_precision


def test_rows_are_sorted_best_first(fitted: Fitted) -> None:
    S = fitted.model.predict(fitted.data.rows(slice(0, 60)), top_k=7)
    for row in range(60):
        ranking = ranking_of(S, row)
        assert len({label for label, _ in ranking}) == len(ranking)
        assert len(ranking) == 7 or (not fitted.kind.finds_all and 0 < len(ranking) < 7)
        assert is_ordered(ranking, saturates=fitted.kind.saturates)


def test_batch_equals_one_by_one(fitted: Fitted) -> None:
    S = fitted.model.predict(fitted.data.rows(slice(0, 30)), top_k=5)
    for row in range(30):
        assert rank_one(fitted.model, fitted.data.rows([row]), top_k=5) == ranking_of(S, row)


def test_same_seed_gives_same_bytes_for_any_number_of_threads(fitted: Fitted, tmp_path: Path) -> None:
    fitted.model.save(tmp_path / "model")
    expected = files_of(tmp_path / "model")
    for n_jobs in (1, 8):
        other = fitted.kind.create(n_jobs=n_jobs).fit(fitted.data.inputs, fitted.data.labels)
        other.save(tmp_path / f"{n_jobs} threads")
        files = files_of(tmp_path / f"{n_jobs} threads")
        assert files.keys() == expected.keys()
        for name, content in files.items():
            if name == "manifest.json":
                assert without_n_jobs(json.loads(content)) == without_n_jobs(json.loads(expected[name]))
            else:
                assert content == expected[name], name


def test_predictions_do_not_depend_on_the_number_of_threads(fitted: Fitted) -> None:
    S = fitted.model.predict(fitted.data.inputs)
    other = copy.deepcopy(fitted.model)
    if "n_jobs" in other.parameter_names():
        assert same_matrix(other.set_params(n_jobs=8).predict(fitted.data.inputs), S)
        assert same_matrix(other.set_params(n_jobs=1).predict(fitted.data.inputs), S)
    else:
        for n_jobs in (8, 1):
            set_in_all(other, n_jobs=n_jobs)
            assert same_matrix(other.predict(fitted.data.inputs), S)


def test_loaded_model_ranks_the_same(fitted: Fitted, tmp_path: Path) -> None:
    fitted.model.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert type(loaded) is type(fitted.model)
    for name in set(loaded.parameter_names()) - fitted.kind.not_saved:
        saved = getattr(fitted.model, name)
        if saved == "auto" and name in ("C", "transform"):  # instead of "auto", the selected value is saved
            saved = getattr(fitted.model, f"effective_{name}")
            assert getattr(loaded, f"{name}_") == getattr(fitted.model, f"{name}_")
        assert getattr(loaded, name) == saved, name
    S = fitted.model.predict(fitted.data.inputs, top_k=6)
    assert same_matrix(loaded.predict(fitted.data.inputs, top_k=6), S)
    assert rank_one(loaded, fitted.data.rows([3]), top_k=6) == ranking_of(S, 3)


def test_saving_a_loaded_model_gives_the_same_bytes(fitted: Fitted, tmp_path: Path) -> None:
    fitted.model.save(tmp_path / "model")
    carya.load(tmp_path / "model").save(tmp_path / "copy")
    assert files_of(tmp_path / "copy") == files_of(tmp_path / "model")


def test_copied_and_pickled_models_rank_the_same(fitted: Fitted, tmp_path: Path) -> None:
    fitted.model.save(tmp_path / "model")
    queries = fitted.data.rows(slice(0, 20))
    expected = fitted.model.predict(queries)
    for model in (fitted.model, carya.load(tmp_path / "model")):
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert same_matrix(copied.predict(queries), expected)


def test_training_and_ranking_leave_the_input_unchanged(fitted: Fitted) -> None:
    fitted.model.predict(fitted.data.inputs)
    rank_one(fitted.model, fitted.data.rows([0]))
    if fitted.kind.brute_force is not None:
        fitted.kind.brute_force(fitted.model, fitted.data.inputs)
    assert_equal_data(fitted.data.inputs, fitted.data_before.inputs)
    assert_equal_data(fitted.data.labels, fitted.data_before.labels)


def assert_equal_data(data: Any, expected: Any) -> None:
    """Assert that two matrices, pairs of matrices or lists are identical."""
    if isinstance(data, tuple):
        for block, expected_block in zip(data, expected, strict=True):
            assert_equal_data(block, expected_block)
    elif sp.issparse(data):
        assert same_matrix(data, expected)
    else:
        assert np.array_equal(data, expected) if isinstance(data, np.ndarray) else data == expected


@pytest.mark.parametrize("fitted", params([kind for kind in KINDS if kind.brute_force is not None]), indirect=True)
def test_an_exhaustive_beam_equals_brute_force(fitted: Fitted) -> None:
    queries = fitted.data.rows(slice(0, 30))
    assert fitted.kind.brute_force is not None
    scores = fitted.kind.brute_force(fitted.model, queries)
    n_labels = scores.shape[1]
    S = fitted.model.predict(queries, top_k=n_labels, beam_width=EXHAUSTIVE)
    assert np.diff(S.indptr).tolist() == [n_labels] * 30
    if fitted.kind.exact:
        assert np.array_equal(S.toarray(), scores.astype(np.float32))
    else:
        assert np.allclose(S.toarray(), scores, rtol=1e-5, atol=1e-7)
    for row in range(30):
        assert is_ordered(ranking_of(S, row), saturates=fitted.kind.saturates)


@pytest.mark.parametrize("fitted", params([kind for kind in KINDS if kind.name.startswith("XRLinear")]), indirect=True)
def test_a_narrow_beam_equals_the_reference(fitted: Fitted) -> None:
    reference = ReferenceSearch(fitted.model)
    queries = fitted.data.rows(slice(0, 20))
    blocks = queries if isinstance(queries, tuple) else (queries,)
    dense = np.hstack([block.toarray() if sp.issparse(block) else block for block in blocks])
    for beam_width in (1, 3):
        S = fitted.model.predict(queries, top_k=5, beam_width=beam_width)
        ambiguous = 0
        for row in range(20):
            try:
                reference.check(dense[row], ranking_of(S, row), top_k=5, beam_width=beam_width)
            except AmbiguityError:
                ambiguous += 1
        assert ambiguous <= 1


#: The methods and properties that every model has.
METHODS = {
    "fit",
    "predict",
    "predict_selected",
    "rank",
    "score",
    "save",
    "to_saved",
    "subset",
    "with_transform",
    "scores_any_label",
    "check_parameters",
    "clone",
    "get_params",
    "set_params",
}
#: Additional methods and properties that every text model has.
TEXT_METHODS = {
    "suggest",
    "suggest_all",
    "rank_texts",
    "explain",
    "calibrate",
    "label_matrix",
    "labels_",
    "label_names_",
    "label_counts_",
    "label_set_",
    "calibration_",
    "trees_",
}


def test_all_kinds_have_the_same_methods(kind: ModelKind) -> None:
    cls = type(kind.create())
    expected = METHODS | TEXT_METHODS if kind.form == "texts" else METHODS
    assert not {name for name in expected if not hasattr(cls, name)}


@pytest.mark.parametrize("fitted", params([kind for kind in KINDS if kind.form == "texts"]), indirect=True)
def test_rank_returns_the_numbers_of_the_suggested_labels(fitted: Fitted) -> None:
    (text,) = fitted.data.rows([4])
    labels, scores = fitted.model.rank(text, top_k=4)
    suggestions = fitted.model.suggest(text, top_k=4)
    assert labels.dtype == np.int32
    assert [fitted.model.labels_[label] for label in labels] == [suggestion.label for suggestion in suggestions]
    assert scores.tolist() == [suggestion.score for suggestion in suggestions]
    assert fitted.model.rank_texts([text], top_k=4) == [list(zip(labels.tolist(), scores.tolist(), strict=True))]
    with pytest.raises(InputError, match="text must be a string, got list"):
        fitted.model.rank([text])


def test_selected_labels_have_the_same_scores_as_in_a_ranking(fitted: Fitted) -> None:
    queries = fitted.data.rows(slice(0, 20))
    # Rank all labels, because an ensemble ignores the scores of labels that are not among the best of a member.
    S = fitted.model.predict(queries, top_k=len(fitted.model.labels_), beam_width=EXHAUSTIVE)
    if not fitted.model.scores_any_label:
        with pytest.raises(InputError, match=r"scores? only"):
            fitted.model.predict_selected(queries, S)
        return
    selected = fitted.model.predict_selected(queries, S)
    assert np.allclose(selected.toarray(), S.toarray(), rtol=1e-5, atol=1e-7)
    others = fitted.model.predict_selected(queries, np.ones(S.shape))
    assert others.nnz == S.shape[0] * S.shape[1]
    assert np.allclose(others.toarray()[S.toarray() != 0], S.toarray()[S.toarray() != 0], rtol=1e-5, atol=1e-7)
    with pytest.raises(InputError, match="candidates must have shape"):
        fitted.model.predict_selected(queries, np.ones((3, 2)))


def test_all_ranking_methods_accept_the_same_labels(fitted: Fitted) -> None:
    model, query = fitted.model, fitted.data.rows([4])
    one = query[0] if isinstance(query, list) else query
    numbers = [1, 5, 8, 13, 21]
    labels = [model.labels_[number] for number in numbers] if fitted.kind.form == "texts" else numbers
    ranked, scores = model.rank(one, top_k=3, labels=labels)
    assert set(ranked.tolist()) <= set(numbers)
    S = model.predict(query, top_k=3, labels=labels)
    assert (S.indices.tolist(), S.data.tolist()) == (ranked.tolist(), scores.tolist())
    expected = [model.labels_[label] for label in ranked]
    assert [suggestion.label for suggestion in model.suggest(one, top_k=3, labels=labels)] == expected
    assert [suggestion.label for suggestion in model.suggest_all(query, top_k=3, labels=labels)[0]] == expected
    assert ranked.size == 3 or not fitted.kind.finds_all


def test_all_ranking_methods_accept_the_same_transform_or_refuse_it(fitted: Fitted) -> None:
    model, query = fitted.model, fitted.data.rows([4])
    one = query[0] if isinstance(query, list) else query
    calls = {"rank": one, "suggest": one, "predict": query, "suggest_all": query}
    message = refusal(lambda: model.with_transform("sigmoid"))
    if message is not None:
        assert "transform" in message
        assert "cannot be changed" in message
        for name, argument in calls.items():
            assert refusal(functools.partial(getattr(model, name), argument, transform="sigmoid")) == message
        return
    other = model.with_transform("sigmoid")
    results = {name: getattr(model, name)(argument, transform="sigmoid", top_k=4) for name, argument in calls.items()}
    assert same_matrix(results["predict"], other.predict(query, top_k=4))
    assert results["rank"][0].tolist() == results["predict"].indices.tolist()
    assert results["rank"][1].tolist() == results["predict"].data.tolist()
    assert results["suggest"] == results["suggest_all"][0] == other.suggest(one, top_k=4)


def test_a_subset_is_a_model_of_some_labels_or_is_refused(fitted: Fitted, tmp_path: Path) -> None:
    model, queries = fitted.model, fitted.data.rows(slice(0, 12))
    numbers = [1, 5, 8, 13, 21]
    labels = [model.labels_[number] for number in numbers] if fitted.kind.form == "texts" else numbers
    message = refusal(lambda: model.subset(labels))
    if message is not None:
        assert re.search(r"do(es)? not support subset\..* [Pp]ass labels to predict", message)
        return
    small = model.subset(labels)
    S = small.predict(queries, top_k=5, beam_width=EXHAUSTIVE)
    assert S.shape == (12, 5)
    expected = model.predict(queries, top_k=5, beam_width=EXHAUSTIVE, labels=labels)
    for row in range(12):
        ranking = [(numbers[label], score) for label, score in ranking_of(S, row)]
        assert dict(ranking) == pytest.approx(dict(ranking_of(expected, row)), rel=1e-5, abs=1e-6)
    if fitted.kind.form == "texts":
        assert list(small.labels_) == labels
    small.save(tmp_path / "small")
    for copied in (carya.load(tmp_path / "small"), pickle.loads(pickle.dumps(small))):
        assert same_matrix(copied.predict(queries, top_k=5, beam_width=EXHAUSTIVE), S)


def test_min_score_drops_exactly_the_labels_below_it(fitted: Fitted) -> None:
    queries = fitted.data.rows(slice(0, 30))
    S = fitted.model.predict(queries, top_k=8)
    median = float(np.median(S.data))
    for row in range(30):
        kept = [(label, score) for label, score in ranking_of(S, row) if score >= median]
        assert rank_one(fitted.model, fitted.data.rows([row]), top_k=8, min_score=median) == kept
    assert 0 < (S.data >= median).sum() < S.nnz


def test_inputs_without_features_get_no_labels(fitted: Fitted) -> None:
    if fitted.kind.form == "texts":
        empty: Any = ["", "unknownword"]
        queries = [[text] for text in empty]
    else:
        empty = scale(fitted.data.rows(slice(0, 3)), 0)
        queries = [scale(fitted.data.rows([0]), 0)]
    if fitted.kind.ranks_empty:
        assert np.diff(fitted.model.predict(empty, top_k=3).indptr).tolist() == [3] * len(queries)
        return
    calls: list[Callable[[], Any]] = [
        lambda: list(fitted.model.predict(empty).data),
        lambda: list(itertools.chain.from_iterable(fitted.model.suggest_all(empty))),
        *(functools.partial(rank_one, fitted.model, query) for query in queries),
    ]
    for call in calls:
        with pytest.warns(UnknownTextWarning) if fitted.kind.form == "texts" else contextlib.nullcontext():
            assert call() == []


def test_empty_input_gives_an_empty_matrix(fitted: Fitted) -> None:
    n_labels = fitted.model.predict(fitted.data.rows([0])).shape[1]
    assert fitted.model.predict(fitted.data.rows(slice(0, 0))).shape == (0, n_labels)


def test_top_k_above_the_number_of_labels_is_accepted(fitted: Fitted) -> None:
    S = fitted.model.predict(fitted.data.rows(slice(0, 3)), top_k=EXHAUSTIVE, beam_width=EXHAUSTIVE)
    assert 0 < np.diff(S.indptr).max() <= S.shape[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k must be an integer >= 1, got 0"),
        ({"top_k": 2.0}, r"top_k must be an integer >= 1, got 2\.0"),
        ({"beam_width": 0}, "beam_width must be an integer >= 1, got 0"),
    ],
)
def test_invalid_options_are_rejected(fitted: Fitted, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted.model.predict(fitted.data.rows(slice(0, 2)), **options)
    with pytest.raises(InputError, match=message):
        rank_one(fitted.model, fitted.data.rows([0]), **options)


@pytest.mark.parametrize("fitted", params([kind for kind in KINDS if kind.form != "texts"]), indirect=True)
def test_queries_with_a_different_number_of_features_are_rejected(fitted: Fitted) -> None:
    model, X = fitted.model, fitted.data.inputs
    if isinstance(X, tuple):
        with pytest.raises(InputError, match="X has 15 dense columns, but must have 16, as in training"):
            model.predict((X[0], X[1][:, 1:]))
        with pytest.raises(InputError, match=r"X must be a \(sparse, dense\) pair"):
            model.predict(sp.hstack([X[0], sp.csr_array(X[1])]))
        return
    width = X.shape[1]
    with pytest.raises(InputError, match=f"X has {width - 1} columns, but must have {width}, as in training"):
        model.predict(X[:, 1:])
    with pytest.raises(InputError, match="x has 2 rows, but rank accepts a single row"):
        model.rank(X[[0, 1]])


@pytest.mark.parametrize("fitted", params([kind for kind in KINDS if kind.form == "texts"]), indirect=True)
def test_inputs_that_are_not_texts_are_rejected(fitted: Fitted) -> None:
    with pytest.raises(InputError, match="texts must be a list of strings, got a single str"):
        fitted.model.predict("a text")
    with pytest.raises(InputError, match="text must be a string, got list"):
        fitted.model.suggest(["a text"])


def test_concurrent_queries_get_the_same_rankings(fitted: Fitted) -> None:
    queries = fitted.data.rows(slice(0, 10))
    expected = fitted.model.predict(queries)
    single = [rank_one(fitted.model, fitted.data.rows([row])) for row in range(10)]
    results: list[tuple[Any, Any]] = []

    def query() -> None:
        rankings = [rank_one(fitted.model, fitted.data.rows([row])) for row in range(10)]
        results.append((fitted.model.predict(queries), rankings))

    threads = [threading.Thread(target=query) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for S, rankings in results:
        assert same_matrix(S, expected)
        assert rankings == single


def test_label_reports_count_the_suggestions_of_every_kind(fitted: Fitted) -> None:
    report = carya.label_report(fitted.model, fitted.data.inputs, fitted.data.labels, k=2)
    S = fitted.model.predict(fitted.data.inputs, top_k=2)
    assert report.labels.suggested.sum() == S.nnz
    assert report.metrics["P@2"] == pytest.approx(report.labels.correct.sum() / (2 * S.shape[0]))
    assert (report.vocabulary_shift is None) == (not getattr(fitted.model, "vectorizers_", ()))


@pytest.mark.parametrize("fitted", params([kind for kind in KINDS if kind.form == "texts"]), indirect=True)
def test_new_labels_are_proposed_or_refused(fitted: Fitted) -> None:
    text = f"{fitted.data.inputs[0]} quantum chromodynamics"
    try:
        merged = fitted.model.suggest(text, top_k=200, open_vocabulary=True)
    except InputError as error:
        assert "open_vocabulary requires" in str(error)  # noqa: PT017
        assert not any("word" in vectorizer.analyzers_ for vectorizer in fitted.model.vectorizers_)
        return
    new = {suggestion.label for suggestion in merged if suggestion.is_new}
    assert new
    assert not new & set(fitted.model.labels_)
    known = [suggestion for suggestion in merged if not suggestion.is_new]
    assert known == fitted.model.suggest(text, top_k=200)[: len(known)]


@pytest.mark.parametrize("kind", params([kind for kind in KINDS if kind.twins_tie]))
def test_ties_go_to_the_lower_label(kind: ModelKind) -> None:
    """Labels 2i and 2i + 1 occur in the same rows, so their scores are often equal."""
    data = training_set_with_twins(kind.form)
    model = kind.create().fit(data.inputs, data.labels)
    n_rows = 120
    S = model.predict(data.rows(slice(0, n_rows)), top_k=8, beam_width=EXHAUSTIVE)
    ties = 0
    for row in range(n_rows):
        ranking = ranking_of(S, row)
        assert is_ordered(ranking, saturates=kind.saturates)
        scores = dict(ranking)
        twins = [label for label in scores if label % 2 == 0 and scores.get(label + 1) == scores[label]]
        ties += len(twins)
        positions = {label: position for position, (label, _) in enumerate(ranking)}
        exact = [label for label in twins if not kind.saturates or MIN_NORMAL <= scores[label] < FINER_LOGARITHMS]
        assert all(positions[label] < positions[label + 1] for label in exact)
    assert ties >= 5


def test_unfitted_models_raise_not_fitted_error(kind: ModelKind, tmp_path: Path) -> None:
    model = kind.create()
    query = training_set(kind.form).rows([0])
    calls: list[Callable[[], Any]] = [
        lambda: model.predict(query),
        lambda: model.suggest("a text") if kind.form == "texts" else model.rank(query),
        lambda: model.save(tmp_path / "model"),
        lambda: model.score(query, training_set(kind.form).labels[:1]),
    ]
    if hasattr(model, "predict_selected"):
        calls.append(lambda: model.predict_selected(query, np.ones((1, 1))))
    for call in calls:
        with pytest.raises(NotFittedError, match=rf"This {type(model).__name__} is not fitted yet\. Call fit first\."):
            call()
    assert not (tmp_path / "model").exists()


def test_training_on_validated_data_checks_the_parameters(kind: ModelKind) -> None:
    if kind.form == "texts":
        return
    model, data = kind.create(), training_set(kind.form)
    model.set_params(n_jobs=0)
    with pytest.raises(ParameterError, match=r"n_jobs must be .*, got 0\."):
        model.fit_data(TrainingData.of(data.inputs, data.labels))
    assert not model.__sklearn_is_fitted__()


def test_unknown_parameters_are_rejected_with_a_hint(kind: ModelKind) -> None:
    model = kind.create()
    name = type(model).__name__
    known = model.parameter_names()[0]
    misspelled = known[:2] + known[3:]
    hint = rf"{name} has no parameter '{misspelled}'\. Did you mean '{known}'\?"
    calls: list[Callable[[], Any]] = [
        lambda: type(model)(**{misspelled: 1}),
        lambda: model.set_params(**{misspelled: 1}),
    ]
    for call in calls:
        with pytest.raises(UnknownParameterError, match=hint):
            call()
    with pytest.raises(UnknownParameterError, match=rf"{name} has no parameter 'zzz'\.$"):
        model.set_params(zzz=1)


def test_random_state_is_an_alias_of_seed(kind: ModelKind) -> None:
    cls = type(kind.create())
    if "seed" not in cls.parameter_names():
        assert cls is carya.TextRanker  # only the model that it contains has a seed
        assert kind.create().set_params(model__random_state=5).model.seed == 5
        with pytest.raises(UnknownParameterError, match="TextRanker has no parameter 'random_state'"):
            cls(random_state=7)
        return
    assert cls(random_state=7).seed == 7
    assert cls().set_params(random_state=8).seed == 8
    assert "random_state" not in cls(random_state=7).get_params()
    with pytest.raises(ParameterError, match="seed and random_state are the same parameter"):
        cls(seed=1, random_state=2)


def test_parameters_round_trip(fitted: Fitted) -> None:
    model = fitted.model
    parameters = model.get_params(deep=False)
    assert list(parameters) == [name for name in inspect.signature(type(model).__init__).parameters if name != "self"]
    for copied in (type(model)(**parameters), model.clone(), clone(model)):
        assert repr(copied) == repr(model)
        assert not copied.__sklearn_is_fitted__()
        with pytest.raises(NotFittedError):
            copied.predict(fitted.data.rows([0]))
    assert model.__sklearn_is_fitted__()
    other = clone(model)
    assert other.set_params(**other.get_params()) is other
    assert repr(other) == repr(model)
    nested = [name for name in other.get_params() if name.endswith(("n_jobs", "seed"))]
    assert nested
    for name in nested:
        assert other.set_params(**{name: 77}).get_params()[name] == 77
    assert fitted.kind.create().get_params()[nested[0]] != 77


# The following tests do not run on every model kind; most of them use XRLinear.


@pytest.mark.parametrize(
    "convert",
    [
        sp.csr_matrix,
        sp.csr_array,
        sp.csc_array,
        sp.coo_array,
        sp.lil_matrix,
        lambda X: X.astype(np.float64),
        lambda X: X.toarray(),
        lambda X: X.toarray().tolist(),
    ],
    ids=["csr_matrix", "csr_array", "csc", "coo", "lil", "float64", "array", "list"],
)
def test_every_matrix_format_ranks_the_same(
    model: carya.XRLinear, world: SyntheticData, convert: Callable[[Any], Any]
) -> None:
    assert same_matrix(model.predict(convert(world.X[:30])), model.predict(world.X[:30]))


def test_entries_can_be_unsorted_and_repeated_entries_are_summed(model: carya.XRLinear, world: SyntheticData) -> None:
    x = world.X[[5]]
    shuffled = np.random.default_rng(0).permutation(x.nnz)
    halves = sp.csr_array(
        (np.tile(x.data[shuffled] / 2, 2), np.tile(x.indices[shuffled], 2), np.array([0, 2 * x.nnz])), shape=x.shape
    )
    assert np.array_equal(model.rank(halves)[0], model.rank(x)[0])


def test_models_with_dense_features_accept_sparse_queries(world: SyntheticData, pair: Any) -> None:
    dense = carya.XRLinear(max_leaf_size=10).fit(pair[1], world.Y)
    assert same_matrix(dense.predict(sp.csr_array(pair[1])), dense.predict(pair[1]))


def test_unfitted_models_can_be_pickled() -> None:
    """GridSearchCV pickles unfitted models to send them to its worker processes."""
    for name in (
        "XRLinear",
        "NearestNeighbors",
        "Ensemble",
        "Reranked",
        "TextRanker",
        "TextEnsemble",
        "TextReranker",
        "XRTransformer",
        "XTransformer",
        "CrossEncoderRanker",
    ):
        model = getattr(carya, name)()
        assert pickle.loads(pickle.dumps(model)).get_params() == model.get_params()
    assert pickle.loads(pickle.dumps(carya.XRLinear(max_leaf_size=7))).max_leaf_size == 7


def test_the_seed_determines_the_tree() -> None:
    data = training_set("sparse")
    first, second, other = (
        carya.XRLinear(branching=4, max_leaf_size=8, seed=seed).fit(data.inputs, data.labels) for seed in (0, 0, 1)
    )
    assert first.tree_ == second.tree_
    assert first.tree_ != other.tree_


def have_equal_weights(first: carya.XRLinear, second: carya.XRLinear) -> bool:
    """Return whether two models have the same weights in all layers."""
    return all(
        np.array_equal(layer.weights.data, other.weights.data)
        for layer, other in zip(first.layers_, second.layers_, strict=True)
    )


def test_training_beam_width_replaces_beam_width_in_training(world: SyntheticData) -> None:
    options: dict[str, Any] = {"branching": 4, "max_leaf_size": 10}
    beam_widths: list[dict[str, Any]] = [
        {"beam_width": 2},
        {"beam_width": 5, "training_beam_width": 2},
        {"beam_width": 5},
    ]
    narrow, both, wide = (carya.XRLinear(**options, **beams).fit(world.X, world.Y) for beams in beam_widths)
    assert have_equal_weights(narrow, both)
    assert not have_equal_weights(wide, both)
    assert (both.predict(world.X) != wide.predict(world.X)).nnz > 0
    assert (both.predict(world.X) != narrow.predict(world.X, beam_width=5)).nnz == 0


def test_a_beam_with_all_clusters_adds_no_negatives(world: SyntheticData) -> None:
    """If the beam contains all clusters, matcher negatives are ignored, but only if teacher negatives are also used."""
    options: dict[str, Any] = {"branching": 4, "max_leaf_size": 10, "transform": "l3-hinge"}
    teacher = carya.XRLinear(negatives="teacher", **options).fit(world.X, world.Y)
    wide = carya.XRLinear(negatives="both", beam_width=1000, **options).fit(world.X, world.Y)
    narrow = carya.XRLinear(negatives="both", beam_width=2, **options).fit(world.X, world.Y)
    alone = carya.XRLinear(negatives="matcher", beam_width=1000, **options).fit(world.X, world.Y)
    assert have_equal_weights(teacher, wide)
    assert not have_equal_weights(teacher, narrow)
    assert not have_equal_weights(teacher, alone)
