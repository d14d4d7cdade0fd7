"""A text ranker to look at, in worlds whose clusters and labels are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import carya
from carya.core import storage
from carya.errors import InputError
from carya.models.reranked.column_views import first_of_row
from carya.ranking import NeuralRanker
from carya.text.explore import cluster_names, tree_view
from carya.text.explore.explorer import Explorer, compare

from topics import TOPICS, corpus, overlapping_tree

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
    assert [(one.label, one.score) for one in walk.reached] == [(one.label, one.score) for one in walk.found]
    for one in walk.reached:
        why = explorer.ranker.explain(text, one.label.label)
        assert one.parent == why.levels[0].node
        assert held[one.parent] == pytest.approx(why.levels[0].score, rel=1e-4, abs=1e-9)
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
        (cluster,) = explorer.tree().clusters(1, [node])
        (topic,) = {topic for topic in TOPICS for one in cluster.labels if topic in one.label}
        mine = [label for label in counts if topic in label]
        assert cluster.n_labels == len(mine)
        assert [one.count for one in cluster.labels] == sorted((counts[one] for one in mine), reverse=True)[:4]
        assert len(cluster.words) > 3
        assert set(" ".join(cluster.words).split()) <= set(TOPICS[topic].split())
        seen.add(topic)
    assert seen == set(TOPICS)


def test_words_are_those_of_the_largest_weights(ranker: carya.TextRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ranker.trees_[0]
    terms = ranker.vectorizer_.get_feature_names_out()
    nodes = {1: [0, 2, 3], 2: [1, 5, 17]}
    for level, some in nodes.items():
        weights = model.layers_[level - 1].matrix().toarray()[:-1]
        want = []
        for node in some:
            order = np.argsort(-weights[:, node], kind="stable")[: cluster_names._KEPT]
            want.append(cluster_names.distinct((terms[one] for one in order if weights[one, node] > 0), 100))
            assert np.array_equal(cluster_names.Namer(ranker, model).weights(level, node), weights[:, node])
        assert cluster_names.Namer(ranker, model).words(level, some, most=100) == want
        monkeypatch.setattr(cluster_names, "_UNPACKED_AT_ONCE", 1)  # as where a level has very many weights: one by one
        assert cluster_names.Namer(ranker, model).words(level, some, most=100) == want
        monkeypatch.undo()
    assert cluster_names.Namer(ranker, model).words(0, [0]) == [[]]


def test_clusters_are_forgotten_within_bounds(ranker: carya.TextRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_view, "_CLUSTERS", 2)
    view = tree_view.TreeView(ranker, ranker.trees_[0])
    assert [one.node for one in view.clusters(1, [3, 0, 3])] == [3, 0, 3]
    assert view.clusters(1, range(4)) == tree_view.TreeView(ranker, ranker.trees_[0]).clusters(1, range(4))
    view.clusters(1, [1])
    assert len(view._notes) <= len(TOPICS)


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
    (place,) = card.places
    assert place.words_for[0][0] == "rook"
    assert [weight for _, weight in place.words_for] == sorted((weight for _, weight in place.words_for), reverse=True)
    assert all(weight < 0 for _, weight in place.words_against)
    assert (card.label.count, card.n_texts) == (
        explorer.ranker.label_counts_[explorer.ranker.known().number("chess/rook")],
        600,
    )
    assert [one.level for one in place.above] == [0, 1]
    number = explorer.ranker.known().number("chess/rook")
    assert place.words_for[0][1] == explorer.tree()._namer.weights(2, number).max()
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
    saved = storage.load(tmp_path / "model")
    del saved.arrays["labels.counts"], saved.shape["texts"]
    storage.save(tmp_path / "older", saved)
    older = Explorer(carya.load(tmp_path / "older"))
    assert older.label("chess").label.count is None
    assert len(older.tree().clusters(1, [0])[0].labels) == 4
    texts, labels = corpus(100)
    hashed = Explorer(carya.TextRanker(carya.Tfidf(buckets=500), carya.XRLinear(max_leaf=6)).fit(texts, labels))
    assert hashed.branch().clusters[0].words == ()
    assert hashed.label("chess").places[0].words_for == ()
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


@pytest.fixture(scope="module")
def overlapping() -> Explorer:
    """The queen is in chess and in the kitchen; every label of it has words of its own there."""
    texts, labels = corpus(300)
    kitchen = [text for text, row in zip(texts, labels, strict=True) if "cooking" in row]
    texts = [*texts, *(f"{text} royal" for text in kitchen)]
    labels = [*labels, *(["chess/queen", "cooking"] for _ in kitchen)]
    ids = sorted({label for row in labels for label in row})
    return Explorer(carya.TextRanker(None, carya.XRLinear(tree=overlapping_tree(ids), beam_width=4)).fit(texts, labels))


def test_a_label_in_several_clusters(overlapping: Explorer) -> None:
    topics = sorted(TOPICS)
    chess, kitchen = topics.index("chess"), topics.index("cooking")
    seen = set()
    for text in ("rook takes queen, checkmate", "flour and butter in the oven", *corpus(40, seed=5)[0]):
        walk = overlapping.walk(text, top_k=40)
        (queen,) = [one for one in walk.reached if one.label.label == "chess/queen"]
        why = overlapping.explain(text, "chess/queen")
        assert queen.parent == why["levels"][0]["node"] == why["levels"][0]["cluster"].node
        assert len({one.label.label for one in walk.reached}) == len(walk.reached)
        seen.add(queen.parent)
        narrow = overlapping.walk(text, beam_width=1, top_k=40)
        assert {one.parent for one in narrow.reached} == {narrow.levels[0][0].cluster.node}, "what the beam held"
    assert seen == {chess, kitchen}
    for node in (chess, kitchen):
        inside = overlapping.branch(1, node)
        assert "chess/queen" in {one.label for one in inside.labels}
        assert inside.cluster.n_labels == inside.n_children == len(inside.labels)
    assert overlapping.branch().cluster.n_labels == len(overlapping.ranker.labels_)
    card = overlapping.label("chess/queen")
    assert [[one.node for one in place.above] for place in card.places] == [[0, chess], [0, kitchen]]
    assert card.places[0].words_for != card.places[1].words_for
    assert card.nearest
    counted = overlapping.ranker.known()
    weight = cluster_names.Namer(overlapping.ranker, overlapping.ranker.trees_[0])
    weight._counts = None
    assert weight.weight_of_label.shape == counted.counts.shape


def test_any_ranker_can_be_looked_at(explorer: Explorer) -> None:
    texts, labels = corpus(200)
    base = carya.XRLinear(max_leaf=8, branching=2)
    text = "rook pawn queen telescope"
    for model, trees in [
        (carya.Ensemble(base, n_trees=2), 2),
        (carya.Ensemble([base, carya.NearestNeighbours()]), 1),
        (carya.Ensemble([carya.Ensemble(base, n_trees=2), base]), 3),
        (carya.Reranked(base, NeuralRanker()), 1),
        (carya.NearestNeighbours(), 0),
        (carya.NearestNeighbours(over="rows"), 0),
    ]:
        looked = Explorer(carya.TextRanker(None, model).fit(texts, labels).calibrate(texts, labels))
        assert len(looked.ranker.trees_) == trees
        walk = looked.walk(text, top_k=5, tree=max(0, trees - 1))
        assert [(one.label.label, one.score) for one in walk.found] == [
            (one.label, one.score) for one in looked.ranker.suggest(text, top_k=5)
        ]
        assert all(0 < one.chance < 1 for one in walk.found)
        card = looked.label("chess")
        assert (card.label.name, len(card.places)) == ("chess", min(trees, 1))
        assert card.label.count is not None
        for pair in ((looked, explorer), (explorer, looked)):
            rows = compare(*pair, text, top_k=3)
            side = pair.index(looked)
            for row in rows:
                assert row.known[side] == (row.label.label in looked.ranker.labels_)
                assert (row.found[side] is not None) == (
                    row.ranks[side] is not None or (row.known[side] and looked.scores_any_label)
                )
        if not trees:
            assert (walk.levels, walk.reached, walk.beam_width) == ((), (), None)
            for call in (looked.branch, lambda: looked.explain(text, "chess")):  # noqa: B023
                with pytest.raises(InputError, match="kind NearestNeighbours has no label tree to look at"):
                    call()
            continue
        tree = looked.ranker.trees_[trees - 1]
        vectorizer = looked.ranker.vectorizer_
        seen = first_of_row(*vectorizer.row(text), tree.widths_[0], vectorizer.n_features_)
        assert [one.score for one in walk.reached] == tree.rank_sparse(*seen, top_k=5)[1].tolist()
        why = looked.explain(text, "chess", tree=trees - 1)
        assert why["chance"] is None, "that is known of scores of the whole model only"
        x = sparse.csr_array((seen[1], seen[0], [0, seen[0].size]), shape=(1, tree.widths_[0]))
        assert why["score"] == tree.explain(x, looked.ranker.known().number("chess")).score
        assert looked.branch(tree=trees - 1).cluster.n_labels == len(looked.ranker.labels_)
        with pytest.raises(InputError, match=f"tree must be between 0 and {trees - 1}, got {trees}"):
            looked.walk(text, tree=trees)
        with pytest.raises(InputError, match=f"tree must be between 0 and {trees - 1}, got -1"):
            looked.ranker.explain(text, "chess", tree=-1)
    with pytest.raises(InputError, match="scores only labels that it finds"):
        looked.scores(text, ["chess"])


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
