"""Any ranker of pairs: what one must do, and how a saved one is found again. docs/rankers.md shows how to write one."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import hint
from carya.errors import ModelFormatError, ParameterError
from carya.ranking.pairs import Pairs


@runtime_checkable
class Ranker(Protocol):
    """Orders the candidates of a query by what is known about each pair of them.

    A ranker may be any object with these four methods and a name; nothing needs to be inherited. Its parameters are its
    own; :class:`carya.Reranked` trains a copy, so the one that was given stays as it is.

    Examples
    --------
    >>> from carya.ranking import BoostedRanker
    >>> isinstance(BoostedRanker(), Ranker)
    True
    """

    #: What saved models call it.
    name: ClassVar[str]

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Learn from pairs of which it is known how relevant the label is to the query: 0 if it is not."""
        ...

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """A finite number for each pair, larger for better ones; only its order among pairs of a query matters."""
        ...

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What must be kept: parameters as JSON knows them, and arrays of types that `carya.core.storage` supports."""
        ...

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The ranker that was kept. Files may be damaged or forged: raise a ValueError if they make no sense."""
        ...


#: Where the rankers that come with Carya live.
_HOMES = {
    "averaged": ("carya.ranking.averaged", "AveragedRanker"),
    "boosted": ("carya.ranking.boosted", "BoostedRanker"),
    "neural": ("carya.ranking.neural", "NeuralRanker"),
}
_OWN: dict[str, type[Ranker]] = {}


def register(kind: type[Ranker]) -> type[Ranker]:
    """Make a ranker of your own known, so that models saved with it can be opened; a decorator for its class.

    >>> @register
    ... class Nothing:
    ...     name = "nothing"
    ...     def fit(self, pairs, relevance): return self
    ...     def score(self, pairs): return np.zeros(len(pairs), np.float32)
    ...     def to_saved(self): return {}, {}
    ...     @classmethod
    ...     def from_saved(cls, parameters, arrays): return cls()
    >>> ranker_of("nothing") is Nothing
    True
    """
    name = getattr(kind, "name", None)
    missing = [method for method in ("fit", "score", "to_saved", "from_saved") if not hasattr(kind, method)]
    if not isinstance(name, str) or not name or missing:
        raise ParameterError(f"{kind!r} is no ranker: it needs {', '.join(missing) or 'a name, a string'}")
    if name in _HOMES:
        raise ParameterError(f"the name {name!r} is taken: a ranker that comes with Carya has it")
    _OWN[name] = kind
    return kind


def ranker_of(name: str) -> type[Ranker]:
    """The class of that name; raises ModelFormatError if nobody registered one."""
    if name in _HOMES:
        module, home = _HOMES[name]
        found: type[Ranker] = getattr(importlib.import_module(module), home)
        return found
    if name in _OWN:
        return _OWN[name]
    raise ModelFormatError(
        f"it was saved with the ranker {name!r}, which is not known{hint(str(name), [*_HOMES, *_OWN])}; import the "
        "module that defines it, and decorate it with carya.ranking.register"
    )
