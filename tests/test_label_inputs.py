"""Tests for label trees, graphs, shortlists and label features passed to ensembles, text rankers and commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data import SyntheticData
from carya.errors import InputError
from carya.ranking import NeuralRanker

from command_line import run
from matrix_helpers import same_arrays
from topics import TOPICS, corpus

_TREE: dict[str, Any] = {"branching": 4, "max_leaf_size": 8, "n_jobs": 1}


def arrays_of(model: Any) -> list[np.ndarray]:
    """Return the saved arrays of a model."""
    return list(model.to_saved().arrays.values())


def inputs(world: SyntheticData) -> dict[str, Any]:
    """Return a label graph, a shortlist, a tree and label features, keyed by parameter name."""
    rng = np.random.default_rng(0)
    n_labels = world.Y.shape[1]
    return {
        "label_graph": sp.csr_array((rng.random((n_labels, n_labels)) > 0.97).astype(np.float32)),
        "shortlist": sp.csr_array((rng.random(world.Y.shape) > 0.98).astype(np.float32)),
        "tree": carya.LabelTree.from_clusters([np.arange(n_labels) % 10], n_labels),
        "label_features": rng.standard_normal((n_labels, 5)).astype(np.float32),
    }


_USES: dict[str, dict[str, Any]] = {
    "label_graph": {"representation": "graph"},
    "shortlist": {"negatives": "teacher+given"},
    "tree": {},
    "label_features": {"representation": "lf"},
}


@pytest.mark.parametrize("name", _USES)
def test_ensembles_pass_inputs_to_the_members_that_use_them(name: str, world: SyntheticData) -> None:
    value = inputs(world)[name]
    user = carya.XRLinear(**_TREE, **_USES[name])
    other = carya.NearestNeighbors(n_neighbors=10, n_jobs=1)
    ensemble = carya.Ensemble([user, other]).fit(world.X, world.Y, **{name: value})
    if name == "tree":
        expected = user.clone(tree=value).fit(world.X, world.Y)
        assert ensemble.members_[0].tree_ == value
    else:
        expected = user.clone().fit(world.X, world.Y, **{name: value})
    assert same_arrays(arrays_of(ensemble.members_[0]), arrays_of(expected))
    learned = carya.Ensemble([user, other], weights="learned").fit(world.X, world.Y, **{name: value})
    assert same_arrays(arrays_of(learned.members_[0]), arrays_of(expected))
    reranked = carya.Reranked(user, NeuralRanker(epochs=1), n_jobs=1).fit(world.X, world.Y, **{name: value})
    assert same_arrays(arrays_of(reranked.members_[0]), arrays_of(expected))


def test_inputs_that_no_member_uses_are_refused(world: SyntheticData) -> None:
    given = inputs(world)
    neighbors = carya.NearestNeighbors(n_neighbors=10)
    for name, message in (
        ("label_graph", "label_graph is not used by any of the models. Omit it, or use a representation with 'graph'"),
        ("shortlist", "shortlist is not used by any of the models. Omit it, or use negatives with 'given'"),
        ("tree", "tree is not used by any of the models. Omit it, or use XRLinear models with tree=None"),
    ):
        with pytest.raises(InputError, match=message):
            carya.Ensemble([neighbors]).fit(world.X, world.Y, **{name: given[name]})
    with pytest.raises(InputError, match="tree must be a LabelTree or None, got list"):
        carya.Ensemble([carya.XRLinear()]).fit(world.X, world.Y, tree=[[0]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="The tree has 3 labels, but Y has 150"):
        carya.Ensemble([carya.XRLinear()]).fit(world.X, world.Y, tree=carya.LabelTree.flat(3))


def paths() -> dict[str, str]:
    """Map each label to its path in the label tree; the path consists only of the label's topic."""
    return {f"{topic}/{word}": topic for topic, words in TOPICS.items() for word in words.split()} | {
        topic: topic for topic in TOPICS
    }


def ranker(**parameters: Any) -> carya.TextRanker:
    return carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=1), carya.XRLinear(n_jobs=1, **parameters))


def test_text_rankers_take_trees_by_name() -> None:
    texts, labels = corpus(120)
    fitted = ranker().fit(texts, labels, tree=paths())
    tree = fitted.model_.tree_
    clusters = {label: cluster for label, cluster in zip(fitted.labels_, tree.clusters(1), strict=True)}  # noqa: C416
    assert tree.level_sizes == (1, 4, len(fitted.labels_))
    assert all(clusters[label] == clusters[label.partition("/")[0]] for label in fitted.labels_)
    assert ranker().fit(texts, labels, tree=tree).model_.tree_ == tree
    ensemble = carya.TextRanker(carya.Tfidf(min_df=1), carya.Ensemble(carya.XRLinear(n_jobs=1), n_trees=2))
    assert [member.tree_ for member in ensemble.fit(texts, labels, tree=paths()).model_.members_] == [tree, tree]
    with pytest.raises(InputError, match="tree contains none of the labels"):
        ranker().fit(texts, labels, tree={"x": "y"})
    with pytest.raises(InputError, match="tree is not used by any of the models"):
        carya.TextRanker(carya.Tfidf(min_df=1), carya.NearestNeighbors()).fit(texts, labels, tree=paths())


