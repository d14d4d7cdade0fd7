from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.errors import ModelFormatError
from carya.models.xr_linear.import_pecos import import_pecos

GOLDEN = Path(__file__).parent / "golden" / "pecos"


@pytest.fixture
def answers():
    with np.load(GOLDEN / "answers.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("beam_width", [2, 10])
def test_it_ranks_as_libpecos_did(answers: dict, beam_width: int, tmp_path: Path) -> None:
    model = import_pecos(GOLDEN / "model")
    model.save(tmp_path / "model")
    queries = sp.csr_array(sp.load_npz(GOLDEN / "queries.npz"))
    for each in (model, carya.load(tmp_path / "model")):
        S = each.predict(queries, top_k=5, beam_width=beam_width)
        assert np.array_equal(S.indices.reshape(-1, 5), answers[f"labels{beam_width}"])
        assert np.allclose(S.data.reshape(-1, 5), answers[f"scores{beam_width}"], rtol=1e-5)


def test_what_is_imported() -> None:
    model = import_pecos(GOLDEN / "model")
    assert model.tree_.level_sizes == (1, 2, 4, 24)
    assert model.beam_width == 20  # libpecos' own default, kept in the model
    assert [layer.transform.name for layer in model.layers_] == ["l3-hinge"] * 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: shutil.rmtree(m / "ranker"), "it has no folder ranker/"),
        (lambda m: (m / "ranker" / "param.json").unlink(), "param.json cannot be read"),
        (lambda m: (m / "ranker" / "param.json").write_text("[]"), "does not hold parameters"),
        (lambda m: (m / "ranker" / "param.json").write_text('{"depth": "3"}'), "has no depth"),
        (lambda m: shutil.rmtree(m / "ranker" / "1.model"), "cannot be read"),
        (lambda m: (m / "ranker" / "1.model" / "W.npz").write_bytes(b"PK\3\4" + bytes(40)), "W.npz cannot be read"),
        (lambda m: truncate(m / "ranker" / "2.model" / "W.npz"), "W.npz cannot be read"),
        (
            lambda m: shutil.copy(m / "ranker" / "0.model" / "C.npz", m / "ranker" / "1.model" / "C.npz"),
            "is not an XR-Linear",
        ),
        (
            lambda m: shutil.copy(m / "ranker" / "0.model" / "W.npz", m / "ranker" / "1.model" / "W.npz"),
            "weights of shape",
        ),
        (lambda m: rewrite(m / "ranker" / "0.model" / "param.json", bias="one"), "is not an XR-Linear"),
        (lambda m: rewrite(m / "ranker" / "0.model" / "param.json", pred_kwargs={}), "is not an XR-Linear"),
    ],
)
def test_damaged_folders_are_refused(tmp_path: Path, damage, message: str) -> None:
    shutil.copytree(GOLDEN / "model", tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(ModelFormatError, match=message):
        import_pecos(tmp_path / "model")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
