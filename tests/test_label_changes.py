"""Tests for removing and renaming labels of a trained model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import carya
from carya.errors import InputError

from topics import corpus

TEXTS, LABELS = corpus(240)


def test_other_labels_keep_their_weights(tmp_path: Path) -> None:
    data = carya.data.generate_data(400, 40, labels_per_row=2.5, features_per_row=30, seed=3)
    model = carya.XRLinear(max_leaf_size=8, branching=4).fit(data.X, data.Y, label_names=[f"l{i}" for i in range(40)])
    before = model.layers_[-1].matrix().toarray()
    model.remove_labels(["l3", "l17"])
    kept = np.setdiff1d(np.arange(40), [3, 17])
    assert list(model.labels_) == [f"l{i}" for i in kept]
    assert np.array_equal(model.layers_[-1].matrix().toarray(), before[:, kept])
    model.rename_labels({"l0": "first"})
    model.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert list(loaded.labels_)[:2] == ["first", "l1"]
    with pytest.raises(InputError, match="already the names of other labels"):
        model.rename_labels({"l1": "l2"})
    with pytest.raises(InputError, match="At least one must remain"):
        model.remove_labels(list(model.labels_))


def test_text_rankers(tmp_path: Path) -> None:
    ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(TEXTS, LABELS, calibrate=2)
    best = ranker.suggest(TEXTS[0], top_k=100, beam_width=100)
    removed = best[0].label
    ranker.remove_labels([removed])
    rest = ranker.suggest(TEXTS[0], top_k=100, beam_width=100)
    assert [(found.label, found.score) for found in rest] == [(found.label, found.score) for found in best[1:]]
    ranker.rename_labels({rest[0].label: "A new name"})
    ranker.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert loaded.suggest(TEXTS[0])[0].name == "A new name"
    assert loaded.label_set_.number("A new name") == ranker.label_set_.number(rest[0].label)
    with pytest.raises(InputError, match="Unknown label"):
        ranker.remove_labels(["unknown"])
    with pytest.raises(InputError, match="At least one must remain"):
        ranker.remove_labels(list(ranker.labels_))
