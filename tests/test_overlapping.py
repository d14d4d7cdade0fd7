"""Clusters that overlap: a label is found wherever one of its meanings lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.core.matrices import Csr
from carya.errors import InputError, ModelFormatError, ParameterError
from carya.matching import overlapping_clusters
from carya.ranking import NeuralRanker

TOPICS, PER_TOPIC = 8, 6


def two_meanings(n_rows: int, seed: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Rows of topics, each with one label of its topic; half of those of the last topic have one of the first as well.

    A row has features of its topic, and one that says which of the labels of a topic it has.
    """
    rng = np.random.default_rng(seed)
    X = np.zeros((n_rows, TOPICS * 10 + PER_TOPIC), np.float32)
    Y = np.zeros((n_rows, TOPICS * PER_TOPIC), np.float32)
    for row in range(n_rows):
        topic, which = int(rng.integers(TOPICS)), int(rng.integers(PER_TOPIC))
        X[row, topic * 10 + rng.choice(10, 4, replace=False)] = 1
        X[row, TOPICS * 10 + which] = 2
        Y[row, topic * PER_TOPIC + which] = 1
        if topic == TOPICS - 1 and rng.random() < 0.5:
            Y[row, which] = 1
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_array(X), sp.csr_array(Y)


SETTINGS = {"branching": TOPICS, "max_leaf": PER_TOPIC, "beam_width": 1, "negatives": "teacher"}


@pytest.fixture(scope="module")
def model() -> carya.XRLinear:
    return carya.XRLinear(copies=2, n_jobs=1, **SETTINGS).fit(*two_meanings(1500, 0))


def test_both_meanings_are_found(model: carya.XRLinear) -> None:
    X, Y = two_meanings(500, 1)
    plain = carya.XRLinear(n_jobs=1, **SETTINGS).fit(*two_meanings(1500, 0))
    assert plain.tree_.leaf_labels is None
    assert len([label for label in range(PER_TOPIC) if len(model.tree_.leaves(label)) > 1]) >= PER_TOPIC // 2
    found, missed = (carya.metrics.recall(Y, one.predict(X, top_k=2), k=2) for one in (model, plain))
    assert found > missed + 0.02


def test_a_label_has_the_score_of_its_best_leaf(model: carya.XRLinear) -> None:
    X, _ = two_meanings(40, 2)
    labels = model.tree_.n_labels
    everything = sp.csr_array(np.ones((X.shape[0], labels)))
    scores = model.predict_selected(X, everything).toarray()
    wide = model.predict(X, top_k=labels, beam_width=TOPICS)
    assert np.array_equal(np.diff(wide.indptr), np.full(X.shape[0], labels))  # every label once
    np.testing.assert_allclose(wide.toarray(), scores, rtol=1e-5)
    leaves = carya.XRLinear.from_learned(  # the same layers, with the leaves as labels
        type(model._ready()[0])(carya.LabelTree(model.tree_.parents), model.layers_, model.widths_)
    )
    apart = leaves.predict_selected(X, sp.csr_array(np.ones((X.shape[0], model.tree_.level_sizes[-1])))).toarray()
    for label in range(labels):
        np.testing.assert_allclose(scores[:, label], apart[:, list(model.tree_.leaves(label))].max(axis=1), rtol=1e-4)
    few = model.predict(X, top_k=5, beam_width=TOPICS)
    for row in range(X.shape[0]):
        order = np.lexsort((np.arange(labels), -scores[row]))[:5]
        np.testing.assert_array_equal(few.indices[few.indptr[row] : few.indptr[row + 1]], order)


def test_explanations_follow_the_best_path(model: carya.XRLinear) -> None:
    X, _ = two_meanings(60, 3)
    for row in range(0, 60, 7):
        labels, scores = model.rank(X[[row]], top_k=1)
        why = model.explain(X[[row]], int(labels[0]))
        assert why.score == pytest.approx(float(scores[0]), rel=1e-4)
        assert np.exp(why.base + why.shares.sum()) == pytest.approx(why.score)


def test_saved_and_opened(model: carya.XRLinear, tmp_path: Path) -> None:
    X, _ = two_meanings(30, 4)
    model.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert opened.tree_ == model.tree_
    assert (opened.predict(X) != model.predict(X)).nnz == 0
    saved = model.to_saved()
    saved.arrays["leaf_labels"] = saved.arrays["leaf_labels"][::-1].copy()
    with pytest.raises(ModelFormatError, match="ascend"):
        carya.XRLinear.from_saved(saved)


