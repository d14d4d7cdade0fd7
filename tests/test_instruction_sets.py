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


SEARCH = """
import sys
import numpy as np, scipy.sparse as sp
from carya.core import validation
from carya.core.matrices import Csr
from carya.trees.beam_search import Searcher
from carya.trees.layer import PRECISIONS, Layer, Weights
from carya.trees.transforms import Transform

def layer(clusters, each, rng, precision):
    nodes = clusters * each
    matrix = rng.standard_normal((60, nodes)) * (rng.random((60, nodes)) < rng.choice([0.01, 0.2, 1], (60, 1)))
    chunks = np.arange(0, nodes + 1, each)
    return Layer(
        weights=Weights.pack(Csr.of_scipy(sp.csr_array(matrix.astype(np.float32))), chunks, precision),
        dense=rng.standard_normal((nodes, 3)).astype(np.float32),
        offsets=rng.standard_normal(nodes).astype(np.float32),
        chunks=chunks,
        order=np.arange(nodes, dtype=np.int32),
        transform=Transform.named("l3-hinge"),
    )

out = {}
for clusters, each in ((5, 20), (60, 33), (90, 130), (300, 5), (1500, 2)):
    for precision in PRECISIONS:
        rng = np.random.default_rng(clusters)
        searcher = Searcher([layer(1, clusters, rng, precision), layer(clusters, each, rng, precision)])
        X = rng.standard_normal((40, 60)) * (rng.random((40, 60)) < 0.4)
        queries = validation.features((sp.csr_array(X.astype(np.float32)), rng.standard_normal((40, 3))))
        for width in (3, 12, 40, 70):
            _, labels, scores = searcher.predict(queries, top_k=4, beam_width=width, threads=1)
            out[f"{clusters}-{precision}-{width}-labels"] = labels
            out[f"{clusters}-{precision}-{width}-scores"] = scores
np.savez(sys.argv[1], **out)
"""


def test_all_sets_find_the_same(tmp_path: Path) -> None:
    """Blocks of all kinds, searched with each set: the same labels, and scores within rounding."""
    found = {}
    for isa in ("", "baseline", "avx2", "avx512"):
        file = tmp_path / f"{isa}.npz"
        subprocess.run([sys.executable, "-c", SEARCH, str(file)], env=os.environ | {"CARYA_ISA": isa}, check=True)
        with np.load(file) as arrays:
            found[isa] = {name: arrays[name] for name in arrays.files}
    for isa in ("baseline", "avx2", "avx512"):
        for name, want in found[""].items():
            if name.endswith("scores"):
                assert np.allclose(found[isa][name], want, rtol=2e-3, atol=1e-6), (isa, name)
            else:
                assert np.mean(found[isa][name] == want) > 0.98, (isa, name)  # near ties may change places


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
