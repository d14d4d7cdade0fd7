"""Tests for exploring text rankers, on data with known clusters and labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import carya
from carya.core import storage
from carya.errors import InputError
from carya.models.interface import Model
from carya.models.reranked.column_views import first_columns_of_row
from carya.ranking import NeuralRanker
from carya.text.explore import cluster_names, tree_view
from carya.text.explore.cluster_names import ClusterNamer
from carya.text.explore.explorer import Explorer, compare

from topics import TOPICS, corpus, overlapping_tree

WORDS = " ".join(TOPICS.values()).split()


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    """A model with one cluster per topic; every training text about chess also has the label "also chess"."""
    texts, labels = corpus(600)
    labels = [row + ["also chess"] * ("chess" in row) for row in labels]
    ids = sorted({label for row in labels for label in row})
    paths = [next(topic for topic in TOPICS if topic in label) for label in ids]
    model = carya.XRLinear(tree=carya.LabelTree.from_paths(paths), beam_width=2)
    return carya.TextRanker(None, model).fit(texts, labels, names={"chess": "Chess"})


@pytest.fixture(scope="module")
def explorer(ranker: carya.TextRanker) -> Explorer:
    return Explorer(ranker)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), st.integers(1, 6))
def test_search_trace(explorer: Explorer, words: list[str], beam_width: int) -> None:
    text = " ".join(words)
    trace = explorer.search(text, top_k=7, beam_width=beam_width)
    best = explorer.ranker.suggest(text, top_k=7, beam_width=beam_width)
    assert [(scored.label.label, scored.label.name, scored.score) for scored in trace.labels] == [
        (suggestion.label, suggestion.name, suggestion.score) for suggestion in best
    ]
    (beam,) = trace.levels
    assert len(beam) == min(beam_width, len(TOPICS))
    assert [node.score for node in beam] == sorted((node.score for node in beam), reverse=True)
    scores = {node.cluster.node: node.score for node in beam}
    assert [(reached.label, reached.score) for reached in trace.reached] == [
        (scored.label, scored.score) for scored in trace.labels
    ]
    for reached in trace.reached:
        first_level = explorer.ranker.explain(text, reached.label.label).levels[0]
        assert reached.parent == first_level.node
        assert scores[reached.parent] == pytest.approx(first_level.score, rel=1e-4, abs=1e-9)
    assert trace.known_spans == ((0, len(text)),) or len(words) > 1


def test_known_spans(explorer: Explorer) -> None:
    text = "Rook, blarg takes a pawn"
    assert [text[begin:end] for begin, end in explorer.search(text).known_spans] == ["Rook", "pawn"]
    trace = explorer.search("blarg")
    assert (trace.levels, trace.labels, trace.known_spans) == (((),), (), ())


def test_clusters_are_described_by_frequent_labels_and_strong_terms(explorer: Explorer) -> None:
    assert explorer.ranker.label_counts_ is not None
    counts = dict(zip(explorer.ranker.labels_, explorer.ranker.label_counts_.tolist(), strict=True))
    described = set()
    for node in range(len(TOPICS)):
        (cluster,) = explorer.tree().clusters(1, [node])
        (topic,) = {topic for topic in TOPICS for label in cluster.labels if topic in label.label}
        of_topic = [label for label in counts if topic in label]
        assert cluster.n_labels == len(of_topic)
        most_frequent = sorted((counts[label] for label in of_topic), reverse=True)[:4]
        assert [label.count for label in cluster.labels] == most_frequent
        assert len(cluster.terms) > 3
        assert set(" ".join(cluster.terms).split()) <= set(TOPICS[topic].split())
        described.add(topic)
    assert described == set(TOPICS)


def test_terms_have_the_largest_weights(ranker: carya.TextRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ranker.trees_[0]
    terms = ranker.vectorizer_.get_feature_names_out()
    n_words, _ = ranker.vectorizer_.widths_  # character n-grams are not shown
    for level, nodes in {1: [0, 2, 3], 2: [1, 5, 17]}.items():
        weights = model.layers_[level - 1].matrix().toarray()[:-1]
        expected = []
        for node in nodes:
            order = np.argsort(-weights[:n_words, node], kind="stable")[: cluster_names._N_CANDIDATE_TERMS]
            positive = (terms[feature].removeprefix("word:") for feature in order if weights[feature, node] > 0)
            expected.append(cluster_names.select_distinct_terms(positive, 100))
            assert np.array_equal(
                ClusterNamer(ranker.text_trees_[0], ranker.label_set_).weights(level, node), weights[:, node]
            )
        assert ClusterNamer(ranker.text_trees_[0], ranker.label_set_).terms(level, nodes, limit=100) == expected
        with monkeypatch.context() as patch:
            patch.setattr(cluster_names, "_MAX_UNPACKED", 1)  # unpack one node at a time, as for very large levels
            assert ClusterNamer(ranker.text_trees_[0], ranker.label_set_).terms(level, nodes, limit=100) == expected
    assert ClusterNamer(ranker.text_trees_[0], ranker.label_set_).terms(0, [0]) == [[]]


def test_the_cluster_cache_is_bounded(ranker: carya.TextRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_view, "_MAX_CACHED_CLUSTERS", 2)
    view = tree_view.TreeView(ranker.text_trees_[0], ranker.label_set_)
    assert [cluster.node for cluster in view.clusters(1, [3, 0, 3])] == [3, 0, 3]
    assert len(view._clusters) == 2
    view.clusters(1, [1])
    assert len(view._clusters) == 1
    uncached = tree_view.TreeView(ranker.text_trees_[0], ranker.label_set_)
    assert view.clusters(1, range(4)) == uncached.clusters(1, range(4))


def test_the_tree_contains_every_label_once(explorer: Explorer) -> None:
    root = explorer.cluster_page()
    assert (root.n_children, root.labels, root.ancestors) == (len(TOPICS), (), ())
    assert root.cluster.n_labels == len(explorer.ranker.labels_)
    labels = []
    for cluster in root.clusters:
        begin = 0
        while begin < (page := explorer.cluster_page(1, cluster.node, begin=begin, limit=4)).n_children:
            assert [ancestor.node for ancestor in page.ancestors] == [0]
            assert len(page.labels) <= 4
            labels += [label.label for label in page.labels]
            begin += 4
        first_labels = explorer.cluster_page(1, cluster.node).labels
        counts = [label.count for label in first_labels if label.count is not None]
        assert counts == sorted(counts, reverse=True)
        assert len(counts) == len(first_labels)
    assert sorted(labels) == list(explorer.ranker.labels_)


def test_label_card(explorer: Explorer) -> None:
    card = explorer.label_card("chess/rook")
    (position,) = card.positions
    assert position.positive_terms[0][0] == "rook"
    weights = [weight for _, weight in position.positive_terms]
    assert weights == sorted(weights, reverse=True)
    assert all(weight < 0 for _, weight in position.negative_terms)
    number = explorer.labels.number("chess/rook")
    assert explorer.ranker.label_counts_ is not None
    assert (card.label.count, card.n_texts) == (explorer.ranker.label_counts_[number], 600)
    assert [ancestor.level for ancestor in position.ancestors] == [0, 1]
    assert weights[0] == explorer.tree()._namer.weights(2, number).max()
    similar = explorer.label_card("Chess").similar_labels
    assert similar[0].label.label == "also chess", "both labels occur in the same texts"
    assert similar[0].similarity == pytest.approx(1, abs=0.01)
    assert "chess" not in {other.label.label for other in similar}


def test_explanations_equal_those_of_the_ranker(explorer: Explorer) -> None:
    text = "a rook takes a pawn near the harbor"
    explanation = explorer.explain(text, "Chess")
    expected = explorer.ranker.explain(text, "chess").to_dict()
    clusters = [level.pop("cluster") for level in explanation["levels"]]  # type: ignore[misc]
    assert explanation == expected | {"probability": None, "count": explorer.label_card("chess").label.count}
    assert [cluster and cluster.level for cluster in clusters] == [1, None]
    assert clusters[0] is not None
    assert "chess" in {label.label for label in clusters[0].labels}
    total = math.fsum([explanation["base"], *(term["contribution"] for term in explanation["terms"])])
    assert math.exp(total) == pytest.approx(explanation["score"], rel=1e-9)


def test_comparison(explorer: Explorer) -> None:
    text = "rook pawn queen telescope"
    same = compare(explorer, explorer, text, top_k=5)
    assert [row.ranks for row in same] == [(rank, rank) for rank in range(1, 6)]
    for row, scored in zip(same, explorer.search(text, top_k=5).labels, strict=True):
        assert row.scores[0] is not None
        assert row.scores[0] == row.scores[1]
        assert row.scores[0].score == pytest.approx(scored.score, rel=1e-4)
    texts, labels = corpus(200)
    topics = [[label for label in row if "/" not in label] for row in labels]
    other = Explorer(carya.TextRanker(None, carya.XRLinear()).fit(texts, topics, calibrate=True))
    assert other.ranker.calibration_ is not None
    rows = compare(explorer, other, text, top_k=5)
    for row in rows:
        is_known = row.label.label in other.ranker.labels_
        assert (row.scores[1] is not None) == row.is_known[1] == is_known
        assert row.ranks[1] is None or is_known
        if row.scores[1] is not None:
            explanation = other.ranker.explain(text, row.label.label)
            assert row.scores[1].score == pytest.approx(explanation.score, rel=1e-3, abs=1e-9)
            assert row.scores[1].probability is not None
            assert 0 < row.scores[1].probability < 1
    assert {row.label.label for row in rows} >= set(TOPICS)
    assert [row.ranks[0] for row in rows[:5]] == [1, 2, 3, 4, 5]
    assert compare(explorer, other, "blarg") == ()


def test_models_without_counts_terms_or_clusters(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    saved = storage.load(tmp_path / "model")
    del saved.arrays["labels.counts"], saved.shape["texts"]
    storage.save(tmp_path / "without-counts", saved)
    without_counts = Explorer(carya.load(tmp_path / "without-counts"))
    assert without_counts.label_card("chess").label.count is None
    assert len(without_counts.tree().clusters(1, [0])[0].labels) == 4
    texts, labels = corpus(100)
    hashed = Explorer(carya.TextRanker(carya.Tfidf(n_buckets=500), carya.XRLinear(max_leaf_size=6)).fit(texts, labels))
    assert hashed.cluster_page().clusters[0].terms == ()
    assert hashed.label_card("chess").positions[0].positive_terms == ()
    flat = Explorer(carya.TextRanker(None, carya.XRLinear(max_depth=1)).fit(texts, labels))
    assert flat.search(texts[0]).levels == ()
    assert len(flat.cluster_page().labels) == len(flat.ranker.labels_)


def test_terms_of_features(ranker: carya.TextRanker) -> None:
    texts, _ = corpus(50)
    for tfidf in (carya.Tfidf(), carya.Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 1), (2, 3)])):
        tfidf.fit(texts)
        names = tfidf.get_feature_names_out()
        assert [tfidf.term(feature) for feature in range(tfidf.n_features_)] == names.tolist()
        with pytest.raises(InputError, match="feature must be between 0 and"):
            tfidf.term(tfidf.n_features_)
    assert carya.Tfidf(n_buckets=9).fit(texts).term(3) is None


@pytest.fixture(scope="module")
def overlapping() -> Explorer:
    """A model in which chess/queen belongs to the chess and cooking clusters, with different terms in each."""
    texts, labels = corpus(300)
    cooking = [text for text, row in zip(texts, labels, strict=True) if "cooking" in row]
    texts = [*texts, *(f"{text} royal" for text in cooking)]
    labels = [*labels, *(["chess/queen", "cooking"] for _ in cooking)]
    ids = sorted({label for row in labels for label in row})
    return Explorer(carya.TextRanker(None, carya.XRLinear(tree=overlapping_tree(ids), beam_width=4)).fit(texts, labels))


def test_a_label_in_several_clusters(overlapping: Explorer) -> None:
    topics = sorted(TOPICS)
    chess, cooking = topics.index("chess"), topics.index("cooking")
    parents = set()
    for text in ("rook takes queen, checkmate", "flour and butter in the oven", *corpus(40, seed=5)[0]):
        trace = overlapping.search(text, top_k=40)
        (queen,) = [reached for reached in trace.reached if reached.label.label == "chess/queen"]
        first_level = overlapping.explain(text, "chess/queen")["levels"][0]
        assert first_level["cluster"] is not None
        assert queen.parent == first_level["node"] == first_level["cluster"].node
        assert len({reached.label.label for reached in trace.reached}) == len(trace.reached)
        parents.add(queen.parent)
        narrow = overlapping.search(text, beam_width=1, top_k=40)
        assert {reached.parent for reached in narrow.reached} == {narrow.levels[0][0].cluster.node}
    assert parents == {chess, cooking}
    for node in (chess, cooking):
        page = overlapping.cluster_page(1, node)
        assert "chess/queen" in {label.label for label in page.labels}
        assert page.cluster.n_labels == page.n_children == len(page.labels)
    assert overlapping.cluster_page().cluster.n_labels == len(overlapping.ranker.labels_)
    card = overlapping.label_card("chess/queen")
    nodes = [[ancestor.node for ancestor in position.ancestors] for position in card.positions]
    assert nodes == [[0, chess], [0, cooking]]
    assert card.positions[0].positive_terms != card.positions[1].positive_terms
    assert card.similar_labels
    namer = ClusterNamer(overlapping.ranker.text_trees_[0], overlapping.labels)
    namer._counts = None
    assert overlapping.labels.counts is not None
    assert namer.label_importance.shape == overlapping.labels.counts.shape


def test_every_kind_of_model(explorer: Explorer) -> None:
    texts, labels = corpus(200)
    base = carya.XRLinear(max_leaf_size=8, branching=2)
    text = "rook pawn queen telescope"
    models: list[tuple[Model, int]] = [
        (carya.Ensemble(base, n_trees=2), 2),
        (carya.Ensemble([base, carya.NearestNeighbors()]), 1),
        (carya.Ensemble([carya.Ensemble(base, n_trees=2), base]), 3),
        (carya.Reranked(base, NeuralRanker()), 1),
        (carya.NearestNeighbors(), 0),
        (carya.NearestNeighbors(over="rows"), 0),
    ]
    for model, n_trees in models:
        other = Explorer(carya.TextRanker(None, model).fit(texts, labels, calibrate=True))
        assert len(other.ranker.trees_) == n_trees
        trace = other.search(text, top_k=5, tree=max(0, n_trees - 1))
        assert [(scored.label.label, scored.score) for scored in trace.labels] == [
            (suggestion.label, suggestion.score) for suggestion in other.ranker.suggest(text, top_k=5)
        ]
        assert all(scored.probability is not None and 0 < scored.probability < 1 for scored in trace.labels)
        card = other.label_card("chess")
        assert (card.label.name, len(card.positions)) == ("chess", min(n_trees, 1))
        assert card.label.count is not None
        for pair in ((other, explorer), (explorer, other)):
            side = pair.index(other)
            for row in compare(*pair, text, top_k=3):
                assert row.is_known[side] == (row.label.label in other.ranker.labels_)
                can_score = row.is_known[side] and other.ranker.scores_any_label
                assert (row.scores[side] is not None) == (row.ranks[side] is not None or can_score)
        if not n_trees:
            assert (trace.levels, trace.reached, trace.beam_width) == ((), (), None)
            with pytest.raises(
                InputError,
                match="NearestNeighbors models have no label tree",
            ):
                other.cluster_page()
            with pytest.raises(
                InputError,
                match="NearestNeighbors models have no label tree",
            ):
                other.explain(text, "chess")
            continue
        tree = other.ranker.trees_[n_trees - 1]
        (vectorizer,) = other.ranker.vectorizers_
        query = first_columns_of_row(*vectorizer.row(text), tree.widths_[0], vectorizer.n_features_)
        assert [reached.score for reached in trace.reached] == tree.rank_sparse(*query, top_k=5)[1].tolist()
        explanation = other.explain(text, "chess", tree=n_trees - 1)
        assert explanation["probability"] is None, "calibration applies only to the scores of the whole model"
        x = sparse.csr_array((query[1], query[0], [0, query[0].size]), shape=(1, tree.widths_[0]))
        assert explanation["score"] == tree.explain(x, other.labels.number("chess")).score
        assert other.cluster_page(tree=n_trees - 1).cluster.n_labels == len(other.ranker.labels_)
        with pytest.raises(InputError, match=f"tree must be between 0 and {n_trees - 1}, got {n_trees}"):
            other.search(text, tree=n_trees)
        with pytest.raises(InputError, match=f"tree must be between 0 and {n_trees - 1}, got -1"):
            other.ranker.explain(text, "chess", tree=-1)
    with pytest.raises(InputError, match="NearestNeighbors models can score only the labels that a search returns"):
        other.score_labels(text, ["chess"])


def test_invalid_arguments(explorer: Explorer) -> None:
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: explorer.cluster_page(2, 0), "level must be between 0 and 1, got 2"),
        (lambda: explorer.cluster_page(1, 9), "node must be between 0 and 3, got 9"),
        (lambda: explorer.label_card("ches"), r"Unknown label 'ches'\. Did you mean 'Chess'"),
        (lambda: explorer.search("rook", beam_width=0), "beam_width must be"),
        (lambda: explorer.search(np.zeros(3)), "string"),  # type: ignore[arg-type]
    ]
    for call, message in calls:
        with pytest.raises(InputError, match=message):
            call()
