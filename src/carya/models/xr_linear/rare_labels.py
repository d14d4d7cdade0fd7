"""Modify the training data to favor rare labels: increase their costs, and add training rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr, Features

if TYPE_CHECKING:
    from carya.models.training_data import TrainingData


def weight_rare_labels(data: TrainingData, exponent: float, *, use_values: bool) -> TrainingData:
    """Multiply the values of Y by powers of the labels' inverse propensities, which are larger for rare labels.

    The propensity of a label is the probability that it is assigned to a row for which it is relevant, estimated from
    its frequency (Jain et al. 2016). The factors are scaled so that their mean over all entries of Y is 1.

    Parameters
    ----------
    data : TrainingData
    exponent : float
    use_values : bool
        Whether Y contains costs; otherwise, its positive entries are replaced by 1.
    """
    from carya.metrics import propensities_from_counts  # imported here because it imports SciPy

    labels = data.labels
    weights = np.ones(labels.rows) if data.sample_weight is None else data.sample_weight.astype(np.float64)
    entry_weights = np.repeat(weights, np.diff(labels.indptr))  # a row with weight w counts as w rows
    counts = np.bincount(labels.indices, entry_weights, minlength=labels.cols)
    n_rows = max(math.ceil(weights.sum()), math.ceil(counts.max(initial=0)))
    factors = propensities_from_counts(counts, n_rows) ** -exponent
    entries = factors[labels.indices]
    entries /= np.average(entries, weights=entry_weights)
    values = (entries * labels.values if use_values else entries).astype(np.float32)
    return replace(data, labels=Csr.of(labels.indptr, labels.indices, values, labels.cols))


def add_label_rows(data: TrainingData, weight: float) -> TrainingData:
    """Append one training row per label, with the features of the label and this label as the only positive.

    Labels without features are skipped. If there are no label features, or if their columns differ from those of X, the
    data is returned unchanged.
    """
    if data.label_features is None:
        return data
    own = validation.check_label_features(data.label_features, data.labels.cols)
    if own.widths != data.features.widths:
        return data
    known = np.flatnonzero((np.diff(own.sparse.indptr) > 0) | own.dense.any(axis=1))
    own = own.take(known)
    features, labels = data.features, data.labels
    sparse = _append(features.sparse, own.sparse)
    dense = np.concatenate([features.dense, own.dense])
    indptr = np.arange(known.size + 1, dtype=np.int64)
    own_labels = Csr.of(indptr, known.astype(np.int32), np.ones(known.size, np.float32), labels.cols)
    before = np.ones(labels.rows, np.float32) if data.sample_weight is None else data.sample_weight
    weights = np.concatenate([before, np.full(known.size, weight, np.float32)])
    shortlist = data.shortlist
    if shortlist is not None:
        empty = Csr.of(np.zeros(known.size + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), labels.cols)
        shortlist = _append(validation.check_labels(shortlist, "shortlist"), empty).to_scipy()
    return replace(
        data,
        features=Features.of(sparse, dense),
        labels=_append(labels, own_labels),
        sample_weight=weights,
        shortlist=shortlist,
    )


def _append(rows: Csr, more: Csr) -> Csr:
    """Return a matrix with the rows of the first matrix, followed by the rows of the second."""
    return Csr.of_scipy(sp.vstack([rows.to_scipy(), more.to_scipy()], format="csr"))