def test_text_rankers_take_graphs_by_name() -> None:
    texts, labels = corpus(120)
    edges: list[tuple[Any, ...]] = [(label, topic) for label, topic in paths().items() if label != topic]
    edges += [("chess", "sailing", 0.1), ("unknown", "chess")]
    settings = {"representation": "graph", "max_leaf_size": 9, "branching": 4, "clustering": "kmeans"}
    fitted = ranker(**settings).fit(texts, labels, label_graph=edges)
    clusters = fitted.model_.tree_.clusters(1)
    topics = [label.partition("/")[0] for label in fitted.labels_]
    for topic in TOPICS:  # the graph connects each topic with its words
        own = [cluster for cluster, other in zip(clusters, topics, strict=True) if other == topic]
        assert max(own.count(cluster) for cluster in own) >= 7
    for graph, message in (
        ([("a", "b", -1)], "The weights in label_graph must be finite numbers >= 0, got -1"),
        ([("a",)], r"label_graph must contain \(label, label\) or \(label, label, weight\) tuples"),
        ([("a", "b")], "label_graph contains no edges between known labels"),
        (np.eye(3), r"label_graph must be a list of \(label, label\) or \(label, label, weight\) tuples"),
    ):
        with pytest.raises(InputError, match=message):
            ranker(**settings).fit(texts, labels, label_graph=graph)


def test_text_rankers_take_shortlists_by_name() -> None:
    texts, labels = corpus(120)
    shortlist = [["chess", "unknown"] if number % 2 else [] for number in range(120)]
    settings: dict[str, Any] = {"negatives": "teacher+given", "max_leaf_size": 8, "branching": 4}
    fitted = ranker(**settings).fit(texts, labels, shortlist=shortlist)
    X, Y = fitted.vectorizer_.transform(texts), fitted.label_matrix(labels)
    expected = carya.XRLinear(n_jobs=1, **settings).fit(X, Y, shortlist=fitted.label_matrix(shortlist))
    assert same_arrays(arrays_of(fitted.model_), arrays_of(expected))
    with pytest.raises(InputError, match=r"shortlist must contain one list per text \(120\), got 1"):
        ranker(**settings).fit(texts, labels, shortlist=[["chess"]])


