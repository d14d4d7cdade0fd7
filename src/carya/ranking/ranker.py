"""Interface for rerankers, and the registry of reranker classes for loading saved models. See docs/rankers.md."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import did_you_mean
from carya.errors import InputError, ModelFormatError, ParameterError
from carya.ranking.pairs import Pairs


@runtime_checkable
class Ranker(Protocol):
    """Interface for rerankers, which rank the candidates of a query based on the features of the (query, label) pairs.

    Any object with a name and these four methods is a ranker; no base class is required. :class:`carya.Reranked` and
    :class:`carya.TextReranker` train a copy, so the object passed to them remains unfitted.

    A ranker can have additional attributes. If `needs_texts` is True, it reads ``pairs.texts``, which only
    :class:`carya.TextReranker` provides. If `has_files` is True, ``save_files(folder)`` writes files that are saved
    with the model, and `from_saved` receives this folder as a third argument.

    Examples
    --------
    >>> from carya.ranking import BoostedRanker
    >>> isinstance(BoostedRanker(), Ranker)
    True
    """

    #: The name that identifies the class in saved models.
    name: ClassVar[str]

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Train on pairs with known relevance; 0 means that the label is not relevant to the query."""
        ...

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """Return a finite score per pair; only the order within a query matters."""
        ...

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state to save: JSON-serializable parameters, and arrays with dtypes that can be saved."""
        ...

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Restore a saved ranker. Raise ValueError if the input is inconsistent; it may be damaged or malicious."""
        ...


#: The rankers included in Carya.
_BUILT_IN = {
    "averaged": ("carya.ranking.averaged", "AveragedRanker"),
    "boosted": ("carya.ranking.boosted", "BoostedRanker"),
    "cross-encoder": ("carya.transformer.reranking.cross_encoder", "CrossEncoderRanker"),
    "neural": ("carya.ranking.neural", "NeuralRanker"),
}
_REGISTERED: dict[str, type[Ranker]] = {}


def register(cls: type[Ranker]) -> type[Ranker]:
    """Class decorator that registers a custom ranker, so that models saved with it can be loaded.

    >>> @register
    ... class Constant:
    ...     name = "constant"
    ...     def fit(self, pairs, relevance): return self
    ...     def score(self, pairs): return np.zeros(len(pairs), np.float32)
    ...     def to_saved(self): return {}, {}
    ...     @classmethod
    ...     def from_saved(cls, parameters, arrays): return cls()
    >>> ranker_class("constant") is Constant
    True
    """
    name = getattr(cls, "name", None)
    missing = [method for method in ("fit", "score", "to_saved", "from_saved") if not hasattr(cls, method)]
    if not isinstance(name, str) or not name or missing:
        raise ParameterError(f"{cls!r} is not a ranker. It lacks {', '.join(missing) or 'a non-empty name'}.")
    if name in _BUILT_IN:
        raise ParameterError(f"The name {name!r} is reserved for a built-in ranker. Choose a different name.")
    _REGISTERED[name] = cls
    return cls


def ranker_class(name: str) -> type[Ranker]:
    """Return the ranker class with the given name; raise ModelFormatError if it is not registered."""
    if name in _BUILT_IN:
        module, class_name = _BUILT_IN[name]
        built_in: type[Ranker] = getattr(importlib.import_module(module), class_name)
        return built_in
    if name in _REGISTERED:
        return _REGISTERED[name]
    suggestion = did_you_mean(str(name), [*_BUILT_IN, *_REGISTERED])
    raise ModelFormatError(
        f"The model uses the ranker {name!r}, which is not registered.{suggestion} "
        "Import the module that defines it and decorate the class with carya.ranking.register."
    )


def restore_ranker(
    name: str, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]], folder: Path | None = None
) -> Ranker:
    """Restore a saved ranker; `folder` contains the ranker's additional files, if there are any."""
    cls = ranker_class(name)
    if hasattr(cls, "save_files"):
        return cls.from_saved(parameters, arrays, folder)  # type: ignore[call-arg]
    return cls.from_saved(parameters, arrays)


def checked_scores(ranker: Ranker, pairs: Pairs) -> NDArray[np.float32]:
    """Return the scores of a ranker, which can be a user-defined object; raise InputError if they are invalid."""
    scores = np.asarray(ranker.score(pairs), np.float32)
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        raise InputError(f"The ranker {ranker.name!r} must return one finite score for each of the {len(pairs)} pairs.")
    return scores
