"""Tests for backward compatibility: models saved by earlier versions load and return the same rankings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya

from matrix_helpers import ranking_of

GOLDEN = Path(__file__).parent / "golden" / "model-kinds"
ANSWERS = json.loads((GOLDEN / "answers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.transformer if name == "xr-transformer" else ()) for name in sorted(ANSWERS)],
)
def test_saved_model_returns_the_stored_rankings(name: str) -> None:
    if name == "xr-transformer":
        pytest.importorskip("torch")
    model, expected = carya.load(GOLDEN / name), ANSWERS[name]
    if "texts" in expected:
        rankings = [
            [(suggestion.label, suggestion.score) for suggestion in suggestions]
            for suggestions in model.suggest_all(expected["texts"], top_k=4)
        ]
    else:
        with np.load(GOLDEN / "queries.npz") as arrays:
            shape = tuple(arrays["shape"])
            sparse = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
            S = model.predict(arrays["dense"] if name == "neighbors-graph" else sparse, top_k=4)
        rankings = [ranking_of(S, row) for row in range(5)]
    for ranking, stored in zip(rankings, expected["rankings"], strict=True):
        assert [label for label, _ in ranking] == [label for label, _ in stored]
        assert [score for _, score in ranking] == pytest.approx([score for _, score in stored], rel=1e-4, abs=1e-5)
