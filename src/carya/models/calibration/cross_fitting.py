"""Held-out predictions for calibration: every row is ranked by a model that was not trained on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.rules import Integer
from carya.errors import InputError, ParameterError
from carya.models.calibration.calibration import Calibration, Suggested
from carya.models.training_data import TrainingData

#: Number of suggestions per row from which a calibration is learned.
TOP_K = 20
_DEFAULT_FOLDS = 3
_MAX_FOLDS = 100
_RUN = 20  # number of consecutive rows that are held out together; rows from the same source are often adjacent
_FOLDS = Integer(2, _MAX_FOLDS)


def check_folds(calibrate: object) -> int:
    """Return the number of folds for the argument `calibrate` of `fit`; 0 means that the model is not calibrated."""
    if calibrate is True:
        return _DEFAULT_FOLDS
    if calibrate is False or calibrate is None:
        return 0
    if not _FOLDS.allows(calibrate):
        raise ParameterError(f"calibrate must be True, False or a number of folds >= 2, got {calibrate!r}.")
    return int(calibrate)  # type: ignore[call-overload,no-any-return]


def splits(
    n_rows: int, folds: int, *, groups: NDArray[Any] | None = None, seed: int = 0
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the training rows and the held-out rows of each fold.

    Rows in the same group, or blocks of up to 20 consecutive rows, are held out together, because near-duplicates of
    held-out rows in the training rows would make the probabilities too high.

    >>> [held_out.tolist() for _, held_out in splits(6, 3)]
    [[2, 3], [4, 5], [0, 1]]
    """
    if n_rows < folds:
        raise InputError(f"Calibration with {folds} folds requires at least {folds} rows, got {n_rows}.")
    if groups is None:
        blocks = np.arange(n_rows) // max(1, min(_RUN, n_rows // (10 * folds)))
    else:
        if len(groups) != n_rows:
            raise InputError(f"groups must have one entry per row ({n_rows}), got {len(groups)}.")
        blocks = np.unique(groups, return_inverse=True)[1]
    n_blocks = int(blocks.max()) + 1
    if n_blocks < folds:
        raise InputError(f"Calibration with {folds} folds requires at least {folds} groups of rows, got {n_blocks}.")
    fold = np.empty(n_blocks, np.int64)
    fold[np.random.default_rng(seed).permutation(n_blocks)] = np.arange(n_blocks) * folds // n_blocks
    for number in range(folds):
        held_out = fold[blocks] == number
        yield np.flatnonzero(~held_out), np.flatnonzero(held_out)


def cross_fitted_calibration(model: Any, data: TrainingData, folds: int) -> Calibration:
    """Return the calibration of a model for features, learned from copies that are each trained on part of the rows."""

    def predict(train: NDArray[np.int64], held_out: NDArray[np.int64]) -> Any:
        part = model.clone().fit_data(data.take(train))
        part.set_feature_names(None)
        return part.predict(data.features.take(held_out).to_input(), top_k=TOP_K)

    return learn_from_splits(data, folds, predict, seed=int(getattr(model, "seed", 0)))


def learn_from_splits(
    data: TrainingData, folds: int, predict: Callable[[NDArray[np.int64], NDArray[np.int64]], Any], *, seed: int
) -> Calibration:
    """Return the calibration learned from all folds.

    Parameters
    ----------
    predict : callable
        ``predict(train, held_out)`` trains a model on the rows `train` and returns its predictions for `held_out`.
    """
    counts = data.labels.column_counts()
    groups = None if data.groups is None else np.asarray(data.groups)
    parts = []
    for train, held_out in splits(data.labels.rows, folds, groups=groups, seed=seed):
        own = data.labels.take(train).column_counts()
        if not own.any():
            raise InputError(
                f"Calibration requires labels in each of {folds} folds. Pass more rows, or omit calibrate."
            )
        parts.append(Suggested.of(predict(train, held_out), data.labels.take(held_out).to_scipy(), own))
    return learn_calibration(Suggested.concatenate(parts), counts)


def learn_calibration(suggested: Suggested, counts: NDArray[np.int64]) -> Calibration:
    """Return the calibration learned from suggestions for held-out rows; raise InputError if there are none."""
    if not suggested.scores.size:
        raise InputError("The model returns no suggestions for the held-out rows. Calibration requires at least one.")
    calibration = Calibration.learn_by_group(suggested, counts)
    return calibration.with_decisions(suggested, counts) if counts.any() else calibration