def test_text_rankers_rank_within_labels(tmp_path: Path) -> None:
    texts, labels = corpus(120)
    names = {topic: topic.capitalize() for topic in TOPICS}
    fitted = ranker(max_leaf_size=8, branching=4).fit(texts, labels, names=names, calibrate=True)
    allowed = ["chess", "Sailing", "cooking/oven"]
    suggestions = fitted.suggest(texts[0], labels=allowed, top_k=3)
    assert {suggestion.label for suggestion in suggestions} == {"chess", "sailing", "cooking/oven"}
    assert fitted.suggest_all([texts[0]] * 20, labels=allowed, top_k=3)[7] == suggestions
    assert fitted.predict(texts[:1], labels=allowed, top_k=3).nnz == 3
    other = fitted.suggest(texts[0], transform="sigmoid", beam_width=2)
    assert [suggestion.score for suggestion in other] != [s.score for s in fitted.suggest(texts[0], beam_width=2)]
    small = fitted.subset(allowed)
    small.save(tmp_path / "small")
    for smaller in (small, carya.load(tmp_path / "small")):
        assert list(smaller.labels_) == ["chess", "cooking/oven", "sailing"]
        assert smaller.label_names_[0] == "Chess"
        found = smaller.suggest(texts[0], top_k=3, beam_width=100)
        assert [suggestion.label for suggestion in found] == [suggestion.label for suggestion in suggestions]
        assert smaller.label_counts_ is not None
        assert fitted.label_counts_ is not None
        assert smaller.label_counts_[0] == fitted.label_counts_[list(fitted.labels_).index("chess")]
        assert smaller.calibration_ is not None
    for bad, message in (([], "labels is empty"), (["nope"], "Unknown label 'nope'"), ("chess", "must be a list")):
        with pytest.raises(InputError, match=message):
            fitted.suggest(texts[0], labels=bad)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, matrices, and the files that are passed as values of command-line options."""
    folder = tmp_path_factory.mktemp("files")
    texts, labels = corpus(120)
    lines = [json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True)]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tree.tsv").write_text("".join(f"{label}\t{path}\n" for label, path in paths().items()), encoding="utf-8")
    edges = [f"{label}\t{topic}\t0.5\n" for label, topic in paths().items() if label != topic]
    (folder / "graph.tsv").write_text("".join(edges), encoding="utf-8")
    (folder / "shortlist.txt").write_text("chess\tsailing\n\n" * 60, encoding="utf-8")
    (folder / "descriptions.tsv").write_text(
        "".join(f"{label}\t{label.replace('/', ' ')} {path}\n" for label, path in paths().items()), encoding="utf-8"
    )
    X, Y = carya.data.make_world(200, 24, seed=0)
    (folder / "matrices").mkdir()
    sp.save_npz(folder / "matrices" / "X.trn.npz", sp.csr_matrix(X))
    sp.save_npz(folder / "matrices" / "Y.trn.npz", sp.csr_matrix(Y))
    sp.save_npz(folder / "graph.npz", sp.csr_matrix(np.triu(np.ones((24, 24)), 12)))
    sp.save_npz(folder / "shortlist.npz", sp.csr_matrix(Y))
    np.save(folder / "features.npy", np.random.default_rng(0).random((24, 3)).astype(np.float32))
    (folder / "tree.txt").write_text("".join(f"group{label % 3}\n" for label in range(24)), encoding="utf-8")
    return folder


@pytest.mark.parametrize("trees", [[], ["--trees", "2"]])
def test_commands_train_with_files(files: Path, tmp_path: Path, trees: list[str]) -> None:
    for options, sizes in (
        (["--tree", str(files / "tree.tsv")], (1, 4, 36)),
        (["--label-graph", str(files / "graph.tsv"), "--representation", "graph", "--max-leaf-size", "9"], None),
        (["--shortlist", str(files / "shortlist.txt"), "--negatives", "teacher+given", "--max-leaf-size", "9"], None),
        (["--label-features", str(files / "descriptions.tsv"), "--representation", "lf", "--max-leaf-size", "9"], None),
    ):
        out = tmp_path / options[0][2:]
        result = run("train", str(files / "train.jsonl"), "-o", str(out), "--min-df", "1", *trees, *options)
        assert result.returncode == 0, result.stderr
        if sizes is not None:
            assert all(tree.tree_.level_sizes == sizes for tree in carya.load(out).trees_)
    for options, sizes in (
        (["--tree", str(files / "tree.txt")], (1, 3, 24)),
        (["--label-graph", str(files / "graph.npz"), "--representation", "graph", "--max-leaf-size", "9"], None),
        (["--shortlist", str(files / "shortlist.npz"), "--negatives", "given", "--max-leaf-size", "9"], None),
        (["--label-features", str(files / "features.npy"), "--representation", "lf", "--max-leaf-size", "9"], None),
    ):
        out = tmp_path / f"features{options[0]}"
        result = run("train", str(files / "matrices"), "-o", str(out), *trees, *options)
        assert result.returncode == 0, result.stderr
        if sizes is not None:
            model = carya.load(out)
            assert {tree.tree_.level_sizes for tree in getattr(model, "members_", [model])} == {sizes}


def test_commands_explain_wrong_files(files: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("chess\n", encoding="utf-8")
    for data, options, message in (
        ("train.jsonl", ["--tree", str(tmp_path / "bad.tsv")], "line 1: Expected 2 tab-separated columns"),
        ("train.jsonl", ["--label-graph", str(files / "graph.tsv")], "label_graph is not used"),
        ("train.jsonl", ["--tree", str(files / "tree.tsv"), "--preset", "slice"], "tree is not used"),
        (
            "train.jsonl",
            ["--tree", str(files / "tree.tsv"), "--model", "xr-transformer"],
            "--tree requires --model xr-linear",
        ),
        ("matrices", ["--label-graph", str(files / "graph.tsv")], "--label-graph must be an .npz or .npy file"),
        ("matrices", ["--shortlist", str(files / "shortlist.npz")], "--shortlist is not used by XRLinear"),
    ):
        result = run("train", str(files / data), "-o", str(tmp_path / "no"), "--min-df", "1", *options)
        if data == "matrices":
            result = run("train", str(files / data), "-o", str(tmp_path / "no"), *options)
        assert result.returncode == 2, result.stdout
        assert message in result.stderr


@pytest.mark.parametrize("representation", ["spectral", "graph"])
def test_embedding_dimensions(representation: str, world: SyntheticData, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**_TREE, "representation": representation}
    default = carya.XRLinear(**settings).fit(world.X, world.Y)
    same = carya.XRLinear(**settings, embedding_dimensions=24 if representation == "spectral" else 64)
    assert same.fit(world.X, world.Y).tree_ == default.tree_
    few = carya.XRLinear(**settings, embedding_dimensions=2).fit(world.X, world.Y)
    assert few.tree_ != default.tree_
    assert "embedding_dimensions" not in default.to_saved().parameters  # omitted, as in files of earlier versions
    few.save(tmp_path / "model")
    assert carya.load(tmp_path / "model").embedding_dimensions == 2
    trees = carya.Ensemble([carya.XRLinear(**settings), carya.XRLinear(**settings, embedding_dimensions=2)])
    assert [member.tree_ for member in trees.fit(world.X, world.Y).members_] == [default.tree_, few.tree_]
