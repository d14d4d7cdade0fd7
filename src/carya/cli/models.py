"""Open the saved model that a command uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from carya.errors import InputError

if TYPE_CHECKING:
    from carya.text.text_ranker import TextRanker


def load_text_ranker(path: Path, command: str) -> TextRanker:
    """Open a model; raise InputError if it is not a TextRanker."""
    import carya
    from carya.text.text_ranker import TextRanker

    model = carya.load(path)
    if not isinstance(model, TextRanker):
        raise InputError(
            f"{command} requires a TextRanker, but {path} contains the model kind {type(model).__name__}. "
            "Train one on texts with: carya train TEXTS -o MODEL"
        )
    return model


def ranks_texts(model: Any) -> bool:
    """Return whether a model accepts texts instead of features."""
    return hasattr(model, "suggest_all")
