"""Models with a wrong number somewhere and checksums that fit: what an attacker could write."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from carya.core import storage


def forge(source: Path, place: Path, seed: int) -> None:
    """A copy of a saved model with one number of one array changed."""
    rng = np.random.default_rng(seed)
    saved = storage.load(source)
    arrays = {name: array.copy() for name, array in saved.arrays.items()}
    name = rng.choice([name for name, array in arrays.items() if array.size])
    flat = arrays[name].reshape(-1)
    at = rng.integers(flat.size)
    flat[at] = np.array(rng.choice([-1, 0, 2**31 - 1, 7, flat.size])).astype(flat.dtype)
    storage.save(place, storage.Saved(saved.kind, saved.parameters, saved.shape, arrays))
