"""Everything a user can get wrong has an answer that names the argument, what it was and what it must be."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya import LabelTree
from carya.core import validation
from carya.errors import InputError, ParameterError, UnknownParameterError

X = sp.csr_array(np.eye(6, 5, dtype=np.float32))
Y = sp.csr_array(np.eye(6, 4, dtype=np.float32))


def broken(indptr, indices, data, shape=(2, 3)) -> sp.csr_array:
    """A matrix whose arrays were changed behind SciPy's back."""
    matrix = sp.csr_array(shape, dtype=np.float32)
    matrix.indptr, matrix.indices, matrix.data = (
        np.array(indptr, np.int32),
        np.array(indices, np.int32),
        np.array(data, np.float32),
    )
    return matrix


def wide_columns() -> sp.csr_array:
    """Column numbers that would fold back into the matrix as 32 bits."""
    matrix = sp.csr_array((2, 3), dtype=np.float32)
    matrix.indptr, matrix.indices, matrix.data = np.array([0, 1, 1]), np.array([2**32 + 1]), np.ones(1, np.float32)
    return matrix


def bad_coordinates() -> sp.coo_array:
    matrix = sp.coo_array((np.ones(1, np.float32), ([0], [1])), shape=(2, 3))
    matrix.coords = (np.array([0]), np.array([400_000_000]))
    return matrix


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"branching": 1}, "'branching' of XRLinear must be an integer of at least 2, got 1"),
        ({"branching": 2.0}, "must be an integer of at least 2, got 2.0"),
        ({"branching": True}, "must be an integer of at least 2, got True"),
        ({"max_leaf": 0}, "'max_leaf' of XRLinear must be an integer of at least 1, got 0"),
        ({"max_depth": 0}, "'max_depth' of XRLinear must be an integer of at least 1 or None, got 0"),
        ({"cost": 0}, "'cost' of XRLinear must be a number above 0, got 0"),
        ({"cost": -1}, "'cost' of XRLinear must be a number above 0, got -1"),
        ({"cost": float("nan")}, "'cost' of XRLinear must be a number above 0, got nan"),
        ({"cost": float("inf")}, "got inf"),
        ({"threshold": -0.1}, "'threshold' of XRLinear must be a number of at least 0, got -0.1"),
        ({"loss": "log"}, "'loss' of XRLinear must be 'squared-hinge', 'hinge' or 'logistic', got 'log'"),
        ({"representation": "pif"}, "'representation' of XRLinear must be 'pifa', 'pii'"),
        ({"negatives": "tfn"}, "must be 'teacher', 'matcher', 'both', 'given', or several joined by '\\+'"),
        ({"negatives": []}, "got \\[\\]"),
        ({"negatives": ("teacher", "tfn")}, "got \\('teacher', 'tfn'\\)"),
        ({"transform": "l3"}, "'transform' of XRLinear must be 'noop', 'sigmoid'"),
        ({"transform": 3}, "got 3"),
        ({"n_jobs": 0}, "'n_jobs' of XRLinear must be -1 or an integer of at least 1, got 0"),
        ({"seed": -1}, "'seed' of XRLinear must be an integer of at least 0, got -1"),
        ({"seed": None}, "got None"),
        ({"balanced": 1}, "'balanced' of XRLinear must be True or False, got 1"),
        ({"tree": [0, 0]}, "'tree' of XRLinear must be a LabelTree or None"),
        ({"beam_width": "10"}, "got '10'"),
        ({"relevance": "yes"}, "'relevance' of XRLinear must be 'none', 'induce' or 'leaf', got 'yes'"),
        ({"alpha": -1, "representation": "pifa+lf"}, "'alpha' of XRLinear"),
        ({"alpha": 7}, "'alpha' of XRLinear must be a number between 0 and 1 or one for each label, got 7"),
        ({"seed": 2**70}, "'seed' of XRLinear"),
        ({"max_passes": 2**40}, "'max_passes' of XRLinear"),
        ({"n_jobs": 2**40}, "'n_jobs' of XRLinear"),
        ({"transform": "l" + "9" * 400 + "-hinge"}, "'transform' of XRLinear"),
        (
            {"max_leaf": 1, "branching": 2, "negatives": ("teacher",) * 5},
            "negatives has 5 values, the tree has 3 layers",
        ),
        ({"max_leaf": 1, "branching": 2, "transform": ("noop",) * 4}, "transform has 4 values, the tree has 3 layers"),
    ],
)
def test_parameters(parameters: dict, message: str) -> None:
    model = carya.XRLinear(**parameters)  # stored as they are, checked when used
    with pytest.raises(ParameterError, match=message):
        model.fit(X, Y)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("treshold", "did you mean 'threshold'?"),
        ("n_job", "did you mean 'n_jobs'?"),
        ("beamsize", "it is called beam_width here"),
        ("Cp", "it is called positive_cost here"),
        ("zzz", ""),
    ],
)
def test_misspelt_parameters(name: str, advice: str) -> None:
    for use in (lambda: carya.XRLinear(**{name: 1}), lambda: carya.XRLinear().set_params(**{name: 1})):
        with pytest.raises(UnknownParameterError, match=f"XRLinear has no parameter '{name}'") as caught:
            use()
        assert isinstance(caught.value, TypeError)
        assert str(caught.value).endswith(advice or "'zzz'")


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (X[:5], Y, "X has 5 rows, Y has 6"),
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
        (X.astype(np.complex128), Y, "X has values of type complex128, they must be real numbers"),
        (np.array([["a"] * 2] * 6), Y, "X has values of type <U1"),
        (np.ones(6), Y, "X has 1 dimensions, it must have 2"),
        (np.ones((6, 2, 2)), Y, "X has 3 dimensions"),
        ([[1, 2], [3]], Y, "X is not a matrix"),
        (None, Y, "X has"),
        (X, None, "Y has"),
        ((X, X), Y, "pair of a sparse matrix and a dense array"),
        ((np.ones((6, 2)), X), Y, "pair of a sparse matrix and a dense array"),
        ((X,), Y, "pair of a sparse matrix and a dense array"),
        ((X, np.ones((5, 2))), Y, "sparse block of 6 rows and a dense block of 5"),
        ((X, np.full((6, 2), np.inf)), Y, "X contains NaN or infinity"),
        ((X, np.zeros((5, 0))), Y, "sparse block of 6 rows and a dense block of 5"),
        ([X, np.ones((6, 2))], Y, "a pair \\(sparse, dense\\) must be a tuple"),
        (X * 1e18, Y, "X has values up to 1e\\+18, above 1e\\+15"),
        (wide_columns(), Y[:2], "X has an entry in column 4294967297, outside its 3 columns"),
        (bad_coordinates(), Y[:2], "X has an entry outside its 2 rows and 3 columns"),
        (broken([0, 1, 2], [0, 9], [1, 1]), Y[:2], "X has an entry in column 9, outside its 3 columns"),
        (broken([0, 1, 2], [0, -1], [1, 1]), Y[:2], "X has an entry in column -1"),
        (broken([0, 5, 2], [0, 1], [1, 1]), Y[:2], "X has row offsets that decrease \\(row 1\\)"),
        (broken([1, 1, 2], [0, 1], [1, 1]), Y[:2], "X has row offsets that do not start at 0"),
        (broken([0, 1, 7], [0, 1], [1, 1]), Y[:2], "X has row offsets, columns and values of different lengths"),
        (broken([0, 1, 2], [0, 1], [1]), Y[:2], "different lengths"),
        (broken([0, 1], [0], [1]), Y[:2], "X has 2 row offsets for 2 rows"),
    ],
)
def test_data(features, labels, message: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        carya.XRLinear().fit(features, labels)


def test_a_tree_of_other_labels() -> None:
    with pytest.raises(InputError, match="the tree has 9 labels, Y has 4"):
        carya.XRLinear(tree=LabelTree.flat(9)).fit(X, Y)


def test_label_features() -> None:
    with pytest.raises(InputError, match="representation='lf' needs label_features in fit"):
        carya.XRLinear(representation="lf", max_leaf=1).fit(X, Y)
    with pytest.raises(InputError, match="label_features have 3 rows, Y has 4 labels"):
        carya.XRLinear(representation="lf", max_leaf=1).fit(X, Y, label_features=np.ones((3, 2)))
    with pytest.raises(InputError, match="label_features are given but representation='pifa' does not use them"):
        carya.XRLinear(max_leaf=1).fit(X, Y, label_features=np.ones((4, 2)))
    with pytest.raises(InputError, match="label_features is given but tree is too"):
        carya.XRLinear(tree=LabelTree.flat(4)).fit(X, Y, label_features=np.ones((4, 2)))
    with pytest.raises(InputError, match="label_features contains NaN"):
        carya.XRLinear(representation="lf", max_leaf=1).fit(X, Y, label_features=np.full((4, 2), np.nan))


def test_shortlists() -> None:
    with pytest.raises(InputError, match="negatives='given' needs a shortlist in fit"):
        carya.XRLinear(negatives="given", max_leaf=1).fit(X, Y)
    with pytest.raises(InputError, match="a shortlist is given but negatives='teacher' does not use it"):
        carya.XRLinear(negatives="teacher", max_leaf=1).fit(X, Y, shortlist=Y)
    with pytest.raises(InputError, match="shortlist is 6 x 3, it must be 6 x 4 as Y is"):
        carya.XRLinear(negatives="teacher+given", max_leaf=1).fit(X, Y, shortlist=Y[:, :3])


def test_questions() -> None:
    model = carya.XRLinear(max_leaf=2).fit(X, Y)
    with pytest.raises(InputError, match="top_k must be an integer of at least 1, got 0"):
        model.predict(X, top_k=0)
    with pytest.raises(InputError, match=r"beam_width must be an integer of at least 1, got 1\.5"):
        model.predict(X, beam_width=1.5)
    with pytest.raises(InputError, match="candidates is 6 x 3, it must be 6 rows x 4 labels"):
        model.predict_selected(X, Y[:, :3])
    with pytest.raises(InputError, match="X contains NaN"):
        model.predict(X * np.nan)
    with pytest.raises(TypeError):
        model.predict(X, beamsize=1)
    for wrong in (0, -5, "10"):
        with pytest.raises(InputError, match="beam_width must be an integer of at least 1"):
            model.set_params(beam_width=wrong).predict(X)


def test_huge_questions_are_cut_to_what_there_is() -> None:
    model = carya.XRLinear(max_leaf=2).fit(X, Y)
    few = model.predict(X, top_k=4, beam_width=4)
    many = model.predict(X, top_k=10**30, beam_width=10**30)
    assert np.array_equal(few.indices, many.indices)
    assert 0 < carya.metrics.precision(Y, many, k=2**62) < 1e-8


def test_a_dense_model_checks_sparse_questions_before_it_expands_them() -> None:
    model = carya.XRLinear(max_leaf=2).fit(X.toarray(), Y)
    with pytest.raises(InputError, match="X has an entry in column 400000000"):
        model.predict(broken([0, 1, 1], [400_000_000], [1], shape=(2, 5)))


def test_one_row_in_any_form() -> None:
    model = carya.XRLinear(max_leaf=2).fit(X, Y)
    want = model.rank(X[[1]])[0].tolist()
    row = X.toarray()[1]
    for form in (X[1], sp.csr_matrix(X)[1], sp.coo_array(X)[[1]], row, row[None, :], row.tolist(), [row.tolist()]):
        assert model.rank(form)[0].tolist() == want


def test_candidates_are_a_pattern() -> None:
    model = carya.XRLinear(max_leaf=2).fit(X, Y)
    want = model.predict_selected(X, Y)
    for value in (-3.0, np.nan, 0.0):
        odd = Y.copy()
        odd.data[:] = value
        got = model.predict_selected(X, odd)
        assert np.array_equal(got.indices, want.indices)
        assert np.array_equal(got.data, want.data)
    assert np.array_equal(model.predict_selected(X, -Y.toarray()).toarray(), want.toarray())


def test_the_building_blocks_check_too() -> None:
    features, labels = validation.features(X), validation.labels(Y)
    with pytest.raises(InputError, match="the features have 3 rows, the labels 6"):
        carya.indexing.pifa(validation.features(X[:3]), labels)
    assert carya.indexing.pifa(features, labels, threads=0).rows == 4
    with pytest.raises(ParameterError, match="branching must be an integer of at least 2, got 1"):
        carya.indexing.random_tree(1000, branching=1)
    with pytest.raises(ParameterError, match="max_leaf must be an integer of at least 1, got 0"):
        carya.indexing.cluster(carya.indexing.pifa(features, labels), max_leaf=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelTree(None), "a label tree needs a list of at least one level, got None"),
        (lambda: LabelTree([[0, 0], [[0], [1, 2]]]), "the parents of level 2 must be a list"),
        (lambda: LabelTree.flat(-1), "n_labels must be an integer of at least 1, got -1"),
        (lambda: LabelTree.from_paths("a/b"), "paths is one string"),
        (lambda: LabelTree.from_paths(["a"], separator=""), "separator must be a string"),
        (lambda: LabelTree.from_chain(sp.eye_array(3, format="csr")), "chain is one matrix"),
        (lambda: LabelTree.flat(3).children(0), "level must be between 1 and 1, got 0"),
        (lambda: LabelTree.flat(3).clusters(9), "level must be between 0 and 1, got 9"),
    ],
)
def test_trees(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_odd_but_fine() -> None:
    """One row, one feature, one label; all rows alike; every label everywhere; a row of zeros."""
    assert carya.XRLinear().fit([[1.0]], [[1]]).rank(np.array([1.0]))[0].tolist() == [0]
    same = carya.XRLinear(max_leaf=2, branching=2).fit(np.ones((8, 3)), np.ones((8, 6)))
    assert sorted(same.predict(np.ones((1, 3)), top_k=6).indices.tolist()) == list(range(6))
    rows = sp.csr_array(np.vstack([np.zeros((2, 5)), np.eye(5)]).astype(np.float32))
    model = carya.XRLinear(max_leaf=2).fit(rows, np.vstack([np.ones((2, 5)), np.eye(5)]))
    assert model.rank(rows[[4]])[0][0] == 2
    integers = carya.XRLinear(max_leaf=2).fit(np.eye(5, dtype=np.int64), np.eye(5, dtype=bool))
    assert integers.rank(np.array([0, 0, 1, 0, 0]))[0][0] == 2


def test_rows_without_labels_are_negatives_of_the_first_layer() -> None:
    labels = Y.toarray()
    labels[3:] = 0
    model = carya.XRLinear(max_depth=1).fit(X, labels)
    assert model.predict(X[:3], top_k=1).indices.tolist() == [0, 1, 2]
