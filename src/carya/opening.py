"""Opens a saved model of any kind."""

from __future__ import annotations

import os
from typing import Any

from carya import store
from carya.errors import ModelFormatError
from carya.models.saving import KIND, LAZY
from carya.models.xr_linear import XRLinear


def load(path: str | os.PathLike[str]) -> Any:
    """Open a saved model: memory-mapped, read-only, checked.

    Returns
    -------
    XRLinear, Ensemble or TextRanker
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
    from carya.models.ensemble import KIND as ENSEMBLE_KIND
    from carya.models.ensemble import Ensemble
    from carya.text.ranker import TextRanker
    from carya.text.saving import KIND as TEXT_KIND

    kinds: dict[str, Any] = {KIND: XRLinear, ENSEMBLE_KIND: Ensemble, TEXT_KIND: TextRanker}
    saved = store.load(path, lazily=LAZY)
    if saved.kind not in kinds:
        raise ModelFormatError(
            f"{path} holds a model of kind {saved.kind!r}, which this version of Carya does not know"
        )
    try:
        return kinds[saved.kind].from_saved(saved)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None
