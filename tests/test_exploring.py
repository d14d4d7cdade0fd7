"""A text ranker to look at, in worlds whose clusters and labels are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import carya
from carya import store
from carya.errors import InputError
from carya.text import naming
from carya.text.exploring import Explorer, compare

from topics import TOPICS, corpus

WORDS = " ".join(TOPICS.values()).split()


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    """Labels by topic, in a tree of their topics; every text of chess has another label too."""
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
def test_the_way_of_a_text(explorer: Explorer, words: list[str], width: int) -> None:
    text = " ".join(words)
    walk = explorer.walk(text, top_k=7, beam_width=width)
    best = explorer.ranker.suggest(text, top_k=7, beam_width=width)
    assert [(one.label.label, one.label.name, one.score) for one in walk.found] == [
        (one.label, one.name, one.score) for one in best
    ]
    (level,) = walk.levels
    assert len(level) == min(width, len(TOPICS))
    assert [one.score for one in level] == sorted((one.score for one in level), reverse=True)
    held = {one.cluster.node: one.score for one in level}
    for found in walk.found:
        why = explorer.ranker.explain(text, found.label.label)
        assert found.parent == why.levels[0].node
        assert held[found.parent] == pytest.approx(why.levels[0].score, rel=1e-4, abs=1e-9)
    assert walk.known == ((0, len(text)),) or len(words) > 1


def test_what_is_unknown_is_told(explorer: Explorer) -> None:
    text = "Rook, blarg takes a pawn"
    assert [text[a:b] for a, b in explorer.walk(text).known] == ["Rook", "pawn"]
    nothing = explorer.walk("blarg")
    assert (nothing.levels, nothing.found, nothing.known) == (((),), (), ())


def test_clusters_are_named_by_what_is_strongest(explorer: Explorer) -> None:
    counts = dict(zip(explorer.ranker.labels_, explorer.ranker.label_counts_.tolist(), strict=True))
    seen = set()
    for node in range(len(TOPICS)):
        cluster = explorer.cluster(1, node)
        (topic,) = {topic for topic in TOPICS for one in cluster.labels if topic in one.label}
        mine = [label for label in counts if topic in label]
        assert cluster.n_labels == len(mine)
        assert [one.count for one in cluster.labels] == sorted((counts[one] for one in mine), reverse=True)[:4]
        assert len(cluster.words) > 3
        assert set(" ".join(cluster.words).split()) <= set(TOPICS[topic].split())
        seen.add(topic)
    assert seen == set(TOPICS)


def test_large_levels_are_looked_at_node_by_node(ranker: carya.TextRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = naming.Namer(ranker)
    monkeypatch.setattr(naming, "_UNPACKED_AT_ONCE", 0)
    one_by_one = naming.Namer(ranker)
    for node in range(len(TOPICS)):
        words = one_by_one.words(1, node, most=100)
        assert sorted(words) == sorted(at_once.words(1, node, most=100))
    assert not one_by_one._words


def test_the_tree_holds_every_label_once(explorer: Explorer) -> None:
    root = explorer.branch()
    assert (root.n_children, root.labels, root.above) == (len(TOPICS), (), ())
    assert root.cluster.n_labels == len(explorer.ranker.labels_)
    seen = []
    for cluster in root.clusters:
        begin = 0
        while begin < (branch := explorer.branch(1, cluster.node, begin=begin, most=4)).n_children:
            assert [one.node for one in branch.above] == [0]
            assert len(branch.labels) <= 4
            seen += [one.label for one in branch.labels]
            begin += 4
        all_of_it = explorer.branch(1, cluster.node)
        assert [one.count for one in all_of_it.labels] == sorted((one.count for one in all_of_it.labels), reverse=True)
    assert sorted(seen) == list(explorer.ranker.labels_)


def test_a_label(explorer: Explorer) -> None:
    card = explorer.label("chess/rook")
    assert card.words_for[0][0] == "rook"
    assert [weight for _, weight in card.words_for] == sorted((weight for _, weight in card.words_for), reverse=True)
    assert all(weight < 0 for _, weight in card.words_against)
    assert (card.label.count, card.n_texts) == (
        explorer.ranker.label_counts_[explorer.ranker.known().number("chess/rook")],
        600,
    )
    assert [one.level for one in card.above] == [0, 1]
    assert card.words_for[0][1] == explorer._namer.weights(2, explorer.ranker.known().number("chess/rook")).max()
    twin, alike = explorer.label("Chess").nearest[0]
    assert twin.label == "also chess", "both are labels of the same texts"
    assert alike == pytest.approx(1, abs=0.01)
    assert "chess" not in {one.label for one, _ in explorer.label("Chess").nearest}


def test_why_is_what_the_ranker_says(explorer: Explorer) -> None:
    text = "a rook takes a pawn near the harbour"
    why, want = explorer.explain(text, "Chess"), explorer.ranker.explain(text, "chess").to_dict()
    clusters = [level.pop("cluster") for level in why["levels"]]
    assert why == want | {"chance": None, "count": explorer.label("chess").label.count}
    assert [one and one.level for one in clusters] == [1, None]
    assert "chess" in {one.label for one in clusters[0].labels}
    total = math.fsum([why["base"], *(one["share"] for one in why["terms"])])
    assert math.exp(total) == pytest.approx(why["score"], rel=1e-9)


def test_two_rankers(explorer: Explorer) -> None:
    text = "rook pawn queen telescope"
    same = compare(explorer, explorer, text, top_k=5)
    assert [row.ranks for row in same] == [(rank, rank) for rank in range(1, 6)]
    for row, one in zip(same, explorer.walk(text, top_k=5).found, strict=True):
        assert row.found[0] == row.found[1]
        assert row.found[0].score == pytest.approx(one.score, rel=1e-4)
    texts, labels = corpus(200)
    topics = [[label for label in row if "/" not in label] for row in labels]
    other = Explorer(carya.TextRanker(None, carya.XRLinear()).fit(texts, topics).calibrate(texts, topics))
    rows = compare(explorer, other, text, top_k=5)
    for row in rows:
        known = row.label.label in other.ranker.labels_
        assert (row.found[1] is not None) == known
        assert row.ranks[1] is None or known
        if row.found[1] is not None:
            why = other.ranker.explain(text, row.label.label)
            assert row.found[1].score == pytest.approx(why.score, rel=1e-3, abs=1e-9)
            assert row.found[1].chance == pytest.approx(other.ranker.calibration_([row.found[1].score])[0])
    assert {row.label.label for row in rows} >= set(TOPICS)
    assert [row.ranks[0] for row in rows[:5]] == [1, 2, 3, 4, 5]
    assert compare(explorer, other, "blarg") == ()


def test_models_that_do_not_count_or_name_terms(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    saved = store.load(tmp_path / "model")
    del saved.arrays["labels.counts"], saved.shape["texts"]
    store.save(tmp_path / "older", saved)
    older = Explorer(carya.load(tmp_path / "older"))
    assert older.label("chess").label.count is None
    assert len(older.cluster(1, 0).labels) == 4
    texts, labels = corpus(100)
    hashed = Explorer(carya.TextRanker(carya.Tfidf(buckets=500), carya.XRLinear(max_leaf=6)).fit(texts, labels))
    assert hashed.branch().clusters[0].words == ()
    assert hashed.label("chess").words_for == ()
    flat = Explorer(carya.TextRanker(None, carya.XRLinear(max_depth=1)).fit(texts, labels))
    assert flat.walk(texts[0]).levels == ()
    assert len(flat.branch().labels) == len(flat.ranker.labels_)


def test_terms_of_features(ranker: carya.TextRanker) -> None:
    texts, _ = corpus(50)
    for tfidf in (carya.Tfidf(), carya.Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 1), (2, 3)])):
        tfidf.fit(texts)
        names = tfidf.get_feature_names_out()
        assert [tfidf.term(feature) for feature in range(tfidf.n_features_)] == names.tolist()
        with pytest.raises(InputError, match="feature must be between 0 and"):
            tfidf.term(tfidf.n_features_)
    assert carya.Tfidf(buckets=9).fit(texts).term(3) is None


def test_what_cannot_be(explorer: Explorer) -> None:
    for call, message in [
        (lambda: explorer.branch(2, 0), "level must be between 0 and 1, got 2"),
        (lambda: explorer.branch(1, 9), "node must be between 0 and 3, got 9"),
        (lambda: explorer.label("ches"), "there is no label 'ches'"),
        (lambda: explorer.walk("rook", beam_width=0), "beam_width must be"),
        (lambda: explorer.walk(np.zeros(3)), "string"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(InputError, match=message):
            call()
