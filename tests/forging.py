"""Helpers that forge models, as an attacker could: one array value is changed, and the checksums remain valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import carya
from carya.core import storage
from carya.errors import ModelFormatError


class Outcomes(NamedTuple):
    """The number of models that were rejected, and the number that were loaded and used without an error."""

    rejected: int
    accepted: int


def forge(source: Path, target: Path, seed: int) -> str:
    """Write a copy of a saved model with one changed array value; return the name of the array."""
    rng = np.random.default_rng(seed)
    saved = storage.load(source)
    arrays = {name: array.copy() for name, array in saved.arrays.items()}
    name = str(rng.choice([name for name, array in arrays.items() if array.size]))
    values = arrays[name].reshape(-1)
    position = rng.integers(values.size)
    before = values[position].tobytes()
    while values[position].tobytes() == before:
        values[position] = np.array(rng.choice([-1, 0, 2**31 - 1, 7, values.size])).astype(values.dtype)
    storage.save(target, storage.SavedModel(saved.kind, saved.parameters, saved.shape, arrays))
    return name


def use_forged(source: Path, folder: Path, seeds: Iterable[int], use: Callable[[Any], object]) -> Outcomes:
    """For each seed, forge a model, load and use it, and count the outcomes; only ModelFormatError is caught.

    A forged model must be rejected or be usable, possibly with different scores. It must never crash the process.
    """
    rejected = accepted = 0
    for seed in seeds:
        target = folder / f"forged-{seed}"
        forge(source, target, seed)
        assert (target / "arrays.bin").read_bytes() != (source / "arrays.bin").read_bytes()
        try:
            use(carya.load(target))
            accepted += 1
        except ModelFormatError as error:
            assert str(target) in str(error)  # noqa: PT017
            rejected += 1
    return Outcomes(rejected, accepted)
