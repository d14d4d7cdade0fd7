"""Load saved models of any kind."""

from __future__ import annotations

import os
from typing import Any

from carya.core import storage
from carya.errors import MissingExtraError, ModelFormatError
from carya.models.registry import MODEL_CLASSES, open_model
from carya.models.xr_linear.serialize import LAZY_ARRAYS
from carya.upgrade import upgrade

#: All model kinds, including text models.
_ALL_CLASSES = MODEL_CLASSES | {
    "text-ranker": ("carya.text.text_ranker", "TextRanker"),
    "xr-transformer": ("carya.transformer.xr_transformer", "XRTransformer"),
    "x-transformer": ("carya.transformer.x_transformer", "XTransformer"),
}


def load(path: str | os.PathLike[str]) -> Any:
    """Load a saved model. Its arrays are memory-mapped, read-only and verified by checksums.

    Parameters
    ----------
    path : str or path-like
        The model folder.

    Returns
    -------
    XRLinear, NearestNeighbors, Ensemble, Reranked, TextRanker, XRTransformer or XTransformer

    Raises
    ------
    ModelFormatError
        If the folder does not contain a complete, unmodified model of a known kind.
    MissingExtraError
        If the model requires an optional package that is not installed.

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
    saved = storage.load(path, lazy=LAZY_ARRAYS)
    try:
        model = open_model(upgrade(saved), _ALL_CLASSES)
        if saved.data_options:
            model.data_options_ = saved.data_options
        return model
    except (ModelFormatError, MissingExtraError) as error:
        raise type(error)(f"{path}: {error}") from None
