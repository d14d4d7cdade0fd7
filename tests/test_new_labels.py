"""Tests for adding labels to a trained model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.core.matrices import Csr
from carya.errors import InputError
from carya.trees.chunked_weights import of_chunked, to_chunked
from carya.trees.label_tree import LabelTree
from carya.trees.layer import AddedNodes, Layer, Weights
from carya.trees.transforms import Transform

from reference import minimize
from reference_search import ReferenceSearch
from small_tree import content
from topics import corpus

TEXTS, LABELS = corpus(240)
DATA = carya.data.generate_data(400, 40, labels_per_row=2.5, features_per_row=30, seed=3)
X, Y = DATA.X, sp.csr_array(DATA.Y)
SETTINGS: dict[str, Any] = {"max_leaf_size": 8, "branching": 4, "beam_width": 3, "n_jobs": 2}


def tree(**parameters: Any) -> carya.XRLinear:
    """Return a tree trained without the last five labels."""
    return carya.XRLinear(**(SETTINGS | parameters)).fit(X, Y[:, :35])


def last_layer(model: carya.XRLinear) -> list[bytes]:
    """Return the arrays of the last layer."""
    layer = model.layers_[-1]
    weights = layer.weights
    return [
        array.tobytes()
        for array in (weights.starts, weights.data, weights.scales, layer.dense, layer.biases, layer.chunks)
    ]


def random_layer(sizes: np.ndarray, features: int, dtype: str, rng: np.random.Generator) -> Layer:
    """Return a layer with random weights, whose clusters have the given sizes."""
    n_nodes = int(sizes.sum())
    weights = sp.random_array((features, n_nodes), density=0.3, random_state=rng, format="csr", dtype=np.float32)
    chunks = np.concatenate([[0], np.cumsum(sizes)])
    parents = np.repeat(np.arange(sizes.size), sizes)[rng.permutation(n_nodes)]
    order = np.argsort(parents, kind="stable").astype(np.int32)
    empty, biases = np.zeros((n_nodes, 0), np.float32), rng.random(n_nodes, np.float32)
    packed = Weights.pack(Csr.of_scipy(weights), chunks, dtype)
    return Layer(packed, empty, biases, chunks, order, Transform.from_name("noop"))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize(
    ("clusters", "size", "added"),
    [
        (1, 40, 5),  # a single chunk
        (1, 250, 20),  # child ids become wider
        (12, 20, 10),  # merged blocks
        (10, 50, 20),  # blocks are no longer merged
        (150, 20, 60),  # ids of one byte, wide blocks with chunk bits
        (150, 31, 60),  # larger bitmaps
        (30, 125, 60),  # child ids become wider
        (1100, 3, 90),  # ids of two bytes, wide blocks with ranks
        (4000, 1, 90),  # wide blocks with chunk ids or ranks
    ],
)
def test_insertion_equals_packing_all_weights(clusters: int, size: int, added: int, dtype: str) -> None:
    rng = np.random.default_rng(clusters + size)
    layer = random_layer(rng.integers(max(size - 4, 1), size + 1, clusters), 40, dtype, rng)
    parents = np.sort(rng.integers(0, clusters, added))
    added_chunks = np.searchsorted(parents, np.arange(clusters + 1))
    own = sp.random_array((40, added), density=0.5, random_state=rng, format="csc", dtype=np.float32)
    weights = to_chunked(own, added_chunks)
    assert (of_chunked(weights, added_chunks, 40) != own).nnz == 0
    chunks = layer.chunks + added_chunks
    is_new = np.ones(layer.n_nodes + added, bool)
    for chunk in range(clusters):
        is_new[chunks[chunk] : chunks[chunk] + layer.chunks[chunk + 1] - layer.chunks[chunk]] = False
    order = np.empty(is_new.size, np.int32)
    order[~is_new], order[is_new] = layer.order, np.arange(layer.n_nodes, is_new.size)
    biases = rng.random(added, np.float32)
    nodes = AddedNodes(weights, biases, np.zeros((added, 0), np.float32))
    result = layer.insert(nodes, chunks, order, threads=2)

    old, new = layer.unpacked().to_scipy().tocoo(), own.tocoo()
    kept, inserted = np.flatnonzero(~is_new), np.flatnonzero(is_new)
    entries = np.concatenate([old.data, new.data])
    rows = np.concatenate([old.coords[0], new.coords[0]])
    columns = np.concatenate([kept[old.coords[1]], inserted[new.coords[1]]])
    matrix = sp.coo_array((entries, (rows, columns)), shape=(40, is_new.size)).tocsr()
    matrix.sort_indices()
    scales = result.weights.scales if dtype == "int8" else None
    packed = Weights.pack(Csr.of_scipy(matrix), chunks, dtype, scales=scales)
    assert np.array_equal(result.weights.starts, packed.starts)
    assert np.array_equal(result.weights.data, packed.data)
    assert (result.weights.n_weights, result.weights.n_used) == (packed.n_weights, packed.n_used)
    assert np.array_equal(result.weights.scales, layer.weights.scales)
    assert np.array_equal(result.biases[inserted], biases)
    assert np.array_equal(result.biases[kept], layer.biases)


@pytest.mark.parametrize("parameters", [{}, {"weight_dtype": "float32"}, {"max_depth": 1}, {"clusters_per_label": 2}])
def test_other_weights_do_not_change(parameters: dict[str, Any]) -> None:
    model = tree(**parameters)
    before, upper = copy.deepcopy(model), model.layers_[:-1]
    model.add_labels(5, X, Y)
    assert model.n_labels_ == 40
    assert all(layer is old for layer, old in zip(model.layers_, upper, strict=False))
    known = Y[:, :35].nonzero()
    pairs = sp.csr_array((np.ones(known[0].size), known), shape=Y.shape)
    scores = model.predict_selected(X, pairs).data
    assert np.array_equal(scores, before.predict_selected(X, Y[:, :35]).data)
    assert last_layer(model) != last_layer(before)
    model.remove_labels(range(35, 40))
    assert last_layer(model) == last_layer(before)


def test_new_labels_are_ranked_first_for_their_rows() -> None:
    model = tree().add_labels(5, X, Y)
    rows = np.flatnonzero(Y[:, 35:].sum(axis=1))
    new = np.asarray(Y[rows, 35:].toarray(), bool)
    ranked = model.predict(X[rows], top_k=3).toarray()[:, 35:] > 0
    assert ranked[new].mean() > 0.8
    assert ranked[~new].mean() < 0.1


def test_rankers_minimize_the_objective() -> None:
    model = tree(weight_dtype="float32", max_depth=1, tol=0.0, max_iter=500, threshold=0.0).add_labels(5, X, Y)
    dense = np.hstack([X.toarray(), np.ones((X.shape[0], 1))]).astype(np.float64)
    for label in (35, 39):
        y = np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)
        expected = minimize(dense, y, np.ones(y.size), "squared-hinge")
        actual = model.layers_[-1].matrix()[:, [label]].toarray().ravel()
        np.testing.assert_allclose(actual, expected, atol=2e-3)


def test_search_finds_new_labels() -> None:
    model = tree(weight_dtype="float32").add_labels(5, X, Y)
    reference = ReferenceSearch(model)
    for row in np.flatnonzero(Y[:, 35:].sum(axis=1))[:5]:
        labels, scores = model.rank(X[[row]], top_k=5, beam_width=2)
        ranking = list(zip(labels.tolist(), scores.tolist(), strict=True))
        reference.check(X[[row]].toarray()[0], ranking, top_k=5, beam_width=2)


def test_labels_are_added_to_the_clusters_of_their_rows() -> None:
    model = tree().add_labels(5, X, Y)
    assert model.tree_.leaf_labels is not None
    matcher = carya.XRLinear.from_trained_tree(
        type(model._check_fitted().trained)(LabelTree(model.tree_.parents[:-1]), model.layers_[:-1], model.widths_)
    )
    for label in range(35, 40):
        rows = Y[:, [label]].nonzero()[0]
        ranked = matcher.predict(X[rows], top_k=3, beam_width=3)
        counts = np.bincount(ranked.indices, minlength=matcher.n_labels_)
        clusters = model.tree_.parents[-1][np.array(model.tree_.leaves(label))]
        assert counts[clusters].min() > 0
        assert counts.argmax() in clusters


def test_full_clusters_are_avoided() -> None:
    model = carya.XRLinear(max_leaf_size=4, branching=2).fit(X, Y[:, :20])
    model.add_labels(20, X, Y)
    sizes = np.bincount(model.tree_.parents[-1])
    assert sizes.max() <= 2 * np.median(sizes)


def test_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    for jobs in (1, 3):
        tree(n_jobs=1).set_params(n_jobs=jobs).add_labels(5, X, Y).set_params(n_jobs=1).save(tmp_path / str(jobs))
    assert content(tmp_path / "1") == content(tmp_path / "3")


def test_saved_models_and_names(tmp_path: Path) -> None:
    names = [f"l{number}" for number in range(40)]
    model = carya.XRLinear(**SETTINGS).fit(X, Y[:, :35], label_names=names[:35], calibrate=2)
    model.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    rows = [[names[label] for label in Y[[row]].indices] for row in range(Y.shape[0])]
    loaded.add_labels(names[35:], X, rows)
    loaded.save(tmp_path / "model")
    again = carya.load(tmp_path / "model")
    assert list(again.labels_) == names
    assert (again.predict(X) != loaded.predict(X)).nnz == 0
    assert again.calibration_.table is None
    with pytest.raises(InputError, match="occur in the training data"):
        again.calibrate(X, rows)
    by_matrix = model.add_labels(names[35:], X, Y)
    assert (by_matrix.predict(X) != again.predict(X)).nnz == 0


def test_labels_without_rows() -> None:
    model = tree()
    features = sp.csr_array(Y[:, 35:].T @ X)
    features.data /= np.sqrt(features.multiply(features).sum(axis=1))[features.nonzero()[0]]
    described = copy.deepcopy(model).add_labels(5, label_features=features)
    for label in range(5):
        assert 35 + label in described.rank(features[[label]], top_k=5)[0]
    unknown = copy.deepcopy(model).add_labels(5)  # ranked last, like labels without rows in fit
    assert unknown.predict(X, top_k=30, beam_width=40)[:, 35:].nnz == 0
    some = copy.deepcopy(model).add_labels(6, X, sp.hstack([Y, sp.csr_array((400, 1))], format="csr"))
    assert some.n_labels_ == 41
    weighted = tree(label_row_weight=1.0).add_labels(5, X[:200], Y[:200], label_features=features)
    assert 35 in weighted.rank(features[[0]], top_k=3)[0]


@pytest.mark.parametrize("form", ["dense", "pair", "costs", "weights"])
def test_other_inputs(form: str) -> None:
    dense = X.toarray()[:, :20].copy()
    inputs = {"dense": X.toarray(), "pair": (X, dense)}.get(form, X)
    settings: dict[str, Any] = {"relevance": "induce", "tail_weight": 1.0} if form == "costs" else {}
    options: dict[str, Any] = {"sample_weight": np.arange(400) % 3} if form == "weights" else {}
    model = carya.XRLinear(**SETTINGS, **settings).fit(inputs, Y[:, :35], **options)
    model.add_labels(5, inputs, Y, **options)
    assert model.score(inputs, Y) > 0.6


def test_ensembles() -> None:
    ensemble = carya.Ensemble(carya.XRLinear(**SETTINGS), n_trees=2).fit(X, Y[:, :35])
    before = ensemble.score(X, Y[:, :35])
    ensemble.add_labels(5, X, Y)
    assert ensemble.n_labels_ == 40
    assert ensemble.score(X, Y) > before - 0.05
    mixed = carya.Ensemble([carya.XRLinear(**SETTINGS), carya.NearestNeighbors()]).fit(X, Y[:, :35])
    with pytest.raises(InputError, match="contains NearestNeighbors"):
        mixed.add_labels(5, X, Y)


def test_text_rankers(tmp_path: Path) -> None:
    new = LABELS[0][0]
    known = [[label for label in row if label != new] for row in LABELS]
    for model in (carya.XRLinear(max_leaf_size=4), carya.Ensemble(carya.XRLinear(max_leaf_size=4), n_trees=2)):
        ranker = carya.TextRanker(carya.Tfidf(min_df=1), model).fit(TEXTS, known, calibrate=2)
        ranker.add_labels([new, "u:1"], TEXTS, LABELS, names={"u:1": "a new name"})
        assert ranker.suggest(TEXTS[0], labels=[new])[0].probability is not None
        found = [new in {item.label for item in row} for row in ranker.suggest_all(TEXTS, top_k=3)]
        assert np.mean([found[row] for row, own in enumerate(LABELS) if new in own]) > 0.7
        ranker.save(tmp_path / "model")
        loaded = carya.load(tmp_path / "model")
        assert list(loaded.labels_)[-2:] == [new, "u:1"]
        assert loaded.label_set_.name(loaded.label_set_.number("u:1")) == "a new name"
        assert loaded.suggest_all(TEXTS) == ranker.suggest_all(TEXTS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("new", "must be a list with the names"),
        (3, "must be a list with the names"),
        ([], "at least one name"),
        ([""], "no empty names"),
        (["a", "a"], "more than once"),
        (["l3"], "already has the label 'l3'"),
        ([None], "must be a string"),
    ],
)
def test_invalid_names(labels: Any, message: str) -> None:
    names = [f"l{number}" for number in range(35)]
    model = carya.XRLinear(**SETTINGS).fit(X, Y[:, :35], label_names=names)
    with pytest.raises(InputError, match=message):
        model.add_labels(labels, X, Y)
    assert model.n_labels_ == 35


def test_invalid_arguments() -> None:
    model = tree()
    for labels in (0, -1, True, 1.5, ["a"]):
        with pytest.raises(InputError, match="must be the number of new labels"):
            model.add_labels(labels, X, Y)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="35 known labels, followed by one for each of the 6 new labels"):
        model.add_labels(6, X, Y)
    with pytest.raises(InputError, match="All given rows have the new label 35"):
        model.add_labels(1, X[:10], np.eye(36)[[35] * 10])
    with pytest.raises(InputError, match="X has 10 rows, but Y has 400"):
        model.add_labels(5, X[:10], Y)
    with pytest.raises(InputError, match="as in training"):
        model.add_labels(5, X[:, :10], Y)
    with pytest.raises(InputError, match="one row per label"):
        model.add_labels(5, label_features=X[:3])
    with pytest.raises(InputError, match="NearestNeighbors models do not support add_labels"):
        carya.NearestNeighbors().fit(X, Y).add_labels(1)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1), carya.NearestNeighbors()).fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="the ranker has a NearestNeighbors model"):
        ranker.add_labels(["new"])
    with pytest.raises(InputError, match="TextEnsemble models do not support add_labels"):
        carya.TextEnsemble([carya.TextRanker()]).fit(TEXTS, LABELS).add_labels(["new"])
    assert model.n_labels_ == 35
