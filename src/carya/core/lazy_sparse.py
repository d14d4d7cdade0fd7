"""SciPy's sparse matrices, imported on first use because the import takes longer than loading and using a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy.sparse import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    import scipy.sparse

    value = globals()[name] = getattr(scipy.sparse, name)  # cached, so that later accesses bypass this function
    return value
