"""Assign labels to rows with a decision rule, based on the probabilities of a calibrated model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.errors import InputError
from carya.models.calibration.calibration import Calibration
from carya.models.calibration.decisions import DecisionRule

#: Number of suggestions per row among which labels are chosen, unless the rule is a larger number of labels.
POOL_SIZE = 20


def pool_size(decide: object) -> int:
    """Return the number of suggestions that a decision rule requires; raise ParameterError if it is invalid."""
    rule = DecisionRule.parse(decide)
    return int(rule.value) if rule.kind == "k" else POOL_SIZE


def select(
    calibration: Calibration | None, decide: object, rankings: tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[np.float64] | None]:
    """Return row offsets, labels, scores and probabilities of the assigned labels.

    Raises InputError if the model was not calibrated by `fit`, unless the rule is a number of labels.
    """
    rule = DecisionRule.parse(decide)
    indptr, labels, scores = rankings
    values = None if calibration is None else calibration.of_rankings(*rankings)
    if rule.kind == "k":
        return indptr, labels, scores, values
    decisions = None if calibration is None else calibration.decisions
    if decisions is None or values is None:
        raise InputError(
            f"decide={decide!r} requires cut-offs learned on held-out rows. Train the model with calibrate=True "
            "(carya train --calibrate)."
        )
    chosen, lengths = [], []
    for begin, end in itertools.pairwise(indptr.tolist()):
        positions = begin + decisions.select(rule, labels[begin:end], values[begin:end])
        chosen.append(positions)
        lengths.append(positions.size)
    entries = np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    return ends, labels[entries], scores[entries], values[entries]
