"""SciPy's sparse matrices, imported when the first one is made: that takes longer than to open a model and answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy.sparse import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    import scipy.sparse

    value = globals()[name] = getattr(scipy.sparse, name)  # found at once from now on
    return value
