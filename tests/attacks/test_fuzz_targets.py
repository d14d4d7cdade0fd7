"""Run the Python fuzz targets with their seeds and with random inputs; `tools/fuzz` runs them for longer."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))

import python_targets

if sys.platform == "win32":
    pytest.skip("the server does not support Windows", allow_module_level=True)

N_INPUTS = 20


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return data in which some bytes are replaced, removed or inserted."""
    mutated = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        position = rng.randrange(len(mutated) + 1)
        mutated[position : position + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    return bytes(mutated)


@pytest.mark.parametrize("name", python_targets.TARGETS)
def test_target(name: str) -> None:
    rng = random.Random(name)
    seeds = python_targets.TARGETS[name].seeds()
    for seed in rng.sample(seeds, min(len(seeds), N_INPUTS)):
        python_targets.run_target(name, seed)
        python_targets.run_target(name, mutate(seed, rng))


def test_edits_change_documents() -> None:
    document = {"a": [1, 2, {"b": None}], "c": 0.5}
    rng = random.Random(0)
    edited = [python_targets.edit_json(document, python_targets.Choices(rng.randbytes(40))) for _ in range(100)]
    assert document == {"a": [1, 2, {"b": None}], "c": 0.5}
    assert sum(other != document for other in edited) > 70