@pytest.mark.parametrize(
    ("leaf_labels", "message"),
    [
        ([0, 1], "3 integers"),
        ([0.0, 1.0, 2.0], "3 integers"),
        ([0, 2, 3], "without gaps"),
        ([1, 1, 2], "without gaps"),
        ([0, 1, 0], "without gaps"),
        ([0, 1, 1], "twice in one cluster"),
    ],
)
def test_trees_that_cannot_be(leaf_labels: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        carya.LabelTree([[0, 0], [0, 1, 1]], leaf_labels=leaf_labels)


def test_what_overlaps_is_chosen_by_scores_that_say_how_sure_they_are() -> None:
    X, Y = two_meanings(100, 6)
    with pytest.raises(ParameterError, match="inner transforms"):
        carya.XRLinear(copies=2, transform=("noop", "l3-hinge")).fit(X, Y)


def test_a_ranker_of_pairs_sees_the_clusters_of_labels_not_of_leaves(model: carya.XRLinear) -> None:
    X, Y = two_meanings(1500, 0)
    made = carya.Reranked(carya.XRLinear(copies=2, n_jobs=1, **SETTINGS), NeuralRanker()).fit(X, Y)
    pairs, labels = made.pairs(X[:20])
    (tree,) = made.members_
    assert tree.tree_.leaf_labels is not None
    first = np.searchsorted(tree.tree_.leaf_labels, labels)
    cluster = tree.tree_.parents[-1][first]
    above = carya.XRLinear.from_learned(
        type(tree._ready()[0])(carya.LabelTree(tree.tree_.parents[:-1]), tree.layers_[:-1], tree.widths_)
    )
    scores = above.predict_selected(X[:20], sp.csr_array(np.ones((20, above.n_labels_)))).toarray()
    query = np.repeat(np.arange(20), np.diff(pairs.offsets))
    np.testing.assert_allclose(np.exp(pairs.column("tree0.above1")), scores[query, cluster], rtol=1e-3, atol=1e-6)


def test_a_tree_of_ones_own_may_overlap(tmp_path: Path) -> None:
    X, Y = two_meanings(400, 5)
    topics = np.repeat(np.arange(TOPICS), PER_TOPIC)
    labels = np.concatenate([np.arange(TOPICS * PER_TOPIC), np.arange(PER_TOPIC)])
    clusters = np.concatenate([topics, np.full(PER_TOPIC, TOPICS - 1)])
    order = np.argsort(labels, kind="stable")
    tree = carya.LabelTree([np.zeros(TOPICS, int), clusters[order]], leaf_labels=labels[order])
    model = carya.XRLinear(tree=tree, beam_width=1).fit(X, Y)
    assert model.tree_ is tree
    assert model.score(X, Y) > 0.9


def test_what_is_gained_decides() -> None:
    # Label 0 lies in cluster 0; of its four rows, two are brought to cluster 1 and not to 0.
    tree = carya.LabelTree([[0, 0], [0, 0, 1, 1]])
    labels = Csr.of_scipy(sp.csr_array(np.array([[1, 0, 0, 0]] * 4 + [[0, 0, 1, 0]] * 2, np.float32)))
    matched = np.array([[0.9, 0.1], [0.8, 0], [0, 0.7], [0.1, 0.9], [0, 1], [0, 1]], np.float32)
    found, assigned = overlapping_clusters.overlap(tree, labels, Csr.of_scipy(sp.csr_array(matched)), copies=2)
    assert found.leaf_labels is not None
    assert found.leaf_labels.tolist() == [0, 0, 1, 2, 3]
    assert found.parents[-1].tolist() == [0, 1, 0, 1, 1]
    assert assigned.indices.tolist() == [0, 0, 1, 1, 3, 3]
    again, _ = overlapping_clusters.overlap(tree, labels, Csr.of_scipy(sp.csr_array(matched[:, ::-1] * 0)), copies=2)
    assert again.leaf_labels is not None
    assert again.leaf_labels.tolist() == [0, 1, 2, 3]  # nothing is gained where nothing is matched
