"""Tests for instruction sets: all of them produce the same models and rankings, up to rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import carya

INSTRUCTION_SETS = ("baseline", "avx2", "avx512")

TRAIN = """
import carya
from carya import _core
from carya.data import make_world
X, Y = make_world(800, 90, seed=2)
dense = X.toarray()[:, :37].copy()
for name, data in (("sparse", X), ("pair", (X, dense))):
    carya.XRLinear(branching=3, max_leaf_size=9, tol=1e-4, max_iter=500, index_features=None).fit(data, Y).save(name)
print(_core.instruction_set())
"""


def train(instruction_set: str, folder: Path) -> str:
    """Train models in a subprocess with the given CARYA_ISA, and return the instruction set that it used."""
    folder.mkdir()
    process = subprocess.run(
        [sys.executable, "-c", TRAIN],
        env=os.environ | {"CARYA_ISA": instruction_set},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout.strip()


def test_all_instruction_sets_train_the_same_models(tmp_path: Path) -> None:
    fastest = train("", tmp_path / "fastest")
    used = {fastest}
    for instruction_set in INSTRUCTION_SETS:
        used.add(train(instruction_set, tmp_path / instruction_set))
        for kind in ("sparse", "pair"):
            expected, actual = (carya.load(tmp_path / folder / kind) for folder in ("fastest", instruction_set))
            assert actual.tree_ == expected.tree_
            for a, b in zip(actual.layers_, expected.layers_, strict=True):
                assert np.allclose(a.matrix().toarray(), b.matrix().toarray(), atol=0.02)
    if fastest == "avx512":
        assert used == set(INSTRUCTION_SETS)


SEARCH = """
import sys
import numpy as np, scipy.sparse as sp
from carya.core import validation
from carya.core.matrices import Csr
from carya.trees.beam_search import BeamSearcher
from carya.trees.layer import WEIGHT_DTYPES, Layer, Weights
from carya.trees.transforms import Transform

def random_layer(n_clusters, cluster_size, rng, weight_dtype):
    nodes = n_clusters * cluster_size
    matrix = rng.standard_normal((60, nodes)) * (rng.random((60, nodes)) < rng.choice([0.01, 0.2, 1], (60, 1)))
    chunks = np.arange(0, nodes + 1, cluster_size)
    return Layer(
        weights=Weights.pack(Csr.of_scipy(sp.csr_array(matrix.astype(np.float32))), chunks, weight_dtype),
        dense=rng.standard_normal((nodes, 3)).astype(np.float32),
        biases=rng.standard_normal(nodes).astype(np.float32),
        chunks=chunks,
        order=np.arange(nodes, dtype=np.int32),
        transform=Transform.from_name("l3-hinge"),
    )

results = {}
for n_clusters, cluster_size in ((5, 20), (60, 33), (90, 130), (300, 5), (1500, 2)):
    for weight_dtype in WEIGHT_DTYPES:
        rng = np.random.default_rng(n_clusters)
        layers = [random_layer(1, n_clusters, rng, weight_dtype)]
        layers.append(random_layer(n_clusters, cluster_size, rng, weight_dtype))
        searcher = BeamSearcher(layers)
        X = rng.standard_normal((40, 60)) * (rng.random((40, 60)) < 0.4)
        queries = validation.check_features((sp.csr_array(X.astype(np.float32)), rng.standard_normal((40, 3))))
        for beam_width in (3, 12, 40, 70):
            _, labels, scores = searcher.predict(queries, top_k=4, beam_width=beam_width, threads=1)
            results[f"{n_clusters}-{weight_dtype}-{beam_width}-labels"] = labels
            results[f"{n_clusters}-{weight_dtype}-{beam_width}-scores"] = scores
np.savez(sys.argv[1], **results)
"""


def search(instruction_set: str, file: Path) -> dict[str, np.ndarray]:
    """Search layers with all kinds of blocks, in a subprocess with the given CARYA_ISA; return labels and scores."""
    subprocess.run(
        [sys.executable, "-c", SEARCH, str(file)], env=os.environ | {"CARYA_ISA": instruction_set}, check=True
    )
    with np.load(file) as arrays:
        return {name: arrays[name] for name in arrays.files}


def test_all_instruction_sets_return_the_same_rankings(tmp_path: Path) -> None:
    expected = search("", tmp_path / "fastest.npz")
    assert len(expected) == 120
    for instruction_set in INSTRUCTION_SETS:
        actual = search(instruction_set, tmp_path / f"{instruction_set}.npz")
        for name, values in expected.items():
            if name.endswith("scores"):
                assert np.allclose(actual[name], values, rtol=2e-3, atol=1e-6), (instruction_set, name)
            else:  # labels with almost equal scores may be swapped
                assert np.mean(actual[name] == values) > 0.98, (instruction_set, name)


def test_unknown_instruction_sets_are_errors(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        train("quantum", tmp_path / "unknown")
    assert "CARYA_ISA" in caught.value.stderr


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33, 100])
def test_dense_scores_equal_numpy(size: int) -> None:
    """Dense scores are also correct if the number of features is not a multiple of the vector width."""
    rng = np.random.default_rng(size)
    X = rng.standard_normal((60, size + 1)).astype(np.float32)
    Y = (rng.random((60, 5)) < 0.4).astype(np.float32)
    model = carya.XRLinear(max_depth=1, transform="noop").fit(X, Y)
    expected = np.hstack([X, np.ones((60, 1))]) @ model.layers_[0].matrix().toarray()
    actual = model.predict_selected(X, np.ones((60, 5))).toarray()
    assert np.allclose(actual, expected, atol=1e-4)
