"""Allowed values for the options of :func:`carya.tune`, shared by the Python API and the command line."""

from __future__ import annotations

from carya.core.rules import Choice, Either, Integer, Parsed, Real, Rule
from carya.tuning.budget import DURATION_TEXT, parse_duration

#: The metrics that can be maximized; mean-P is the mean of P@1, P@3 and P@5.
METRICS = ("P@1", "P@3", "P@5", "mean-P", "nDCG@1", "nDCG@3", "nDCG@5", "R@5", "F1@5")
#: The model kinds: one or more trees, two kinds of rerankers, and nearest neighbors.
MODELS = ("trees", "accurate", "neural", "neighbors")
DURATION = Parsed(parse_duration, DURATION_TEXT)

RULES: dict[str, Rule] = {
    "budget": Either(DURATION, Real(0, open_low=True)),
    "metric": Choice(*METRICS),
    "validation_fraction": Real(0, 0.5, open_low=True),
    "max_trials": Either(Integer(1), Choice(None)),
    "max_latency": Either(Real(0, open_low=True), Choice(None)),
    "max_bytes": Either(Integer(1), Choice(None)),
    "n_parallel": Either(Integer(1), Choice(None)),
    "n_jobs": Either(Choice(-1), Integer(1)),
    "seed": Integer(0, 2**31 - 1),
}
