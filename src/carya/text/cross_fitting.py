"""Calibration of text models by cross-fitting: every text is ranked by a model that was not trained on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.models.calibration.calibration import Calibration, Suggested
from carya.models.calibration.cross_fitting import TOP_K, learn_calibration, splits


def cross_fitted_calibration_of_texts(
    Y: sp.csr_array,
    ids: Sequence[str],
    folds: int,
    fit: Callable[[NDArray[np.int64]], Any],
    predict: Callable[[Any, NDArray[np.int64], int], sp.csr_array],
    *,
    groups: NDArray[Any] | None = None,
    seed: int = 0,
) -> Calibration:
    """Return the calibration of a text model, learned from copies that are each trained on a part of the texts.

    Parameters
    ----------
    Y : csr_array of shape (texts, labels)
    ids : sequence of str
        The label of each column of `Y`.
    fit : callable
        ``fit(rows)`` returns a model trained on the given texts.
    predict : callable
        ``predict(model, rows, top_k)`` returns its predictions for the given texts.
    groups : ndarray, optional
        The group of each text; texts in the same group are held out together.
    """
    number = {label: column for column, label in enumerate(ids)}
    parts = []
    for train, held_out in splits(Y.shape[0], folds, groups=groups, seed=seed):
        part = fit(train)
        S = predict(part, held_out, TOP_K)
        # Labels without training texts are not in the model.
        column = np.array([number[label] for label in part.labels_], np.int32)
        S = sp.csr_array((S.data, column[S.indices], S.indptr), shape=(S.shape[0], len(ids)))
        parts.append(Suggested.of(S, Y[held_out], np.bincount(Y[train].indices, minlength=len(ids))))
    return learn_calibration(Suggested.concatenate(parts), np.bincount(Y.indices, minlength=len(ids)))
