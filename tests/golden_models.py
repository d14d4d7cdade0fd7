"""Models saved by earlier versions, and their stored rankings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import carya

GOLDEN = Path(__file__).parent / "golden" / "model-kinds"
ANSWERS = json.loads((GOLDEN / "answers.json").read_text(encoding="utf-8"))


def model_names(names: Iterable[str]) -> list[Any]:
    """Return sorted names as test parameters; names of transformer models are marked."""
    return [
        pytest.param(name, marks=pytest.mark.transformer if name == "xr-transformer" else ()) for name in sorted(names)
    ]


def load(name: str) -> Any:
    """Load a saved model; skip the test if it requires packages that are not installed."""
    if name == "xr-transformer":
        pytest.importorskip("torch")
    return carya.load(GOLDEN / name)
