"""Load saved models of any kind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carya.errors import ModelFormatError
from carya.models.registry import load_model

if TYPE_CHECKING:
    from carya.models.routed.model import PartAddress, RoutedModel


def load(path: str | os.PathLike[str]) -> Any:
    """Load a saved model. Its arrays are memory-mapped, read-only and verified against checksums.

    Parameters
    ----------
    path : str or path-like
        The model folder.

    Returns
    -------
    XRLinear, NearestNeighbors, Ensemble, Reranked, RoutedModel, TextRanker, TextEnsemble, TextReranker,
    XRTransformer, XTransformer, ModelPart or Tfidf

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


def load_routed(
    path: str | os.PathLike[str],
    parts: Sequence[PartAddress] | None = None,
    *,
    timeout: float = 5.0,
    token: str | None = None,
) -> Any:
    """Load the top of a split model (the upper levels of its tree) and connect it to the parts.

    Parameters
    ----------
    path : str or path-like
        The folder ``top`` written by :func:`split_model`.
    parts, timeout, token
        See :meth:`RoutedModel.connect`. By default, the folders ``part-0``, ``part-1``, … next to `path` are
        memory-mapped in this process.

    Returns
    -------
    RoutedModel, or TextRanker with a RoutedModel

    Raises
    ------
    ModelFormatError
        If the folder does not contain the top of a split model.
    PartUnavailableError
        If a part cannot be reached.

    Examples
    --------
    >>> import tempfile, carya
    >>> texts, labels = ["a cat", "a dog", "a red car"], [["pet"], ["pet", "barks"], ["vehicle"]]
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1), carya.XRLinear(max_leaf_size=1)).fit(texts, labels)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ranker.save(f"{folder}/model")
    ...     _ = carya.split_model(f"{folder}/model", f"{folder}/parts", n_parts=2)
    ...     routed = carya.load_routed(f"{folder}/parts/top")
    >>> routed.suggest("a dog", top_k=1)[0].label
    'pet'
    """
    model = load(path)
    routed = routed_model(model)
    if routed is None:
        raise ModelFormatError(
            f"{path} contains a model of class {type(model).__name__}, not the top of a split model. Use carya.load."
        )
    if parts is None:
        parts = [Path(path).parent / f"part-{number}" for number in range(routed.n_parts_)]
    routed.connect(parts, timeout=timeout, token=token)
    return model


def routed_model(model: Any) -> RoutedModel | None:
    """Return `model` itself, or the model inside a text ranker, if it is a RoutedModel; otherwise None."""
    from carya.models.routed.model import RoutedModel

    inner = getattr(model, "model_", model)
    return inner if isinstance(inner, RoutedModel) else None
