"""A small training problem with a three-layer tree, and a function that reads the files of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import carya

X, Y = carya.data.make_world(1500, 300, seed=0)


def tree(**parameters: Any) -> carya.XRLinear:
    """Return an unfitted model with three layers."""
    return carya.XRLinear(max_leaf_size=10, branching=6, **parameters)


def content(folder: Path) -> list[bytes]:
    """Return the contents of all files of a saved model."""
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
