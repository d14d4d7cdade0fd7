"""Tests for ranking the labels of a vocabulary that have no training texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya.errors import InputError
from carya.ranking import NeuralRanker
from carya.text.labels import add_unseen_labels, training_labels

from command_line import run
from topics import corpus

TEXTS, LABELS = corpus(200)
NAMES = {"unseen:1": "submarine navigation", "unseen:2": "volcanic eruptions"}
QUERY = "an eruption of a volcano, and other volcanic eruptions"


def models() -> list[Any]:
    tree = carya.XRLinear(max_leaf_size=6, label_row_weight=1.0, n_jobs=1)
    return [
        tree,
        carya.Ensemble(tree, n_trees=2, n_jobs=1),
        carya.Reranked(tree.clone(label_row_weight=0.0), NeuralRanker(epochs=3), n_jobs=1),
    ]


def names_of(labels: list[list[str]]) -> dict[str, str]:
    return {label: label for own in labels for label in own} | NAMES


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_unseen_labels_are_ranked_by_their_names(model: Any, tmp_path: Path) -> None:
    names = names_of(LABELS)
    # The words of the names must occur in the training texts, because other words are not features.
    texts = [f"{text} volcanic eruptions" if row % 10 == 0 else text for row, text in enumerate(TEXTS)]
    ranker = carya.TextRanker(model=model, n_jobs=1).fit(texts, LABELS, names=names, vocabulary=list(NAMES))
    assert list(ranker.labels_) == sorted({*names})
    assert ranker.label_set_.counts is not None
    assert ranker.label_set_.counts[list(ranker.labels_).index("unseen:2")] == 0
    assert "unseen:2" in [suggestion.label for suggestion in ranker.suggest(QUERY, top_k=10)]
    ranker.save(tmp_path / "model")
    assert carya.load(tmp_path / "model").suggest(QUERY, top_k=10) == ranker.suggest(QUERY, top_k=10)


def test_models_that_cannot_rank_unseen_labels_are_refused() -> None:
    for model in (carya.XRLinear(), carya.NearestNeighbors(over="rows"), carya.Ensemble(carya.XRLinear(), n_trees=2)):
        with pytest.raises(
            InputError, match=r"cannot rank labels without training texts\. Use the preset accurate, or"
        ):
            carya.TextRanker(model=model).fit(TEXTS, LABELS, vocabulary=list(NAMES))


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ("unseen:1", "vocabulary must be a list of strings, got 'unseen:1'"),
        (7, "vocabulary must be a list of strings, got 7"),
        (["unseen:1", 7], "vocabulary must contain only strings, got 7"),
    ],
)
def test_invalid_vocabularies_are_refused(vocabulary: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        carya.TextRanker(model=models()[0]).fit(TEXTS, LABELS, vocabulary=vocabulary)


def test_known_labels_keep_their_rows() -> None:
    Y, ids = training_labels([["b", "d"], [], ["d"]])
    extended, all_ids = add_unseen_labels(Y, ids, ["e", "b", "a", "a"])
    assert all_ids == ["a", "b", "d", "e"]
    assert np.array_equal(extended.to_scipy().toarray(), [[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]])
    Y, ids = training_labels(np.eye(12))
    extended, all_ids = add_unseen_labels(Y, ids, ["1a"])
    assert all_ids == [*map(str, range(12)), "1a"]  # "10" precedes "2" in sorted order
    assert np.array_equal(extended.to_scipy().toarray(), np.eye(12, 13))
    assert add_unseen_labels(Y, ids, None) == (Y, ids)


def test_command_line(tmp_path: Path) -> None:
    lines = (json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, LABELS, strict=True))
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "names.tsv").write_text("".join(f"<{label}>\t{name}\n" for label, name in names_of(LABELS).items()))
    train = ["train", "train.jsonl", "-o", "model", "--force", "--label-row-weight", "1"]
    assert run(*train, "--vocabulary", "names.tsv", cwd=tmp_path).returncode == 0
    n_seen = len(carya.load(tmp_path / "model").labels_)
    result = run(*train, "--vocabulary", "names.tsv", "--unseen-labels", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(carya.load(tmp_path / "model").labels_) == n_seen + len(NAMES)
    result = run(*train, "--unseen-labels", cwd=tmp_path)
    assert result.returncode == 2
    assert "--unseen-labels requires --vocabulary" in result.stderr
    result = run(*train[:-1], "0", "--vocabulary", "names.tsv", "--unseen-labels", cwd=tmp_path)
    assert result.returncode != 0
    assert "cannot rank labels without training texts" in result.stderr
