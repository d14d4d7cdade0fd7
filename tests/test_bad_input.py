"""Tests for invalid input: error messages name the argument, its value and the valid values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.sparse as sp

import carya
from carya import LabelTree
from carya.core import validation
from carya.errors import InputError, ParameterError, UnknownParameterError

from matrix_helpers import same_matrix

SCIPY = tuple(map(int, scipy.__version__.split(".")[:2]))
X = sp.csr_array(np.eye(6, 5, dtype=np.float32))
Y = sp.csr_array(np.eye(6, 4, dtype=np.float32))


def invalid_csr(
    indptr: list[int], indices: list[int], data: list[float], shape: tuple[int, int] = (2, 3)
) -> sp.csr_array:
    """Return a CSR matrix whose arrays bypassed SciPy's validation."""
    matrix = sp.csr_array(shape, dtype=np.float32)
    matrix.indptr, matrix.indices, matrix.data = (
        np.array(indptr, np.int32),
        np.array(indices, np.int32),
        np.array(data, np.float32),
    )
    return matrix


def wide_columns() -> sp.csr_array:
    """Return a matrix with an invalid column index that would be valid if it were truncated to 32 bits."""
    matrix = sp.csr_array((2, 3), dtype=np.float32)
    matrix.indptr, matrix.indices, matrix.data = np.array([0, 1, 1]), np.array([2**32 + 1]), np.ones(1, np.float32)
    return matrix


