"""Opens a saved model of any kind."""

from __future__ import annotations

import os
from typing import Any

from carya.core import storage
from carya.errors import ModelFormatError
from carya.models.registry import KINDS, open_saved
from carya.models.xr_linear.serialize import LAZY

#: Models of texts, too.
_KINDS = KINDS | {
    "text-ranker": ("carya.text.text_ranker", "TextRanker"),
    "xr-transformer": ("carya.transformer.xr_transformer", "XRTransformer"),
    "x-transformer": ("carya.transformer.x_transformer", "XTransformer"),
}


def load(path: str | os.PathLike[str]) -> Any:
    """Open a saved model: memory-mapped, read-only, checked.

    Returns
    -------
    XRLinear, NearestNeighbours, Ensemble, Reranked, TextRanker, XRTransformer or XTransformer
        As it was saved.

    Raises
    ------
    ModelFormatError
        If the folder is not a whole, unaltered model of a kind this version knows.

    Examples
    --------
    >>> import tempfile, carya
    >>> X, Y = carya.data.make_world(300, 30, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     carya.XRLinear().fit(X, Y).save(f"{folder}/model")
    ...     model = carya.load(f"{folder}/model")
    >>> model.tree_.n_labels
    30
    """
    saved = storage.load(path, lazily=LAZY)
    try:
        return open_saved(saved, _KINDS)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None
