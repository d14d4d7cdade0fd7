"""Test that trained weights are bit-identical for any number of BLAS threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TRAIN = """
import sys
import numpy as np
from carya.core import storage
from carya.ranking import NeuralRanker, Pairs

rng = np.random.default_rng(0)
pairs = Pairs.of(rng.random((40_000, 60)), [f"f{i}" for i in range(60)], np.arange(0, 40_001, 20))
relevance = (rng.random(40_000) < 0.1).astype(np.float32)
_, arrays = NeuralRanker(epochs=2, hidden_units=96, batch_size=256).fit(pairs, relevance).to_saved()
sys.stdout.buffer.write(b"".join(array.tobytes() for array in arrays.values()))
"""


def test_neural_rankers_do_not_depend_on_blas_threads(tmp_path: Path) -> None:
    weights = {
        subprocess.run(
            [sys.executable, "-c", TRAIN],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "8")
    }
    assert len(weights) == 1
    assert len(weights.pop()) > 20_000
