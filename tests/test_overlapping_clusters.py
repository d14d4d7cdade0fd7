"""Tests for overlapping clusters, in which a label with several meanings has several leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.core.matrices import Csr
from carya.errors import InputError, ModelFormatError, ParameterError
from carya.matching import add_leaves
from carya.ranking import NeuralRanker
from carya.trees.trained_tree import TrainedTree

TOPICS, PER_TOPIC = 8, 6


def two_meanings(n_rows: int, seed: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Return rows with one label of their topic; half of the rows of the last topic also have one of the first topic.

    The features of a row indicate its topic and the index of its label within the topic.
    """
    rng = np.random.default_rng(seed)
    X = np.zeros((n_rows, TOPICS * 10 + PER_TOPIC), np.float32)
    Y = np.zeros((n_rows, TOPICS * PER_TOPIC), np.float32)
    for row in range(n_rows):
        topic, number = int(rng.integers(TOPICS)), int(rng.integers(PER_TOPIC))
        X[row, topic * 10 + rng.choice(10, 4, replace=False)] = 1
        X[row, TOPICS * 10 + number] = 2
        Y[row, topic * PER_TOPIC + number] = 1
        if topic == TOPICS - 1 and rng.random() < 0.5:
            Y[row, number] = 1
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_array(X), sp.csr_array(Y)


SETTINGS: dict[str, Any] = {"branching": TOPICS, "max_leaf_size": PER_TOPIC, "beam_width": 1, "negatives": "teacher"}


@pytest.fixture(scope="module")
def model() -> carya.XRLinear:
    """A model with up to two clusters per label."""
    return carya.XRLinear(clusters_per_label=2, n_jobs=1, **SETTINGS).fit(*two_meanings(1500, 0))


def test_overlapping_clusters_improve_recall(model: carya.XRLinear) -> None:
    X, Y = two_meanings(500, 1)
    plain = carya.XRLinear(n_jobs=1, **SETTINGS).fit(*two_meanings(1500, 0))
    assert plain.tree_.leaf_labels is None
    assert len([label for label in range(PER_TOPIC) if len(model.tree_.leaves(label)) > 1]) >= PER_TOPIC // 2
    recall, recall_without = (carya.metrics.recall(Y, ranker.predict(X, top_k=2), k=2) for ranker in (model, plain))
    assert recall > recall_without + 0.02


def test_a_label_has_the_score_of_its_best_leaf(model: carya.XRLinear) -> None:
    X, _ = two_meanings(40, 2)
    labels = model.tree_.n_labels
    all_pairs = sp.csr_array(np.ones((X.shape[0], labels)))
    scores = model.predict_selected(X, all_pairs).toarray()
    wide = model.predict(X, top_k=labels, beam_width=TOPICS)
    assert np.array_equal(np.diff(wide.indptr), np.full(X.shape[0], labels))  # every label occurs once
    np.testing.assert_allclose(wide.toarray(), scores, rtol=1e-5)
    leaves = carya.XRLinear.from_trained_tree(  # the same layers, but each leaf is a separate label
        TrainedTree(carya.LabelTree(model.tree_.parents), model.layers_, model.widths_)
    )
    leaf_scores = leaves.predict_selected(X, sp.csr_array(np.ones((X.shape[0], model.tree_.level_sizes[-1])))).toarray()
    for label in range(labels):
        np.testing.assert_allclose(
            scores[:, label], leaf_scores[:, list(model.tree_.leaves(label))].max(axis=1), rtol=1e-4
        )
    best = model.predict(X, top_k=5, beam_width=TOPICS)
    for row in range(X.shape[0]):
        order = np.lexsort((np.arange(labels), -scores[row]))[:5]
        np.testing.assert_array_equal(best.indices[best.indptr[row] : best.indptr[row + 1]], order)


def test_explanations_follow_the_path_to_the_best_leaf(model: carya.XRLinear) -> None:
    X, _ = two_meanings(60, 3)
    for row in range(0, 60, 7):
        labels, scores = model.rank(X[[row]], top_k=1)
        explanation = model.explain(X[[row]], int(labels[0]))
        assert explanation.score == pytest.approx(float(scores[0]), rel=1e-4)
        assert np.exp(explanation.base + explanation.contributions.sum()) == pytest.approx(explanation.score)


