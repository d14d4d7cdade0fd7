"""Reliability of probabilities: predicted probabilities compared with the observed precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from carya.models.calibration.calibration import Calibration, is_correct, ranks_of

_N_BINS = 10


def reliability(calibration: Calibration | None, Y: Any, S: Any, *, k: int = 5) -> dict[str, Any] | None:
    """Return the mean predicted probability and the precision of the top-k suggestions in ten bins of equal size.

    Parameters
    ----------
    calibration : Calibration or None
        If None, scores are treated as probabilities; the result is None if any of them is outside [0, 1].
    Y, S : csr_array
        The relevant labels and the scores; the entries of each row of S are sorted best first.
    k : int

    Returns
    -------
    dict or None
        Whether the model is calibrated (``is_calibrated``), the expected calibration error (``error``), and the mean
        probability, precision and size of each bin (``bins``).
    """
    top = ranks_of(S.indptr) <= k
    scores = np.asarray(S.data, np.float64)
    values = (scores if calibration is None else calibration.of_rankings(S.indptr, S.indices, S.data))[top]
    if not values.size or values.min() < 0 or values.max() > 1:
        return None
    correct = is_correct(S, Y)[top]
    order = np.argsort(values, kind="stable")
    bins = [part for part in np.array_split(order, _N_BINS) if part.size]
    measured = [[float(values[part].mean()), float(correct[part].mean()), int(part.size)] for part in bins]
    error = sum(abs(predicted - observed) * size for predicted, observed, size in measured) / values.size
    return {"is_calibrated": calibration is not None, "error": error, "bins": measured}
