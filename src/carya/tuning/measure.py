"""Train a model on a sample of the training rows, and evaluate it on the validation rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core.matrices import Features
from carya.core.parameters import set_in_all
from carya.models.ensemble.model import Ensemble
from carya.models.training_data import TrainingData
from carya.models.xr_linear.model import XRLinear
from carya.text.default_vectorizer import count_name_columns
from carya.text.text_ranker import TextRanker
from carya.tuning.cache import TrialCache, TrialFeatures
from carya.tuning.held_out import HeldOutData

_KS = (1, 3, 5)
_TOP_K = 10
_TIMED_ROWS = 100


@dataclass(frozen=True)
class Measured:
    """Evaluation results of one model.

    Attributes
    ----------
    metrics : mapping of str to float
        The metrics on the validation rows, such as ``P@1``.
    microseconds : float
        The mean single-query latency on one thread, including vectorization.
    n_bytes : int
        The size of the model.
    seconds : float
        The time to train and evaluate the model.
    """

    metrics: Mapping[str, float]
    microseconds: float
    n_bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dictionary."""
        return asdict(self)


def measure(estimator: Any, n_rows: int, data: HeldOutData, cache: TrialCache, *, threads: int) -> Measured:
    """Train an unfitted model (for texts, a TextRanker), and evaluate it on the validation rows.

    Parameters
    ----------
    n_rows : int
        The number of training rows.
    """
    started = time.perf_counter()
    is_text = isinstance(estimator, TextRanker)
    vectorizer, model = (estimator.vectorizer, estimator.model) if is_text else (None, estimator)
    model = model.clone()
    set_in_all(model, n_jobs=threads, verbose=False)
    features = cache.features(vectorizer, n_rows)
    model = _with_trees(model, features, cache)
    label_features = None
    if getattr(model, "uses_label_features", False) and features.label_features is not None:
        label_features = features.label_features.to_scipy()
    training = TrainingData(
        features.train,
        features.labels,
        label_features=label_features,
        name_columns=count_name_columns(model, features.widths) if is_text else None,
    )
    model.fit_data(training)
    S = model.predict(features.validation.to_input(), top_k=_TOP_K)
    # Labels that do not occur in the sample have no scores, so they count as false negatives.
    scores = sp.csr_array((S.data, features.columns[S.indices], S.indptr), shape=(S.shape[0], data.labels.cols))
    values = metrics.report(data.validation_labels(n_rows), scores, k=_KS)
    chosen = {name: values[name] for name in values if name.startswith(("P@", "R@", "F1@", "nDCG@"))}
    chosen["mean-P"] = float(np.mean([values[f"P@{k}"] for k in _KS]))
    n_bytes = sum(array.nbytes for array in model.to_saved().arrays.values()) + features.vectorizer_bytes
    microseconds = _latency(model, features.validation) + features.vectorizer_us
    return Measured(chosen, microseconds, n_bytes, time.perf_counter() - started)


def _with_trees(model: Any, features: TrialFeatures, cache: TrialCache) -> Any:
    """Return the model with cached label trees, which are shared by trials with the same features."""
    if isinstance(model, XRLinear):
        return model.clone(tree=cache.tree(model, features))
    if isinstance(model, Ensemble):
        members = model.unfitted_members()
        if all(isinstance(member, XRLinear) for member in members):
            trees = [member.clone(tree=cache.tree(member, features)) for member in members]
            return model.clone(members=trees, n_trees=None)
    return model


def _latency(model: Any, queries: Features) -> float:
    """Return the mean time to rank a single row, in microseconds."""
    set_in_all(model, n_jobs=1)
    step = max(1, queries.rows // _TIMED_ROWS)
    rows = [queries.take(slice(row, row + 1)).to_input() for row in range(0, queries.rows, step)][:_TIMED_ROWS]
    model.rank(rows[0], top_k=_TOP_K)
    started = time.perf_counter()
    for row in rows:
        model.rank(row, top_k=_TOP_K)
    return 1e6 * (time.perf_counter() - started) / len(rows)
