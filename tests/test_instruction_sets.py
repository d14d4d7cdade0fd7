"""Every instruction set this processor has gives the same model, within rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import carya

CODE = """
import sys, carya
from carya import _core
from carya.data import make_world
X, Y = make_world(800, 90, seed=2)
dense = X.toarray()[:, :37].copy()
for name, data in (("sparse", X), ("pair", (X, dense))):
    carya.XRLinear(branching=3, max_leaf=9, tolerance=1e-4, max_passes=500, index_features=None).fit(data, Y).save(name)
print(_core.instruction_set())
"""


def train(isa: str, folder: Path) -> str:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"CARYA_ISA": isa},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_all_sets_agree(tmp_path: Path) -> None:
    best = train("", tmp_path / "best")
    ran = {best}
    for isa in ("baseline", "avx2", "avx512"):
        name = train(isa, tmp_path / isa)
        ran.add(name)
        for kind in ("sparse", "pair"):
            want, got = (carya.load(tmp_path / where / kind) for where in ("best", isa))
            assert got.tree_ == want.tree_
            for a, b in zip(got.layers_, want.layers_, strict=True):
                assert np.allclose(a.matrix().toarray(), b.matrix().toarray(), atol=0.02)
    if best == "avx512":
        assert ran == {"baseline", "avx2", "avx512"}


def test_an_unknown_set_falls_back(tmp_path: Path) -> None:
    assert train("quantum", tmp_path / "unknown") == "baseline"


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33, 100])
def test_dense_scores_of_all_lengths(size: int) -> None:
    """Odd lengths and the ends of vector loops, against NumPy."""
    rng = np.random.default_rng(size)
    X = rng.standard_normal((60, size + 1)).astype(np.float32)
    Y = (rng.random((60, 5)) < 0.4).astype(np.float32)
    model = carya.XRLinear(max_depth=1, transform="noop").fit(X, Y)
    want = np.hstack([X, np.ones((60, 1))]) @ model.layers_[0].matrix().toarray()
    got = model.predict_selected(X, np.ones((60, 5))).toarray()
    assert np.allclose(got, want, atol=1e-4)
