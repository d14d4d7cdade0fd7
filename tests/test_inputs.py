"""Tests for input types: every supported type of texts, labels and features gives the same model and predictions."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import MultiLabelBinarizer

import carya
from carya.core.inputs.labels import coerce_labels, match_labels
from carya.core.matrices import Csr
from carya.core.strings import NumberStrings, StringArray
from carya.data import Corpus, Matrices, SyntheticData, Vocabulary, open_data, write_data
from carya.errors import InputError, MissingExtraError, ModelFormatError

import input_forms
from input_forms import Form, params
from matrix_helpers import same_matrix
from topics import corpus

TEXTS, LABELS = corpus(120)
X = carya.Tfidf(min_df=1).fit_transform(TEXTS)
Y, IDS = carya.text.labels.label_matrix(LABELS)
SINGLE = [row[0] for row in LABELS]
SINGLE_IDS = sorted(set(SINGLE))
CLASSES = [SINGLE_IDS.index(label) for label in SINGLE]


def text_ranker() -> carya.TextRanker:
    return carya.TextRanker(carya.Tfidf(min_df=1), carya.XRLinear(branching=4, max_leaf_size=6))


def tree() -> carya.XRLinear:
    return carya.XRLinear(branching=4, max_leaf_size=6)


#: For each model kind trained on features, a function that creates an unfitted model.
FEATURE_MODELS: dict[str, Callable[[], Any]] = {
    "XRLinear": tree,
    "NearestNeighbors": lambda: carya.NearestNeighbors(n_neighbors=10),
    "Ensemble": lambda: carya.Ensemble(tree(), n_trees=2),
    "Reranked": lambda: carya.Reranked(tree(), carya.ranking.NeuralRanker(epochs=30), n_neighbors=10),
}


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    """A ranker trained on Python lists of texts and labels."""
    return text_ranker().fit(TEXTS, LABELS)


@pytest.mark.parametrize("form", params(input_forms.TEXTS))
def test_every_form_of_texts_gives_the_same_results(form: Form, ranker: carya.TextRanker) -> None:
    expected = ranker.predict(TEXTS)
    assert same_matrix(text_ranker().fit(form.convert(TEXTS), LABELS).predict(TEXTS), expected)
    assert same_matrix(ranker.predict(form.convert(TEXTS)), expected)
    assert ranker.suggest_all(form.convert(TEXTS)) == ranker.suggest_all(TEXTS)
    assert ranker.score(form.convert(TEXTS), LABELS) == ranker.score(TEXTS, LABELS) > 0.9
    assert same_matrix(ranker.vectorizer_.transform(form.convert(TEXTS)), X)
    assert same_matrix(carya.Tfidf(min_df=1).fit_transform(form.convert(TEXTS)), X)
    assert ranker.predict_selected(form.convert(TEXTS), LABELS).nnz == Y.nnz
    scores = ranker.suggestion_scores(form.convert(TEXTS), LABELS)
    assert np.array_equal(scores[0], ranker.suggestion_scores(TEXTS, LABELS)[0])


@pytest.mark.parametrize("form", params(input_forms.LABEL_LISTS))
def test_every_form_of_label_lists_gives_the_same_model(form: Form, ranker: carya.TextRanker) -> None:
    other = text_ranker().fit(TEXTS, form.convert(LABELS))
    assert list(other.labels_) == list(ranker.labels_) == IDS
    assert same_matrix(other.predict(TEXTS), ranker.predict(TEXTS))
    assert ranker.score(TEXTS, form.convert(LABELS)) == ranker.score(TEXTS, LABELS)
    expected = tree().fit(X, Y)
    model = tree().fit(X, form.convert(LABELS))
    assert list(model.labels_) == IDS
    assert same_matrix(model.predict(X), expected.predict(X))
    assert model.score(X, form.convert(LABELS)) == expected.score(X, Y) > 0.9
    assert same_matrix(model.predict_selected(X, form.convert(LABELS)), expected.predict_selected(X, Y))


@pytest.mark.parametrize("form", params(input_forms.SINGLE_LABELS))
def test_one_label_per_row_equals_lists_with_one_label(form: Form) -> None:
    expected = text_ranker().fit(TEXTS, [[label] for label in SINGLE])
    ranker = text_ranker().fit(TEXTS, form.convert(SINGLE))
    assert list(ranker.labels_) == SINGLE_IDS
    assert same_matrix(ranker.predict(TEXTS), expected.predict(TEXTS))
    assert ranker.score(TEXTS, form.convert(SINGLE)) == expected.score(TEXTS, SINGLE) > 0.9
    model = tree().fit(X, form.convert(SINGLE))
    assert list(model.labels_) == SINGLE_IDS
    assert model.score(X, form.convert(SINGLE)) > 0.9
    assert model.suggest(X[[0]], top_k=1)[0].label in SINGLE_IDS


@pytest.mark.parametrize("form", params(input_forms.CLASS_NUMBERS))
def test_integers_are_column_numbers(form: Form) -> None:
    numbers = [3 * number for number in CLASSES]  # most columns are empty
    matrix = sp.csr_array((np.ones(len(numbers)), (range(len(numbers)), numbers)))
    model, expected = tree().fit(X, form.convert(numbers)), tree().fit(X, matrix)
    assert model.n_labels_ == max(numbers) + 1
    assert same_matrix(model.predict(X), expected.predict(X))
    assert model.score(X, form.convert(numbers)) == expected.score(X, matrix) > 0.9
    assert isinstance(model.labels_, NumberStrings)
    ranker = text_ranker().fit(TEXTS, form.convert(numbers))
    assert list(ranker.labels_) == [str(number) for number in range(max(numbers) + 1)]
    assert ranker.score(TEXTS, form.convert(numbers)) > 0.9
    named = text_ranker().fit(TEXTS, form.convert(CLASSES), label_names=SINGLE_IDS)
    assert same_matrix(named.predict(TEXTS), text_ranker().fit(TEXTS, SINGLE).predict(TEXTS))


@pytest.mark.parametrize("form", params(input_forms.INDICATORS))
def test_every_form_of_indicator_matrix_gives_the_same_model(form: Form, ranker: carya.TextRanker) -> None:
    expected = tree().fit(X, Y)
    for model in (tree().fit(X, form.convert(Y)), tree().fit(X, form.convert(Y), label_names=IDS)):
        assert same_matrix(model.predict(X), expected.predict(X))
        assert model.score(X, form.convert(Y)) == expected.score(X, Y)
    numbered = text_ranker().fit(TEXTS, form.convert(Y))
    assert list(numbered.labels_) == [str(number) for number in range(len(IDS))]
    named = text_ranker().fit(TEXTS, form.convert(Y), label_names=np.array(IDS))
    assert list(named.labels_) == IDS
    for other in (numbered, named):
        assert same_matrix(other.predict(TEXTS), ranker.predict(TEXTS))
        assert other.score(TEXTS, form.convert(Y)) == ranker.score(TEXTS, LABELS)


@pytest.mark.parametrize("form", params(input_forms.FEATURES))
def test_every_form_of_features_gives_the_same_results(form: Form, world: SyntheticData) -> None:
    rows, labels = world.X[:200, :60], world.Y[:200]
    is_sparse = sp.issparse(form.convert(rows)) or "sparse" in form.name or form.name == "Matrices"
    expected = tree().fit(rows if is_sparse else rows.toarray(), labels)
    model = tree().fit(form.convert(rows), labels)
    assert model.widths_ == expected.widths_ == ((60, 0) if is_sparse else (0, 60))
    S = expected.predict(rows)
    assert same_matrix(model.predict(rows), S)
    assert same_matrix(expected.predict(form.convert(rows)), S)
    assert expected.suggest_all(form.convert(rows)) == expected.suggest_all(rows)
    assert expected.score(form.convert(rows), labels) == expected.score(rows, labels)
    assert same_matrix(expected.predict_selected(form.convert(rows), labels), expected.predict_selected(rows, labels))


@pytest.mark.parametrize("kind", FEATURE_MODELS)
def test_all_models_accept_frames_and_named_labels(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model = FEATURE_MODELS[kind]()
    frame = pandas.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X))
    model.fit(frame, pandas.Series(LABELS))
    expected = model.clone().fit(X, Y)
    assert same_matrix(model.predict(frame), expected.predict(X))
    assert model.score(frame, LABELS) == expected.score(X, Y) > 0.8
    assert list(model.labels_) == IDS
    suggestions = model.suggest(frame.iloc[[3]], top_k=4)
    labels, scores = model.rank(X[[3]], top_k=4)
    assert [(s.label, s.score, s.name) for s in suggestions] == [
        (IDS[label], score, IDS[label]) for label, score in zip(labels, scores.tolist(), strict=True)
    ]
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert list(loaded.labels_) == IDS
    assert loaded.suggest_all(X[:5]) == model.suggest_all(X[:5])
    model.fit(X, Y)
    assert isinstance(model.labels_, NumberStrings)


def test_rank_accepts_rows_of_frames_and_tensors() -> None:
    pandas = pytest.importorskip("pandas")
    model = tree().fit(X.toarray(), Y)
    frame = pandas.DataFrame(X.toarray())
    expected = model.rank(X.toarray()[2])[0].tolist()
    assert model.rank(frame.iloc[2])[0].tolist() == expected
    assert model.rank(frame.iloc[[2]])[0].tolist() == expected


def test_pairs_can_contain_frames() -> None:
    pandas = pytest.importorskip("pandas")
    dense = np.random.default_rng(0).random((X.shape[0], 3), np.float32)
    expected = tree().fit((X, dense), Y)
    model = tree().fit((X, pandas.DataFrame(dense)), Y)
    assert same_matrix(model.predict((X, pandas.DataFrame(dense))), expected.predict((X, dense)))


def test_multi_label_binarizer_output_is_accepted(ranker: carya.TextRanker) -> None:
    for sparse_output in (True, False):
        binarizer = MultiLabelBinarizer(sparse_output=sparse_output)
        indicators = binarizer.fit_transform(LABELS)
        other = text_ranker().fit(TEXTS, indicators, label_names=binarizer.classes_)
        assert same_matrix(other.predict(TEXTS), ranker.predict(TEXTS))
        assert list(other.labels_) == list(ranker.labels_)


def test_columns_of_a_label_frame_are_label_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(Y.toarray(), columns=IDS)
    model = tree().fit(X, frame)
    assert list(model.labels_) == IDS
    assert model.score(X, frame[IDS[::-1]]) == model.score(X, Y)  # matched by name
    with pytest.raises(InputError, match=r"None of the column names \(such as 'unknown'\) is a label of the model \("):
        model.score(X, frame[IDS[:1]].rename(columns={IDS[0]: "unknown"}))
    kept = match_labels(frame.rename(columns={IDS[0]: "unknown"}), IDS, keep_unknown=True)
    assert kept.ids == [*IDS, "unknown"]
    assert kept.matrix.values.size == Y.nnz


def test_a_corpus_provides_labels_and_names(tmp_path: Path, ranker: carya.TextRanker) -> None:
    names = [name.upper() for name in IDS]
    in_memory = Corpus.of(zip(TEXTS, LABELS, strict=True), vocabulary=Vocabulary(IDS, names))
    write_data(tmp_path / "train.jsonl", in_memory)
    for data in (in_memory, open_data(tmp_path / "train.jsonl", vocabulary=Vocabulary(IDS, names))):
        other = text_ranker().fit(data)
        assert same_matrix(other.predict(data), ranker.predict(TEXTS))
        assert list(other.label_names_) == names
        assert other.score(data) == ranker.score(TEXTS, LABELS)
        assert text_ranker().fit(data, calibrate=2).calibration_ is not None
    assert list(text_ranker().fit(in_memory, SINGLE).labels_) == SINGLE_IDS
    reversed_labels = sp.csr_array(Y[:, ::-1])
    reversed_labels.sort_indices()
    with_matrix = Corpus(
        lambda: iter(in_memory),
        source="matrix",
        vocabulary=Vocabulary(IDS[::-1]),
        matrix=Csr.of_scipy(reversed_labels),
    )
    other = text_ranker().fit(with_matrix)
    assert same_matrix(other.predict(TEXTS), ranker.predict(TEXTS))
    assert other.score(with_matrix) == ranker.score(TEXTS, LABELS)


def test_matrices_provide_labels_and_names() -> None:
    data = Matrices(X, Y, Vocabulary(IDS))
    for create in FEATURE_MODELS.values():
        model = create().fit(data)
        assert list(model.labels_) == IDS
        assert model.score(data) == model.score(X, Y) > 0.8
        assert same_matrix(model.predict(data), model.predict(X))
    assert isinstance(tree().fit(Matrices(X, Y)).labels_, NumberStrings)


MISSING: list[Any] = [None, float("nan")]


@pytest.mark.parametrize("missing", MISSING)
def test_missing_texts_are_rejected_with_their_row(ranker: carya.TextRanker, missing: Any) -> None:
    texts = [*TEXTS[:4], missing]
    forms = [form for form in input_forms.TEXTS if form.is_available and form.name != "NumPy string array"]
    rejected = 0
    for form in forms:
        if missing is not None and form.package in ("polars", "pyarrow", "datasets"):
            continue  # these libraries store strings, but not a mix of strings and NaN
        message = r"(texts\[4\] is missing|Text 4 must be a string|examples\[4\] must be a pair)"
        for method in (ranker.predict, ranker.suggest_all, ranker.vectorizer_.transform, carya.Tfidf(min_df=1).fit):
            with pytest.raises(InputError, match=message):
                method(form.convert(texts))
            rejected += 1
    assert rejected >= 20


@pytest.mark.parametrize("missing", MISSING)
def test_missing_labels_are_rejected_with_their_row(missing: Any) -> None:
    rejected = 0
    for forms, labels in (
        (input_forms.SINGLE_LABELS, ["a", "b", missing]),
        (input_forms.LABEL_LISTS, [["a"], ["b"], missing]),
        (input_forms.LABEL_LISTS, [["a"], ["b"], ["a", missing]]),
    ):
        for form in forms:
            if not form.is_available or form.name in ("NumPy string array", "pandas categorical Series"):
                continue
            if missing is not None and form.package in ("polars", "pyarrow", "datasets"):
                continue
            if labels[-1] is missing and form.name in input_forms.NESTED_BY_CONVERSION:
                continue
            with pytest.raises(InputError, match=r"labels\[2\] (is missing|contains a missing label)"):
                text_ranker().fit(TEXTS[:3], form.convert(labels))
            with pytest.raises(InputError, match=r"Y\[2\] (is missing|contains a missing label)"):
                tree().fit(X[:3], form.convert(labels))
            rejected += 2
    assert rejected >= 10


def test_missing_class_numbers_are_rejected() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match=r"Y\[1\] is missing \(nan\)"):
        tree().fit(X[:3], pandas.Series([0, None, 1]))
    with pytest.raises(InputError, match=r"Y\[1\] is missing \(<NA>\)"):
        tree().fit(X[:3], pandas.Series([0, None, 1], dtype="Int64"))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a text", "texts must be a list of strings, got a single str. Pass [text] for one text."),
        (b"a text", "texts must be a list of strings, got a single bytes. Pass [text] for one text."),
        (5, "texts must be a list, tuple, iterator, one-dimensional array or column of strings, got int."),
        ({"a": 1}, "texts must be a list, tuple, iterator, one-dimensional array or column of strings, got dict."),
        ({"a"}, "texts must be a list, tuple, iterator, one-dimensional array or column of strings, got set."),
        (
            np.zeros(2),
            "texts must be a list, tuple, iterator, one-dimensional array or column of strings, got an array of "
            "float64 with 1 dimension.",
        ),
        (
            np.array([["a"], ["b"]]),
            "texts must be a list, tuple, iterator, one-dimensional array or column of strings, got an array of <U1 "
            "with 2 dimensions.",
        ),
        (np.array([b"a"]), "got an array of |S1 with 1 dimension."),
        (["a", 3], "Text 1 must be a string, got int."),
        (Matrices(X, Y), "matrices contains features, but this model requires texts. Use a model such as"),
    ],
    ids=str,
)
def test_inputs_that_are_not_texts_are_rejected(ranker: carya.TextRanker, texts: Any, message: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: ranker.predict(texts),
        lambda: ranker.suggest_all(texts),
        lambda: ranker.score(texts, LABELS),
        lambda: ranker.predict_selected(texts, LABELS),
        lambda: text_ranker().fit(texts, LABELS),
        lambda: carya.Tfidf().fit(texts),
    ]
    for call in calls:
        with pytest.raises(InputError, match=re.escape(message)):
            call()


@pytest.mark.parametrize(
    ("package", "function"),
    [("pandas", "DataFrame"), ("polars", "DataFrame"), ("polars", "LazyFrame"), ("pyarrow", "table"), ("datasets", "")],
)
def test_tables_contain_texts_and_labels(ranker: carya.TextRanker, package: str, function: str) -> None:
    module = pytest.importorskip(package)
    data = {"number": list(range(len(TEXTS))), "text": list(TEXTS), "labels": [list(row) for row in LABELS]}
    table = getattr(module, function)(data) if function else module.Dataset.from_dict(data)
    fitted = text_ranker().fit(table)
    assert list(fitted.labels_) == list(ranker.labels_)
    expected = ranker.predict(TEXTS)
    for S in (fitted.predict(table), ranker.predict(table)):
        assert (expected != S).nnz == 0
    assert fitted.score(table) == ranker.score(TEXTS, LABELS)


def test_tables_without_texts_or_labels_are_rejected(ranker: carya.TextRanker) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(
        InputError, match=r"exactly one column named 'text', but it has 0\. Available columns: 'title'\. Pass a"
    ):
        ranker.predict(pandas.DataFrame({"title": TEXTS}))
    with pytest.raises(InputError, match=r"one column named 'labels', but it has 0\. Available columns: 'text'\."):
        text_ranker().fit(pandas.DataFrame({"text": TEXTS}))
    twice = pandas.DataFrame([[text, text] for text in TEXTS], columns=["text", "text"])
    with pytest.raises(
        InputError, match=r"\(a pandas DataFrame\) must have exactly one column named 'text', but it has 2\."
    ):
        ranker.predict(twice)
    with pytest.raises(InputError, match=r"labels is missing\. Pass labels, or pass a Corpus or a data frame"):
        text_ranker().fit(TEXTS)
    datasets = pytest.importorskip("datasets")
    parts = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": list(TEXTS)})})
    with pytest.raises(InputError, match=r"got a datasets DatasetDict\. Pass one split, such as data\['train'\]\."):
        ranker.predict(parts)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("a", "or contain one label or one list of labels (strings or integers) per row"),
        (b"a", "or contain one label or one list of labels (strings or integers) per row"),
        (7, "or contain one label or one list of labels (strings or integers) per row"),
        ({"a": 1}, "or contain one label or one list of labels (strings or integers) per row"),
        (np.array(3), "got an array of int64 with 0 dimensions"),
        (np.zeros(3), "got an array of float64 with 1 dimension"),
        (np.array([True, False, True]), "got an array of bool with 1 dimension"),
        ([True, False, True], "[0] must contain only strings or integers, got True."),
        ([1.0, 2.0, 3.0], "[0] must be a label or a list of labels, got 1.0."),
        (["a", 1, "b"], "[1] contains 1, but labels must be all strings or all integers."),
        ([1, "a", 2], "[1] contains 'a', but labels must be all strings or all integers."),
        (["a", ["b"], "c"], "[1] must be a label, as in the preceding rows, got list."),
        ([{"a"}, "b", {"c"}], "[1] must be a list of labels, as in the preceding rows, got 'b'."),
        ([{"a"}, {b"b"}, {"c"}], "[1] must contain only strings or integers, got b'b'."),
        ([{"a"}, {"x": 1}, {"c"}], "[1] must be a label or a list of labels, got {'x': 1}."),
        ([0, -1, 2], "[1] must not contain negative integers, got -1."),
        (np.array([0, 1, -1]), "[2] must be an integer >= 0, got -1."),
        ([0, 10**9, 2], "contains the class number 1000000000, but most of the numbers from 0"),
        (np.array([0, 5_000_000, 2]), "contains the class number 5000000, but most of the numbers from 0"),
    ],
    ids=str,
)
def test_inputs_that_are_not_labels_are_rejected(labels: Any, message: str) -> None:
    for fit, name in ((text_ranker().fit, "labels"), (tree().fit, "Y")):
        with pytest.raises(InputError, match=re.escape(message)) as caught:
            fit(TEXTS[:3] if name == "labels" else X[:3], labels)
        assert str(caught.value).startswith(name)


def test_nested_lists_of_numbers_are_a_matrix_for_features_and_class_numbers_for_texts() -> None:
    nested = [[1, 0], [0, 1], [1, 1]]
    assert tree().fit(X[:3], nested).n_labels_ == 2
    assert coerce_labels(nested).matrix.to_scipy().toarray().tolist() == [[1, 1], [1, 1], [0, 1]]
    with pytest.raises(
        InputError, match=r"Y contains lists of numbers that differ in length, .* \[set\(row\) for row in Y\]"
    ):
        tree().fit(X[:3], [[1, 0], [0], [1, 1]])
    assert tree().fit(X[:3], [{1, 0}, {0}, {4}]).n_labels_ == 5
    assert tree().fit(X[:3], [[], ["a"], ["b"]]).n_labels_ == 2


@pytest.mark.parametrize(
    ("label_names", "message"),
    [
        (IDS[1:], f"label_names must have one name for each of the {len(IDS)} columns of Y, got {len(IDS) - 1}."),
        ([IDS[1], *IDS[1:]], f"label_names contains {IDS[1]!r} more than once. Names must be distinct."),
        ([None, *IDS[1:]], "label_names[0] must be a string, got None."),
        ("names", "label_names must be a list with the label of each column, got str."),
        (dict.fromkeys(IDS, "name"), "got dict. To pass human-readable names, use the names parameter."),
    ],
    ids=["short", "duplicate", "missing", "string", "mapping"],
)
def test_invalid_label_names_are_rejected(label_names: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        tree().fit(X, Y, label_names=label_names)


def test_labels_outside_label_names_are_rejected() -> None:
    with pytest.raises(InputError, match=r"labels\[1\] contains 'c', which is not in label_names"):
        text_ranker().fit(TEXTS[:2], ["a", "c"], label_names=["a", "b"])
    with pytest.raises(InputError, match=r"labels\[1\] contains 2, but label_names has only 2 names"):
        text_ranker().fit(TEXTS[:2], [0, 2], label_names=["a", "b"])


def test_inputs_that_are_not_features_are_rejected() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    model = tree().fit(X, Y)
    in_memory = Corpus.of(zip(TEXTS, LABELS, strict=True))
    for call in (lambda: tree().fit(in_memory), lambda: model.predict(in_memory), lambda: model.score(in_memory)):
        with pytest.raises(InputError, match="examples contains texts, but this model requires features"):
            call()
    for frame in (pandas.DataFrame({"a": [1.0], "b": ["x"]}), polars.DataFrame({"a": [1.0], "b": ["x"]})):
        with pytest.raises(InputError, match="X must contain only numeric columns, but column 'b' has type"):
            tree().fit(frame, [[1]])
    with pytest.raises(InputError, match="X contains NaN"):
        tree().fit(pandas.DataFrame({"a": [1.0, None]}), [0, 1])
    with pytest.raises(InputError, match="X contains NaN"):
        tree().fit(polars.DataFrame({"a": [1, None]}), [0, 1])
    filled = pandas.DataFrame({"a": pandas.arrays.SparseArray([1.0, 2.0], fill_value=1.0)})
    with pytest.raises(InputError, match="X is a sparse data frame whose fill value is not 0"):
        tree().fit(filled, [0, 1])
    with pytest.raises(InputError, match=f"Y has 2 columns, but the model has {len(IDS)} labels"):
        model.score(X, np.eye(X.shape[0], 2))


@pytest.mark.parametrize("kind", FEATURE_MODELS)
def test_predictions_can_be_frames(kind: str) -> None:
    pytest.importorskip("pandas")
    model = FEATURE_MODELS[kind]().fit(X, Y)
    S = model.predict(X[:20], top_k=3)
    frame = model.predict(X[:20], top_k=3, as_frame=True)
    assert list(frame.columns) == ["row", "rank", "label", "score"]
    assert frame["row"].tolist() == np.repeat(np.arange(20), np.diff(S.indptr)).tolist()
    assert frame["rank"].tolist() == [rank for length in np.diff(S.indptr) for rank in range(1, length + 1)]
    assert frame["label"].tolist() == S.indices.tolist()
    assert frame["score"].tolist() == S.data.tolist()
    named = model.clone().fit(X, Y, label_names=IDS).suggest_all(X[:20], top_k=3, as_frame=True)
    assert named["label"].tolist() == [IDS[label] for label in S.indices]
    assert model.predict(X[:20] * 0, as_frame=True).shape == (0, 4)


def test_text_predictions_can_be_frames(ranker: carya.TextRanker) -> None:
    pandas = pytest.importorskip("pandas")
    suggestions = ranker.suggest_all(TEXTS[:10], top_k=4, min_score=0.01)
    for frame in (
        ranker.suggest_all(TEXTS[:10], top_k=4, min_score=0.01, as_frame=True),
        ranker.predict(TEXTS[:10], top_k=4, min_score=0.01, as_frame=True),
    ):
        assert list(frame.columns) == ["row", "rank", "label", "score"]
        assert list(frame.itertuples(index=False, name=None)) == [
            (row, rank, suggestion.label, pytest.approx(suggestion.score))
            for row, best in enumerate(suggestions)
            for rank, suggestion in enumerate(best, 1)
        ]
    calibrated = text_ranker().fit(TEXTS, LABELS, calibrate=2)
    frame = calibrated.suggest_all(TEXTS[:10], as_frame=True)
    assert list(frame.columns) == ["row", "rank", "label", "score", "probability"]
    assert calibrated.calibration_ is not None
    suggestions = [suggestion for row in calibrated.suggest_all(TEXTS[:10]) for suggestion in row]
    assert frame["probability"].tolist() == [suggestion.probability for suggestion in suggestions]
    assert isinstance(frame, pandas.DataFrame)


def test_frames_require_pandas(monkeypatch: pytest.MonkeyPatch, ranker: carya.TextRanker) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    message = r"as_frame=True requires pandas\. Install it with: pip install 'carya\[pandas\]', or use as_frame=False"
    with pytest.raises(MissingExtraError, match=message):
        ranker.predict(TEXTS, as_frame=True)


def test_iterators_are_streamed() -> None:
    """Terms are counted in batches of texts while the iterator is read, so the texts are never all in memory."""
    import weakref

    class Text(str):
        __slots__ = ("__weakref__",)

    alive: weakref.WeakSet[Text] = weakref.WeakSet()
    largest = 0

    def texts() -> Any:
        nonlocal largest
        for number in range(60_000):
            text = Text(f"word{number % 10} other")
            alive.add(text)
            largest = max(largest, len(alive))
            yield text

    carya.Tfidf().fit(texts())
    assert 0 < largest < 40_000


def test_label_names_are_saved_and_checked(tmp_path: Path) -> None:
    model = tree().fit(X, LABELS)
    model.save(tmp_path / "model", weight_dtype="float16")
    assert list(carya.load(tmp_path / "model").labels_) == IDS
    assert list(model.with_weight_dtype("float32").labels_) == IDS
    saved = carya.core.storage.load(tmp_path / "model")
    carya.core.storage.save(tmp_path / "other", saved.with_strings("labels.ids", StringArray.of(IDS[:3])))
    with pytest.raises(ModelFormatError, match=f"The model has {len(IDS)} labels, but 3 label names"):
        carya.load(tmp_path / "other")
    with pytest.raises(ModelFormatError, match="contains a model of class XRLinear, not Ensemble"):
        carya.Ensemble.load(tmp_path / "model")


def test_labels_can_be_explained_by_name() -> None:
    model = tree().fit(X, LABELS)
    by_name, by_number = model.explain(X[[0]], IDS[3]), model.explain(X[[0]], 3)
    assert by_name.score == by_number.score
    with pytest.raises(InputError, match=r"Unknown label 'ches'\. Did you mean"):
        model.explain(X[[0]], "ches")
    with pytest.raises(InputError, match=r"The labels have no names\. Pass an integer"):
        tree().fit(X, Y).explain(X[[0]], "chess")


def test_models_of_several_trees_explain_one_tree() -> None:
    ensemble = carya.Ensemble(tree(), n_trees=2).fit(X, LABELS)
    expected = ensemble.members_[1].explain(X[[0]], 3)
    assert ensemble.explain(X[[0]], IDS[3], tree=1).score == expected.score
    with pytest.raises(InputError, match="Combined scores of Ensemble models cannot be explained"):
        ensemble.explain(X[[0]], 3)
    with pytest.raises(InputError, match="tree must be between 0 and 1, got 2"):
        ensemble.explain(X[[0]], 3, tree=2)
    both = carya.Ensemble([tree(), tree()]).fit([X, X.toarray()], Y)
    assert both.explain([X[[0]], X[[0]].toarray()], 3, tree=1).score > 0
    reranked = carya.Reranked(tree(), carya.ranking.NeuralRanker(epochs=2)).fit(
        X, Y, label_features=X[: len(IDS)], name_columns=10
    )
    assert reranked.explain(X[[0]], 3, tree=0).score > 0
    neighbors = carya.NearestNeighbors(n_neighbors=10).fit(X, Y)
    with pytest.raises(InputError, match="Scores of NearestNeighbors models cannot be explained"):
        neighbors.explain(X[[0]], 3)


def test_ensembles_score_pairs_by_the_mean_of_their_members() -> None:
    dense = X.toarray()
    ensemble = carya.Ensemble([tree(), tree().clone(seed=1)], weights=[3, 1]).fit([X, dense], LABELS)
    S = ensemble.predict_selected([X, dense], LABELS)
    first, second = (member.predict_selected(own, Y) for member, own in zip(ensemble.members_, (X, dense), strict=True))
    assert np.allclose(S.data, 0.75 * first.data + 0.25 * second.data)
    for other in (carya.Ensemble(tree(), combine="rank"), carya.Ensemble([carya.NearestNeighbors(over="rows")])):
        with pytest.raises(InputError, match="predict_selected requires combine='mean'"):
            other.fit(X, Y).predict_selected(X, Y)


def test_text_rankers_rank_and_score_pairs(ranker: carya.TextRanker, tmp_path: Path) -> None:
    labels, scores = ranker.rank(TEXTS[0], top_k=5)
    assert [(ranker.labels_[label], score) for label, score in zip(labels, scores.tolist(), strict=True)] == [
        (suggestion.label, suggestion.score) for suggestion in ranker.suggest(TEXTS[0], top_k=5)
    ]
    S = ranker.predict_selected(TEXTS[:3], [["chess"], [], ["cooking", "unknown"]])
    assert np.diff(S.indptr).tolist() == [1, 0, 1]
    expected = ranker.model_.predict_selected(X[:3], np.ones((3, len(IDS)))).toarray()
    assert S[[0], [IDS.index("chess")]] == expected[0, IDS.index("chess")]
    with pytest.raises(InputError, match="candidates must have one list of labels for each of the 3 rows, got 1"):
        ranker.predict_selected(TEXTS[:3], [["chess"]])
    ranker.save(tmp_path / "model")
    assert carya.TextRanker.load(tmp_path / "model").suggest(TEXTS[0]) == ranker.suggest(TEXTS[0])


def test_n_jobs_and_verbose_of_a_text_ranker_apply_to_its_parts() -> None:
    model = carya.Ensemble([carya.XRLinear(n_jobs=2), carya.XRLinear(n_jobs=2)])
    ranker = carya.TextRanker(carya.Tfidf(min_df=1), model, n_jobs=1).fit(TEXTS, LABELS)
    assert ranker.vectorizer_.n_jobs == 1
    assert [part.n_jobs for part in (ranker.model_, *ranker.model_.members_)] == [1, 1, 1]
    assert [member.n_jobs for member in model.members] == [2, 2], "fit must not modify the given estimators"
    S = ranker.predict(TEXTS)
    assert same_matrix(ranker.set_params(n_jobs=2).predict(TEXTS), S)
    assert ranker.model_.members_[0].n_jobs == 2
    verbose = carya.TextRanker(carya.Tfidf(min_df=1), model, verbose=True).fit(TEXTS, LABELS)
    parts = (verbose.vectorizer_, verbose.model_, *verbose.model_.members_)
    assert all(part.verbose for part in parts)
    verbose.set_params(verbose=False).predict(TEXTS)
    assert not any(part.verbose for part in parts)
    assert all(member.verbose for member in carya.Ensemble(tree(), verbose=True).fit(X, Y).members_)


def test_no_library_is_imported() -> None:
    """Carya recognizes objects of other libraries without importing those libraries."""
    if importlib.util.find_spec("pandas") is None:
        pytest.skip("requires pandas")
    import subprocess

    code = (
        "import sys, carya\n"
        "carya.TextRanker(carya.Tfidf(min_df=1)).fit(['aa bb', 'cc dd'], ['x', 'y']).predict(['aa bb'])\n"
        "print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pandas", "polars", "pyarrow", "datasets", "torch"} & set(run.stdout.split())