def invalid_coordinates() -> sp.coo_array:
    """Return a COO matrix with a column index that exceeds its shape."""
    matrix = sp.coo_array((np.ones(1, np.float32), ([0], [1])), shape=(2, 3))
    matrix.coords = (np.array([0]), np.array([400_000_000]))
    return matrix


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"branching": 1}, "branching must be an integer >= 2, got 1"),
        ({"branching": 2.0}, "must be an integer >= 2, got 2.0"),
        ({"branching": True}, "must be an integer >= 2, got True"),
        ({"max_leaf_size": 0}, "max_leaf_size must be an integer >= 1, got 0"),
        ({"max_depth": 0}, "max_depth must be an integer >= 1 or None, got 0"),
        ({"C": 0}, "C must be 'auto' or a number > 0; .* got 0"),
        ({"C": -1}, "C must be 'auto' or a number > 0; .* got -1"),
        ({"C": float("nan")}, "C must be 'auto' or a number > 0; .* got nan"),
        ({"C": float("inf")}, "got inf"),
        ({"threshold": -0.1}, "threshold must be a number >= 0; .* got -0.1"),
        ({"loss": "log"}, "loss must be 'squared-hinge', 'hinge' or 'logistic', got 'log'"),
        ({"representation": "pif"}, "representation must be 'pifa', 'pii'"),
        (
            {"negatives": "tfn"},
            "negatives must be 'teacher', 'matcher', 'both', 'given', or a combination joined with '\\+'",
        ),
        ({"negatives": []}, "got \\[\\]"),
        ({"negatives": ("teacher", "tfn")}, "got \\('teacher', 'tfn'\\)"),
        ({"transform": "l3"}, "transform must be 'auto' or 'noop', 'sigmoid'"),
        ({"transform": 3}, "got 3"),
        ({"n_jobs": 0}, "n_jobs must be -1 or an integer >= 1, got 0"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"seed": None}, "got None"),
        ({"balanced": 1}, "balanced must be True or False, got 1"),
        ({"tree": [0, 0]}, "tree must be a LabelTree or None"),
        ({"beam_width": "10"}, "got '10'"),
        ({"relevance": "yes"}, "relevance must be 'none', 'induce' or 'leaf', got 'yes'"),
        ({"alpha": -1, "representation": "pifa+lf"}, "alpha must be"),
        ({"alpha": 7}, "alpha must be a number between 0 and 1 or one number per label, got 7"),
        ({"seed": 2**70}, "seed must be"),
        ({"max_iter": 2**40}, "max_iter must be"),
        ({"n_jobs": 2**40}, "n_jobs must be"),
        ({"transform": "l" + "9" * 400 + "-hinge"}, "transform must be"),
        (
            {"max_leaf_size": 1, "branching": 2, "negatives": ("teacher",) * 5},
            "negatives has 5 values, but the tree has 3 layers",
        ),
        (
            {"max_leaf_size": 1, "branching": 2, "transform": ("noop",) * 4},
            "transform has 4 values, but the tree has 3 layers",
        ),
    ],
)
def test_invalid_parameters_are_rejected_by_fit(parameters: dict[str, Any], message: str) -> None:
    model = carya.XRLinear(**parameters)  # parameters are stored unchanged and validated by fit
    with pytest.raises(ParameterError, match=message):
        model.fit(X, Y)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("treshold", "Did you mean 'threshold'?"),
        ("n_job", "Did you mean 'n_jobs'?"),
        ("beamsize", "Use beam_width."),
        ("Cp", "Use positive_weight."),
        ("zzz", ""),
    ],
)
def test_unknown_parameters_are_rejected_with_a_hint(name: str, advice: str) -> None:
    parameters: dict[str, Any] = {name: 1}
    calls: list[Callable[[], object]] = [
        lambda: carya.XRLinear(**parameters),
        lambda: carya.XRLinear().set_params(**parameters),
    ]
    for call in calls:
        with pytest.raises(UnknownParameterError, match=f"XRLinear has no parameter '{name}'") as caught:
            call()
        assert isinstance(caught.value, TypeError)
        assert str(caught.value).endswith(advice or "'zzz'.")


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (X[:5], Y, "X has 5 rows, but Y has 6"),
        (X[:0], Y[:0], "X has no rows"),
        (X[:, :0], Y, "X has no columns"),
        (X, Y[:, :0], "Y has no positive entries"),
        (X, Y * 0, "Y has no positive entries"),
        (X, -1 * Y, "Y has negative values"),
        (X * np.nan, Y, "X contains NaN or infinity"),
        (X * np.inf, Y, "X contains NaN or infinity"),
        (X.astype(np.float64) * 1e300, Y, "X contains NaN or infinity"),
        (np.full((6, 2), np.nan), Y, "X contains NaN"),
        (X, Y * np.inf, "Y contains NaN or infinity"),
        (X.astype(np.complex128), Y, "X must contain real numbers, got dtype complex128"),
        (np.array([["a"] * 2] * 6), Y, "X must contain real numbers, got dtype <U1"),
        (np.ones(6), Y, "X must have 2 dimensions, got 1"),
        (np.ones((6, 2, 2)), Y, "X must have 2 dimensions, got 3"),
        ([[1, 2], [3]], Y, "X is not a matrix"),
        (None, Y, "X must have 2 dimensions, got 0"),
        (X, None, "Y is missing. Pass the labels of the rows"),
        ((X, X), Y, "pair of a sparse matrix and a dense array"),
        ((np.ones((6, 2)), X), Y, "pair of a sparse matrix and a dense array"),
        ((X,), Y, "pair of a sparse matrix and a dense array"),
        ((X, np.ones((5, 2))), Y, "same number of rows in its sparse and dense blocks, got 6 and 5"),
        ((X, np.full((6, 2), np.inf)), Y, "X contains NaN or infinity"),
        ((X, np.zeros((5, 0))), Y, "same number of rows in its sparse and dense blocks, got 6 and 5"),
        ([X, np.ones((6, 2))], Y, "X must not be a list of matrices. Pass a \\(sparse, dense\\) pair as a tuple"),
        (X * 1e18, Y, "X has absolute values up to 1e\\+18; the maximum is 1e\\+15"),
        (wide_columns(), Y[:2], "X has an entry in column 4294967297; column indices must be >= 0 and < 3"),
        (invalid_coordinates(), Y[:2], "X has an entry outside its shape \\(2, 3\\)"),
        (invalid_csr([0, 1, 2], [0, 9], [1, 1]), Y[:2], "X has an entry in column 9; column indices must be"),
        (invalid_csr([0, 1, 2], [0, -1], [1, 1]), Y[:2], "X has an entry in column -1"),
        (invalid_csr([0, 5, 2], [0, 1], [1, 1]), Y[:2], "X has row offsets that decrease in row 1"),
        (invalid_csr([1, 1, 2], [0, 1], [1, 1]), Y[:2], "X has row offsets that do not start at 0"),
        (invalid_csr([0, 1, 7], [0, 1], [1, 1]), Y[:2], "X has row offsets, columns and values with inconsistent"),
        (invalid_csr([0, 1, 2], [0, 1], [1]), Y[:2], "inconsistent lengths"),
        (invalid_csr([0, 1], [0], [1]), Y[:2], "X must have 3 row offsets for 2 rows, got 2"),
    ],
)
def test_invalid_training_data_is_rejected(features: Any, labels: Any, message: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        carya.XRLinear().fit(features, labels)


def test_a_tree_with_a_different_number_of_labels_is_rejected() -> None:
    with pytest.raises(InputError, match="The tree has 9 labels, but Y has 4"):
        carya.XRLinear(tree=LabelTree.flat(9)).fit(X, Y)


def test_unusable_label_features_are_rejected() -> None:
    with pytest.raises(InputError, match=r"representation='lf' requires label features. Pass label_features to fit"):
        carya.XRLinear(representation="lf", max_leaf_size=1).fit(X, Y)
    with pytest.raises(InputError, match=r"label_features must have one row per label \(4\), got 3 rows"):
        carya.XRLinear(representation="lf", max_leaf_size=1).fit(X, Y, label_features=np.ones((3, 2)))
    with pytest.raises(InputError, match="label_features is not used by representation='pifa'"):
        carya.XRLinear(max_leaf_size=1).fit(X, Y, label_features=np.ones((4, 2)))
    with pytest.raises(InputError, match="label_features cannot be combined with a tree"):
        carya.XRLinear(tree=LabelTree.flat(4)).fit(X, Y, label_features=np.ones((4, 2)))
    with pytest.raises(InputError, match="label_features contains NaN"):
        carya.XRLinear(representation="lf", max_leaf_size=1).fit(X, Y, label_features=np.full((4, 2), np.nan))


def test_unusable_shortlists_are_rejected() -> None:
    with pytest.raises(InputError, match=r"negatives='given' requires a shortlist. Pass shortlist to fit"):
        carya.XRLinear(negatives="given", max_leaf_size=1).fit(X, Y)
    with pytest.raises(
        InputError,
        match=r"shortlist is not used by negatives='teacher'. Omit it, or add 'given' to negatives",
    ):
        carya.XRLinear(negatives="teacher", max_leaf_size=1).fit(X, Y, shortlist=Y)
    with pytest.raises(InputError, match=r"shortlist must have the same shape as Y, \(6, 4\), got \(6, 3\)"):
        carya.XRLinear(negatives="teacher+given", max_leaf_size=1).fit(X, Y, shortlist=Y[:, :3])


def test_invalid_arguments_to_predict_are_rejected() -> None:
    model = carya.XRLinear(max_leaf_size=2).fit(X, Y)
    with pytest.raises(InputError, match="top_k must be an integer >= 1, got 0"):
        model.predict(X, top_k=0)
    with pytest.raises(InputError, match=r"beam_width must be an integer >= 1, got 1\.5"):
        model.predict(X, beam_width=1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"candidates must have shape \(6, 4\), got \(6, 3\)"):
        model.predict_selected(X, Y[:, :3])
    with pytest.raises(InputError, match="X contains NaN"):
        model.predict(X * np.nan)
    with pytest.raises(TypeError):
        model.predict(X, beamsize=1)  # type: ignore[call-arg]
    for invalid in (0, -5, "10"):
        with pytest.raises(InputError, match="beam_width must be an integer >= 1"):
            model.set_params(beam_width=invalid).predict(X)


def test_huge_top_k_and_beam_width_return_all_labels() -> None:
    model = carya.XRLinear(max_leaf_size=2).fit(X, Y)
    expected = model.predict(X, top_k=4, beam_width=4)
    S = model.predict(X, top_k=10**30, beam_width=10**30)
    assert np.array_equal(S.indices, expected.indices)
    assert 0 < carya.metrics.precision(Y, S, k=2**62) < 1e-8


def test_dense_models_validate_sparse_queries_before_conversion() -> None:
    model = carya.XRLinear(max_leaf_size=2).fit(X.toarray(), Y)
    with pytest.raises(InputError, match="X has an entry in column 400000000"):
        model.predict(invalid_csr([0, 1, 1], [400_000_000], [1], shape=(2, 5)))


def test_rank_accepts_a_row_in_every_format() -> None:
    model = carya.XRLinear(max_leaf_size=2).fit(X, Y)
    expected = model.rank(X[[1]])[0].tolist()
    row = X.toarray()[1]
    forms = [sp.csr_matrix(X)[1], sp.coo_array(X)[[1]], row, row[None, :], row.tolist(), [row.tolist()]]
    if SCIPY >= (1, 15):  # earlier versions do not support one-dimensional CSR arrays
        forms.append(X[1])
    for form in forms:
        assert model.rank(form)[0].tolist() == expected


def test_the_values_of_candidates_are_ignored() -> None:
    model = carya.XRLinear(max_leaf_size=2).fit(X, Y)
    expected = model.predict_selected(X, Y)
    for value in (-3.0, np.nan, 0.0):
        candidates = Y.copy()
        candidates.data[:] = value
        assert same_matrix(model.predict_selected(X, candidates), expected)
    assert np.array_equal(model.predict_selected(X, -Y.toarray()).toarray(), expected.toarray())


def test_indexing_functions_validate_their_arguments() -> None:
    features, labels = validation.check_features(X), validation.check_labels(Y)
    with pytest.raises(InputError, match="features and labels must have the same number of rows, got 3 and 6"):
        carya.indexing.pifa(validation.check_features(X[:3]), labels)
    assert carya.indexing.pifa(features, labels, threads=0).rows == 4
    with pytest.raises(ParameterError, match="branching must be an integer >= 2, got 1"):
        carya.indexing.random_tree(1000, branching=1)
    with pytest.raises(ParameterError, match="max_leaf_size must be an integer >= 1, got 0"):
        carya.indexing.cluster(carya.indexing.pifa(features, labels), max_leaf_size=0)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (
            lambda: LabelTree(None),  # type: ignore[arg-type]
            "parents must be a list with at least one level, got None",
        ),
        (lambda: LabelTree([[0, 0], [[0], [1, 2]]]), "The parents of the nodes at level 2 must be a non-empty list"),
        (lambda: LabelTree.flat(-1), "n_labels must be an integer >= 1, got -1"),
        (lambda: LabelTree.from_paths("a/b"), "paths is a single string"),
        (lambda: LabelTree.from_paths(["a"], separator=""), "separator must be a non-empty string, got ''"),
        (lambda: LabelTree.from_chain(sp.eye_array(3, format="csr")), "chain is a single matrix"),
        (lambda: LabelTree.flat(3).children(0), "level must be between 1 and 1, got 0"),
        (lambda: LabelTree.flat(3).clusters(9), "level must be between 0 and 1, got 9"),
    ],
)
def test_invalid_trees_are_rejected(create: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        create()


def test_models_can_be_trained_on_degenerate_data() -> None:
    """Train on a single row, feature and label; identical rows; rows with all labels; all-zero rows; integer data."""
    assert carya.XRLinear().fit([[1.0]], [[1]]).rank(np.array([1.0]))[0].tolist() == [0]
    identical = carya.XRLinear(max_leaf_size=2, branching=2).fit(np.ones((8, 3)), np.ones((8, 6)))
    assert sorted(identical.predict(np.ones((1, 3)), top_k=6).indices.tolist()) == list(range(6))
    rows = sp.csr_array(np.vstack([np.zeros((2, 5)), np.eye(5)]).astype(np.float32))
    model = carya.XRLinear(max_leaf_size=2).fit(rows, np.vstack([np.ones((2, 5)), np.eye(5)]))
    assert model.rank(rows[[4]])[0][0] == 2
    integers = carya.XRLinear(max_leaf_size=2).fit(np.eye(5, dtype=np.int64), np.eye(5, dtype=bool))
    assert integers.rank(np.array([0, 0, 1, 0, 0]))[0][0] == 2


def test_rows_without_labels_are_negatives_in_the_first_layer() -> None:
    labels = Y.toarray()
    labels[3:] = 0
    model = carya.XRLinear(max_depth=1).fit(X, labels)
    assert model.predict(X[:3], top_k=1).indices.tolist() == [0, 1, 2]
