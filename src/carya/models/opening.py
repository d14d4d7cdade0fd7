"""Opens a saved model of any kind."""

from __future__ import annotations

import os

from carya import store
from carya.errors import ModelFormatError
from carya.models.saving import KIND
from carya.models.xr_linear import XRLinear


def load(path: str | os.PathLike[str]) -> XRLinear:
    """Open a saved model: memory-mapped, read-only, checked.

    Raises
    ------
    ModelFormatError
        If the folder is not a whole, unaltered model of a kind this version knows.
    """
    saved = store.load(path)
    if saved.kind != KIND:
        raise ModelFormatError(
            f"{path} holds a model of kind {saved.kind!r}, which this version of Carya does not know"
        )
    try:
        return XRLinear.from_saved(saved)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None
