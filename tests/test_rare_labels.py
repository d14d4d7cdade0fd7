"""Tests for the parameters that favor rare labels: `tail_weight` and `label_row_weight`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

import carya
from carya import metrics
from carya.errors import InputError
from carya.models.training_data import TrainingData
from carya.models.xr_linear.rare_labels import add_label_rows, weight_rare_labels


@pytest.fixture(scope="module")
def world() -> tuple[sp.csr_array, sp.csr_array]:
    X, Y = carya.data.make_world(500, 60, seed=2)
    return sp.csr_array(X), sp.csr_array(Y)


def layers_of(model: carya.XRLinear) -> list[tuple[bytes, ...]]:
    """Return the weights, the biases and the order of the children of each layer as bytes."""
    return [
        (layer.weights.data.tobytes(), layer.biases.tobytes(), np.asarray(layer.order).tobytes())
        for layer in model.layers_
    ]


def random_label_features(X: sp.csr_array, n_labels: int, seed: int = 5) -> sp.csr_array:
    matrix = sp.random_array(
        (n_labels, X.shape[1]), density=0.05, random_state=np.random.default_rng(seed), format="csr"
    )
    matrix = matrix.astype(np.float32)
    matrix.data[matrix.indptr[3] : matrix.indptr[4]] = 0  # label 3 has no features
    matrix.eliminate_zeros()
    return matrix


def test_costs_are_powers_of_inverse_propensities() -> None:
    Y = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]], np.float32)
    data = TrainingData.of(np.eye(4, dtype=np.float32), Y)
    factors = metrics.propensities(Y) ** -2.0
    expected = factors[[0, 0, 1, 0, 0]]
    expected /= expected.mean()
    weighted = weight_rare_labels(data, 2.0, use_values=False).labels
    np.testing.assert_allclose(weighted.values, expected, rtol=1e-6)
    assert weighted.values[2] > weighted.values[1]  # the rare label has a higher weight
    doubled = TrainingData.of(np.eye(4, dtype=np.float32), 2 * Y)
    np.testing.assert_allclose(weight_rare_labels(doubled, 2.0, use_values=True).labels.values, 2 * expected, rtol=1e-6)


def test_tail_weight_is_a_cost_per_label(world: tuple[sp.csr_array, sp.csr_array]) -> None:
    X, Y = world
    model = carya.XRLinear(max_leaf_size=10, tail_weight=1.5).fit(X, Y)
    costs = Y.copy()
    factors = metrics.propensities(Y) ** -1.5
    costs.data = (factors[Y.indices] / factors[Y.indices].mean()).astype(np.float32)
    same = carya.XRLinear(max_leaf_size=10, tail_weight=0, relevance="induce").fit(X, costs)
    assert layers_of(model) == layers_of(same)
    assert layers_of(model) != layers_of(carya.XRLinear(max_leaf_size=10, tail_weight=0).fit(X, Y))


def test_label_rows_are_additional_rows(world: tuple[sp.csr_array, sp.csr_array]) -> None:
    X, Y = world
    own = random_label_features(X, Y.shape[1])
    model = carya.XRLinear(max_leaf_size=10, tail_weight=0, label_row_weight=2.5).fit(X, Y, label_features=own)
    known = np.delete(np.arange(Y.shape[1]), 3)
    identity = sp.eye_array(Y.shape[1], format="csr", dtype=np.float32)[known]
    weights = np.concatenate([np.ones(X.shape[0]), np.full(known.size, 2.5)])
    stacked = carya.XRLinear(max_leaf_size=10, tail_weight=0).fit(
        sp.vstack([X, own[known]], format="csr"), sp.vstack([Y, identity], format="csr"), sample_weight=weights
    )
    assert layers_of(model) == layers_of(stacked)
    with pytest.raises(InputError, match="label_features is not used"):
        carya.XRLinear(max_leaf_size=10, tail_weight=0, label_row_weight=0).fit(X, Y, label_features=own)


def test_label_features_with_other_columns_are_not_rows(world: tuple[sp.csr_array, sp.csr_array]) -> None:
    X, Y = world
    data = TrainingData.of(X, Y, label_features=sp.eye_array(Y.shape[1], format="csr"))
    assert add_label_rows(data, 1.0) is data
    data = TrainingData.of(X, Y)
    assert add_label_rows(data, 1.0) is data


@pytest.mark.parametrize("dense", [False, True])
def test_labels_without_training_rows_are_ranked_by_their_features(
    world: tuple[sp.csr_array, sp.csr_array], dense: bool
) -> None:
    X, Y = world
    mean_features = normalize(Y.T @ X)  # the features of each label resemble those of its rows
    unseen = np.arange(0, Y.shape[1], 6)
    Y = Y.tolil()
    Y[:, unseen] = 0
    Y = Y.tocsr()
    convert: Any = (lambda matrix: matrix.toarray()) if dense else (lambda matrix: matrix)

    def number_found(model: carya.XRLinear) -> int:
        ranked = model.predict(convert(mean_features[unseen]), top_k=3)
        return sum(label in ranked[[row]].indices for row, label in enumerate(unseen))

    settings: dict[str, Any] = {"max_leaf_size": 10, "label_row_weight": 10.0}
    model = carya.XRLinear(**settings).fit(convert(X), Y, label_features=convert(mean_features))
    assert number_found(model) >= 0.8 * unseen.size
    assert number_found(carya.XRLinear(max_leaf_size=10).fit(convert(X), Y)) == 0


def test_label_rows_with_a_given_tree_and_members(world: tuple[sp.csr_array, sp.csr_array]) -> None:
    X, Y = world
    own = random_label_features(X, Y.shape[1])
    tree = carya.XRLinear(max_leaf_size=10).fit(X, Y).tree_
    assert carya.XRLinear(tree=tree, label_row_weight=1).fit(X, Y, label_features=own).tree_ is tree
    members = [carya.XRLinear(max_leaf_size=10, label_row_weight=1), carya.XRLinear(max_leaf_size=10)]
    ensemble = carya.Ensemble(members).fit(X, Y, label_features=own)
    alone = carya.XRLinear(max_leaf_size=10, label_row_weight=1).fit(X, Y, label_features=own)
    assert layers_of(ensemble.members_[0]) == layers_of(alone)
    assert layers_of(ensemble.members_[1]) != layers_of(alone)


def test_texts_of_labels_are_training_rows() -> None:
    texts = ["red apples and pears", "green apples", "fast cars", "slow cars and trains"] * 3
    labels = [["fruit"], ["fruit"], ["traffic"], ["traffic"]] * 3
    names = {"fruit": "fruit orchard", "traffic": "traffic"}
    vectorizer = carya.Tfidf(min_df=1)
    texts[0] = "orchard"  # a word that occurs in the name of a label and in one text
    ranker = carya.TextRanker(vectorizer, carya.preset("tail")).fit(texts, labels, names=names)
    plain = carya.TextRanker(vectorizer, carya.XRLinear(tail_weight=1)).fit(texts, labels, names=names)
    assert ranker.suggest("orchard")[0].label == "fruit"
    assert ranker.suggest("orchard")[0].score > plain.suggest("orchard")[0].score


def test_uris_are_not_texts() -> None:
    texts = ["http server", "web server", "cake", "bread"] * 3
    labels = [
        ["http://example.org/1"],
        ["http://example.org/1"],
        ["http://example.org/2"],
        ["http://example.org/2"],
    ] * 3
    ranker = carya.TextRanker(carya.Tfidf(min_df=1), carya.XRLinear(label_row_weight=1)).fit(texts, labels)
    plain = carya.TextRanker(carya.Tfidf(min_df=1), carya.XRLinear(label_row_weight=0)).fit(texts, labels)
    assert ranker.suggest("http") == plain.suggest("http")


@pytest.mark.parametrize("name", ["tail_weight", "label_row_weight"])
def test_negative_weights_are_refused(name: str) -> None:
    with pytest.raises(carya.errors.ParameterError, match=name):
        carya.XRLinear().set_params(**{name: -0.5}).check_parameters()


def test_integer_weights_equal_repeated_rows(world: tuple[sp.csr_array, sp.csr_array]) -> None:
    X, Y = world
    weights = np.random.default_rng(0).integers(1, 4, X.shape[0])
    rows = np.repeat(np.arange(X.shape[0]), weights)
    weighted = weight_rare_labels(TrainingData.of(X, Y, sample_weight=weights), 1.0, use_values=False).labels
    repeated = weight_rare_labels(TrainingData.of(X[rows], Y[rows]), 1.0, use_values=False).labels
    np.testing.assert_allclose(weighted.to_scipy()[rows].toarray(), repeated.to_scipy().toarray(), rtol=1e-6)