def test_overlapping_trees_are_saved_and_validated_on_loading(model: carya.XRLinear, tmp_path: Path) -> None:
    X, _ = two_meanings(30, 4)
    model.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert opened.tree_ == model.tree_
    assert (opened.predict(X) != model.predict(X)).nnz == 0
    saved = model.to_saved()
    saved.arrays["leaf_labels"] = saved.arrays["leaf_labels"][::-1].copy()
    with pytest.raises(ModelFormatError, match="leaf_labels must be in ascending order, starting at 0, without gaps"):
        carya.XRLinear.from_saved(saved)


@pytest.mark.parametrize(
    ("leaf_labels", "message"),
    [
        ([0, 1], "3 integers"),
        ([0.0, 1.0, 2.0], "3 integers"),
        ([0, 2, 3], "without gaps"),
        ([1, 1, 2], "without gaps"),
        ([0, 1, 0], "without gaps"),
        ([0, 1, 1], "leaf_labels must not contain a label more than once per cluster"),
    ],
)
def test_invalid_leaf_labels_are_rejected(leaf_labels: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        carya.LabelTree([[0, 0], [0, 1, 1]], leaf_labels=leaf_labels)


def test_overlapping_clusters_require_a_multiplicative_inner_transform() -> None:
    X, Y = two_meanings(100, 6)
    with pytest.raises(
        ParameterError, match="clusters_per_label=2 requires the transform of the inner layers to be 'sigmoid' or"
    ):
        carya.XRLinear(clusters_per_label=2, transform=("noop", "l3-hinge")).fit(X, Y)


def test_rerankers_use_the_scores_of_the_first_cluster_per_label(model: carya.XRLinear) -> None:
    X, Y = two_meanings(1500, 0)
    reranked = carya.Reranked(carya.XRLinear(clusters_per_label=2, n_jobs=1, **SETTINGS), NeuralRanker()).fit(X, Y)
    pairs, labels = reranked.pairs(X[:20])
    (tree,) = reranked.members_
    assert tree.tree_.leaf_labels is not None
    first = np.searchsorted(tree.tree_.leaf_labels, labels)
    cluster = tree.tree_.parents[-1][first]
    above = carya.XRLinear.from_trained_tree(
        TrainedTree(carya.LabelTree(tree.tree_.parents[:-1]), tree.layers_[:-1], tree.widths_)
    )
    scores = above.predict_selected(X[:20], sp.csr_array(np.ones((20, above.n_labels_)))).toarray()
    query = np.repeat(np.arange(20), np.diff(pairs.offsets))
    np.testing.assert_allclose(np.exp(pairs.column("tree0.ancestor1")), scores[query, cluster], rtol=1e-3, atol=1e-6)


def test_a_given_tree_can_have_overlapping_clusters() -> None:
    X, Y = two_meanings(400, 5)
    topics = np.repeat(np.arange(TOPICS), PER_TOPIC)
    labels = np.concatenate([np.arange(TOPICS * PER_TOPIC), np.arange(PER_TOPIC)])
    clusters = np.concatenate([topics, np.full(PER_TOPIC, TOPICS - 1)])
    order = np.argsort(labels, kind="stable")
    tree = carya.LabelTree([np.zeros(TOPICS, int), clusters[order]], leaf_labels=labels[order])
    model = carya.XRLinear(tree=tree, beam_width=1).fit(X, Y)
    assert model.tree_ is tree
    assert model.score(X, Y) > 0.9


def test_leaves_are_added_in_clusters_that_the_matcher_selects() -> None:
    # Label 0 is in cluster 0, but the matcher selects cluster 1 for two of its four rows.
    tree = carya.LabelTree([[0, 0], [0, 0, 1, 1]])
    labels = Csr.of_scipy(sp.csr_array(np.array([[1, 0, 0, 0]] * 4 + [[0, 0, 1, 0]] * 2, np.float32)))
    matched = np.array([[0.9, 0.1], [0.8, 0], [0, 0.7], [0.1, 0.9], [0, 1], [0, 1]], np.float32)
    extended, assigned = add_leaves(tree, labels, Csr.of_scipy(sp.csr_array(matched)), clusters_per_label=2)
    assert extended.leaf_labels is not None
    assert extended.leaf_labels.tolist() == [0, 0, 1, 2, 3]
    assert extended.parents[-1].tolist() == [0, 1, 0, 1, 1]
    assert assigned.indices.tolist() == [0, 0, 1, 1, 3, 3]
    unmatched = Csr.of_scipy(sp.csr_array(matched * 0))
    unchanged, _ = add_leaves(tree, labels, unmatched, clusters_per_label=2)
    assert unchanged.leaf_labels is not None
    assert unchanged.leaf_labels.tolist() == [0, 1, 2, 3]
