"""Load saved models of any kind."""

from __future__ import annotations

import os
from typing import Any

from carya.models.registry import load_model


def load(path: str | os.PathLike[str]) -> Any:
    """Load a saved model. Its arrays are memory-mapped, read-only and verified by checksums.

    Parameters
    ----------
    path : str or path-like
        The model folder.

    Returns
    -------
    XRLinear, NearestNeighbors, Ensemble, Reranked, TextRanker, TextEnsemble, TextReranker, XRTransformer,
    XTransformer or Tfidf

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
    return load_model(path)
