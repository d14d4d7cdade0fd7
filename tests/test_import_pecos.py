"""Tests for importing libpecos models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.errors import ModelFormatError
from carya.models.xr_linear.import_pecos import import_pecos

GOLDEN = Path(__file__).parent / "golden" / "pecos"


@pytest.fixture
def answers() -> dict[str, np.ndarray]:
    """The labels and scores that libpecos returned for beam widths 2 and 10."""
    with np.load(GOLDEN / "answers.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("beam_width", [2, 10])
def test_an_imported_model_ranks_like_libpecos(answers: dict[str, np.ndarray], beam_width: int, tmp_path: Path) -> None:
    model = import_pecos(GOLDEN / "model")
    model.save(tmp_path / "model")
    queries = sp.csr_array(sp.load_npz(GOLDEN / "queries.npz"))
    for imported in (model, carya.load(tmp_path / "model")):
        S = imported.predict(queries, top_k=5, beam_width=beam_width)
        assert np.array_equal(S.indices.reshape(-1, 5), answers[f"labels{beam_width}"])
        assert np.allclose(S.data.reshape(-1, 5), answers[f"scores{beam_width}"], rtol=1e-5)


def test_tree_beam_width_and_transforms_are_imported() -> None:
    model = import_pecos(GOLDEN / "model")
    assert model.tree_.level_sizes == (1, 2, 4, 24)
    assert model.beam_width == 20  # libpecos's default, which is stored in the model
    assert [layer.transform.name for layer in model.layers_] == ["l3-hinge"] * 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda model: shutil.rmtree(model / "ranker"), "the folder ranker/ is missing"),
        (lambda model: (model / "ranker" / "param.json").unlink(), "param.json cannot be read"),
        (lambda model: (model / "ranker" / "param.json").write_text("[]"), "does not contain a JSON object"),
        (
            lambda model: (model / "ranker" / "param.json").write_text('{"depth": "3"}'),
            "has no valid value for 'depth'",
        ),
        (lambda model: shutil.rmtree(model / "ranker" / "1.model"), "cannot be read"),
        (
            lambda model: (model / "ranker" / "1.model" / "W.npz").write_bytes(b"PK\3\4" + bytes(40)),
            "W.npz cannot be read",
        ),
        (lambda model: truncate(model / "ranker" / "2.model" / "W.npz"), "W.npz cannot be read"),
        (
            lambda model: shutil.copy(model / "ranker" / "0.model" / "C.npz", model / "ranker" / "1.model" / "C.npz"),
            "is not a libpecos XR-Linear",
        ),
        (
            lambda model: shutil.copy(model / "ranker" / "0.model" / "W.npz", model / "ranker" / "1.model" / "W.npz"),
            "weights of shape",
        ),
        (lambda model: rewrite(model / "ranker" / "0.model" / "param.json", bias="one"), "is not a libpecos XR-Linear"),
        (
            lambda model: rewrite(model / "ranker" / "0.model" / "param.json", nr_features=float("inf")),
            "is not a libpecos XR-Linear",
        ),
        (lambda model: (model / "ranker" / "param.json").write_text("[" * 10**5), "param.json cannot be read"),
        (lambda model: (model / "ranker" / "param.json").write_text("9" * 5000), "param.json cannot be read"),
        (
            lambda model: rewrite(model / "ranker" / "0.model" / "param.json", pred_kwargs={}),
            "is not a libpecos XR-Linear",
        ),
    ],
)
def test_damaged_folders_are_rejected(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    shutil.copytree(GOLDEN / "model", tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(ModelFormatError, match=message):
        import_pecos(tmp_path / "model")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
