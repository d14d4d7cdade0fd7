"""Tests for sample weights: an integer weight has the same effect as repeating the row."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya import LabelTree
from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import InputError
from carya.indexing.indexer import REPRESENTATIONS, Indexer
from carya.matching.overlapping_clusters import add_leaves
from carya.models.training_data import TrainingData
from carya.ranking import NeuralRanker

import reference
from matrix_helpers import same_matrix

ROWS, FEATURES, LABELS = 60, 12, 6
RNG = np.random.default_rng(0)
X = sp.csr_array((RNG.random((ROWS, FEATURES)) * (RNG.random((ROWS, FEATURES)) < 0.4)).astype(np.float32))
Y = sp.csr_array((RNG.random((ROWS, LABELS)) < 0.3).astype(np.float32))
WEIGHTS = RNG.integers(0, 4, ROWS)
REPEATED = np.repeat(np.arange(ROWS), WEIGHTS)
TREE = LabelTree([[0, 0], [0, 0, 0, 1, 1, 1]])
EXACT: dict[str, Any] = {"tol": 0.0, "max_iter": 2000, "threshold": 0.0, "weight_dtype": "float32", "tree": TREE}


def weights_of(model: carya.XRLinear) -> list[np.ndarray]:
    """Return the weights of each layer, including biases."""
    return [layer.matrix().toarray() for layer in model.layers_]


@pytest.mark.parametrize("loss", ["squared-hinge", "hinge", "logistic"])
@pytest.mark.parametrize("form", ["sparse", "dense", "pair"])
def test_integer_weights_equal_repeated_rows(loss: str, form: str) -> None:
    convert: Callable[[Any], Any] = {
        "sparse": lambda rows: rows,
        "dense": lambda rows: rows.toarray(),
        "pair": lambda rows: (rows[:, :7], rows[:, 7:].toarray()),
    }[form]
    parameters = {**EXACT, "loss": loss}
    weighted = carya.XRLinear(**parameters).fit(convert(X), Y, sample_weight=WEIGHTS)
    repeated = carya.XRLinear(**parameters).fit(convert(X[REPEATED]), Y[REPEATED])
    plain = carya.XRLinear(**parameters).fit(convert(X), Y)
    tolerance = 0.05 if loss == "hinge" else 5e-3  # the solver for the hinge loss converges slowly
    for first, second, other in zip(weights_of(weighted), weights_of(repeated), weights_of(plain), strict=True):
        assert np.allclose(first, second, atol=tolerance)
        assert np.abs(first - other).max() > 10 * np.abs(first - second).max()


@pytest.mark.parametrize(
    "parameters",
    [
        {"penalty": "l1", "C": 5.0},
        {"penalty": "l1", "C": 5.0, "loss": "logistic"},
        {"relevance": "induce"},
        {"positive_weight": 3.0, "negative_weight": 0.5},
        {"bias": 0.0},
        {"negatives": "matcher", "beam_width": 1},
        {"threshold": 0.2, "threshold_by": "effect"},
    ],
    ids=str,
)
def test_integer_weights_equal_repeated_rows_with_other_settings(parameters: dict[str, Any]) -> None:
    relevance = Y.copy()
    relevance.data = np.random.default_rng(1).uniform(0.5, 3, Y.nnz).astype(np.float32)
    weighted = carya.XRLinear(**{**EXACT, **parameters}).fit(X, relevance, sample_weight=WEIGHTS)
    repeated = carya.XRLinear(**{**EXACT, **parameters}).fit(X[REPEATED], relevance[REPEATED])
    for first, second in zip(weights_of(weighted), weights_of(repeated), strict=True):
        assert np.allclose(first, second, atol=5e-3)


def test_fractional_weights_multiply_the_costs() -> None:
    weights = np.random.default_rng(2).uniform(0.2, 5, ROWS)
    model = carya.XRLinear(max_depth=1, **{**EXACT, "tree": None}).fit(X, Y, sample_weight=weights)
    A = np.hstack([X.toarray(), np.ones((ROWS, 1))]).astype(np.float64)
    for label in range(LABELS):
        y = 2.0 * Y.toarray()[:, label] - 1
        expected = reference.minimize(A, y, weights, "squared-hinge")
        assert np.allclose(weights_of(model)[0][:, label], expected, atol=5e-3)


@pytest.mark.parametrize("representation", [name for name in REPRESENTATIONS if name != "lf"])
def test_label_representations_count_weighted_rows_as_repeated_rows(representation: str) -> None:
    own = np.random.default_rng(3).random((LABELS, FEATURES)).astype(np.float32)
    indexer = Indexer(
        branching=2,
        max_leaf_size=1,
        max_depth=None,
        representation=representation,
        alpha=0.5,
        index_features=None,
        clustering="spherical",
        balanced=True,
        bisect=True,
        seed=0,
    )
    similarities = []
    for rows, weights in ((np.arange(ROWS)[WEIGHTS > 0], WEIGHTS[WEIGHTS > 0].astype(np.float32)), (REPEATED, None)):
        vectors = indexer.represent(
            validation.check_features(X[rows]),
            validation.check_labels(Y[rows]),
            sp.csr_array(own) if "lf" in representation else None,
            sample_weight=weights,
            threads=1,
        )
        dense = np.hstack([vectors.sparse.to_scipy().toarray(), vectors.dense])
        similarities.append(dense @ dense.T)
    assert np.allclose(similarities[0], similarities[1], atol=1e-4)
    assert similarities[0].std() > 0.01


def test_overlapping_clusters_count_weighted_rows_as_repeated_rows() -> None:
    # Only rows with weight 3 prefer the second cluster, so the mean gain is large enough to add a second leaf only if
    # the weights are used.
    scores = np.stack([np.full(ROWS, 0.5), 0.5 + 0.12 * (WEIGHTS == 3)], axis=1).astype(np.float32)
    trees = []
    for rows, weights in ((np.arange(ROWS), WEIGHTS.astype(np.float32)), (REPEATED, None), (np.arange(ROWS), None)):
        matched = Csr.of_scipy(sp.csr_array(scores[rows]))
        labels = validation.check_labels(Y[rows])
        trees.append(add_leaves(TREE, labels, matched, clusters_per_label=2, sample_weight=weights)[0])
    assert trees[0] == trees[1]
    assert trees[0] != trees[2]


def test_rows_with_weight_0_are_ignored() -> None:
    kept = WEIGHTS > 0
    weighted = carya.XRLinear(branching=2, max_leaf_size=2).fit(X, Y, sample_weight=kept)
    assert same_matrix(
        weighted.predict(X), carya.XRLinear(branching=2, max_leaf_size=2).fit(X[kept], Y[kept]).predict(X)
    )
    with_shortlist = carya.XRLinear(negatives="teacher+given", tree=TREE)
    expected = with_shortlist.clone().fit(X[kept], Y[kept], shortlist=Y[kept])
    assert same_matrix(with_shortlist.fit(X, Y, shortlist=Y, sample_weight=kept).predict(X), expected.predict(X))


def test_equal_weights_of_1_give_the_same_bytes(tmp_path: Path) -> None:
    carya.XRLinear(branching=2, max_leaf_size=2).fit(X, Y).save(tmp_path / "plain")
    carya.XRLinear(branching=2, max_leaf_size=2).fit(X, Y, sample_weight=np.ones(ROWS)).save(tmp_path / "ones")
    assert (tmp_path / "plain/arrays.bin").read_bytes() == (tmp_path / "ones/arrays.bin").read_bytes()


def test_weights_do_not_depend_on_the_number_of_threads() -> None:
    S = [
        carya.XRLinear(branching=2, max_leaf_size=2, n_jobs=n_jobs).fit(X, Y, sample_weight=WEIGHTS + 0.5).predict(X)
        for n_jobs in (1, 8)
    ]
    assert same_matrix(*S)


def solver() -> dict[str, Any]:
    return {name: value for name, value in EXACT.items() if name != "tree"}


def test_nearest_neighbors_weight_centroids_and_rankers() -> None:
    parameters = {**solver(), "similarity_weight": 1.0, "n_neighbors": LABELS}
    weighted = carya.NearestNeighbors(**parameters).fit(X, Y, sample_weight=WEIGHTS)
    repeated = carya.NearestNeighbors(**parameters).fit(X[REPEATED], Y[REPEATED])
    plain = carya.NearestNeighbors(**parameters).fit(X, Y)
    scores = [model.predict_selected(X, np.ones((ROWS, LABELS))).toarray() for model in (weighted, repeated, plain)]
    assert np.allclose(scores[0], scores[1], atol=5e-3)
    assert np.abs(scores[0] - scores[2]).max() > 0.05
    centroids = carya.NearestNeighbors(ranker=None, weight_dtype="float32", n_neighbors=LABELS)
    first = centroids.clone().fit(X, Y, sample_weight=WEIGHTS).predict_selected(X, np.ones((ROWS, LABELS)))
    second = centroids.clone().fit(X[REPEATED], Y[REPEATED]).predict_selected(X, np.ones((ROWS, LABELS)))
    assert np.allclose(first.toarray(), second.toarray(), atol=1e-5)


@pytest.mark.parametrize("weights", [None, "learned"])
def test_ensembles_pass_weights_to_their_members(weights: str | None) -> None:
    tree = carya.XRLinear(**EXACT)
    ensemble = carya.Ensemble([tree, tree.clone(C=0.5)], weights=weights).fit(X, Y, sample_weight=WEIGHTS)
    for member in ensemble.members_:
        expected = member.clone().fit(X, Y, sample_weight=WEIGHTS)
        assert same_matrix(member.predict(X), expected.predict(X))


def test_rerankers_pass_weights_to_their_trees() -> None:
    tree = carya.XRLinear(**EXACT)
    reranked = carya.Reranked(tree, NeuralRanker(epochs=1)).fit(X, Y, sample_weight=WEIGHTS)
    expected = tree.clone().fit(X, Y, sample_weight=WEIGHTS)
    assert same_matrix(reranked.members_[0].predict(X), expected.predict(X))


def test_text_rankers_pass_weights_to_their_model() -> None:
    texts = [" ".join(f"word{column}" for column in np.flatnonzero(row)) or "none" for row in X.toarray()]
    labels = [np.flatnonzero(row).tolist() for row in Y.toarray()]
    for model in (carya.XRLinear(**EXACT), carya.Ensemble(carya.XRLinear(**EXACT), n_trees=2)):
        ranker = carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels, sample_weight=WEIGHTS)
        features = ranker.vectorizer_.transform(texts)
        expected = model.clone().fit(features, Y, sample_weight=WEIGHTS)
        assert same_matrix(ranker.predict(texts), expected.predict(features))
        assert ranker.label_counts_ is not None
        assert ranker.label_counts_.sum() == Y.nnz  # counts of texts, not sums of weights


def test_models_without_weights_reject_them() -> None:
    with pytest.raises(InputError, match="sample_weight requires over='labels'; with over='rows', it does not"):
        carya.NearestNeighbors(over="rows").fit(X, Y, sample_weight=WEIGHTS)
    with pytest.raises(InputError, match="sample_weight requires over='labels'"):
        carya.Ensemble([carya.XRLinear(), carya.NearestNeighbors(over="rows")]).fit(X, Y, sample_weight=WEIGHTS)
    with pytest.raises(InputError, match="sample_weight is not used by representation='lf' with ranker=None"):
        carya.NearestNeighbors(representation="lf", ranker=None).fit(
            X, Y, label_features=X[:LABELS], sample_weight=WEIGHTS
        )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), f"sample_weight must have one number for each of the {ROWS} rows, got shape (3,)."),
        (1.0, f"sample_weight must have one number for each of the {ROWS} rows, got shape ()."),
        (
            [-1, *[1] * (ROWS - 1)],
            "sample_weight must contain numbers >= 0, one per row; the weight of row 0 is invalid.",
        ),
        ([1, np.nan, *[1] * (ROWS - 2)], "row 1 is invalid"),
        ([1, np.inf, *[1] * (ROWS - 2)], "row 1 is invalid"),
        (["a"] * ROWS, "sample_weight must contain numbers >= 0"),
        (np.zeros(ROWS), "sample_weight is 0 for every row. At least one weight must be greater than 0."),
    ],
    ids=["short", "scalar", "negative", "nan", "infinite", "strings", "zeros"],
)
def test_invalid_weights_are_rejected(weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        carya.XRLinear().fit(X, Y, sample_weight=weights)


def test_weights_that_remove_all_labels_are_rejected() -> None:
    labels = np.zeros((ROWS, 1))
    labels[0] = 1
    weights = np.ones(ROWS)
    weights[0] = 0
    with pytest.raises(InputError, match="Y has no positive entries in rows with sample_weight > 0"):
        carya.XRLinear().fit(X, labels, sample_weight=weights)


def test_weights_can_be_series() -> None:
    pandas = pytest.importorskip("pandas")
    data = TrainingData.of(X, Y, sample_weight=pandas.Series(WEIGHTS))
    assert data.sample_weight is not None
    assert data.sample_weight.tolist() == WEIGHTS[WEIGHTS > 0].tolist()


def test_extreme_weights_give_finite_models() -> None:
    for loss in ("squared-hinge", "hinge", "logistic"):
        for scale in (1e-20, 1e-6, 1e6):
            weights = np.where(np.arange(ROWS) % 2, scale, 1)
            model = carya.XRLinear(loss=loss, tree=TREE).fit(X, Y, sample_weight=weights)
            assert np.isfinite(model.predict(X).data).all()
