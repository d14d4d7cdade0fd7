"""Propose new labels for texts, and rank them alongside known labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from carya.errors import InputError
from carya.models.suggestions import NewLabel, Suggestion
from carya.text.open_vocabulary.name_statistics import plural
from carya.text.open_vocabulary.phrases import find_phrases, probabilities
from carya.text.tfidf import Tfidf

if TYPE_CHECKING:
    from carya.models.calibration.calibration import Calibration

_MAX_PROPOSALS = 20  # per text
#: The bias and the feature weights (in the order of `FEATURES`) of a logistic regression that was trained on the
#: training rows of yso-small, with a fifth of the labels held out (docs/open-vocabulary.md).
_WEIGHTS = np.array([-6.74, 0.43, 2.74, -1.07, -4.08, 0.34, 1.05, 0.34, -0.38, 0.51, -0.4, 1.26, 0.24, -0.94, -3.32])


def check_open_vocabulary(model: Any, labels: Any, *, as_frame: bool) -> Tfidf:
    """Return a vectorizer that stores idf weights of words; raise InputError if new labels cannot be proposed."""
    if labels is not None:
        raise InputError("open_vocabulary cannot be combined with labels, which restricts the ranking to known labels.")
    if as_frame:
        raise InputError("open_vocabulary cannot be combined with as_frame=True. Use as_frame=False.")
    for vectorizer in model.vectorizers_:
        settings: dict[str, Any] = vectorizer.fitted_parameters_
        if "word" in vectorizer.analyzers_ and settings["n_buckets"] is None and settings["use_idf"]:
            chosen: Tfidf = vectorizer
            return chosen
    raise InputError(
        "open_vocabulary requires a vectorizer with analyzer='word', use_idf=True and n_buckets=None, but this "
        f"{model.model_kind_} model does not have one."
    )


def propose(text: str, vectorizer: Tfidf, label_set: Any, *, top_k: int = _MAX_PROPOSALS) -> list[tuple[str, float]]:
    """Return phrases from a text, except label names, with their probabilities, most probable first."""
    phrases = find_phrases(text, vectorizer, label_set.name_statistics)
    values = probabilities(phrases, _WEIGHTS)
    order = sorted(range(len(phrases)), key=lambda i: (-values[i], phrases[i].begin, phrases[i].text))
    chosen: dict[str, int] = {}  # keyed by the plural, so that each phrase is proposed in only one form
    for i in order:
        *modifiers, head = phrases[i].words
        chosen.setdefault(" ".join([*modifiers, plural(head)]), i)
    return [(phrases[i].text, float(values[i])) for i in list(chosen.values())[:top_k]]


def add_proposals(
    model: Any,
    vectorizer: Tfidf,
    texts: Sequence[str],
    suggestions: Sequence[list[Suggestion]],
    *,
    top_k: int,
    min_score: float,
) -> list[list[Suggestion]]:
    """Merge suggestions for known labels with proposals; the result has at most `top_k` suggestions per text."""
    merged = []
    for text, known in zip(texts, suggestions, strict=True):
        calibration = model.calibration_
        proposals = [
            NewLabel(
                phrase,
                _to_score(probability, calibration, is_log=model.has_log_scores),
                phrase,
                None if calibration is None else probability,
            )
            for phrase, probability in propose(text, vectorizer, model.label_set_, top_k=min(top_k, _MAX_PROPOSALS))
        ]
        accepted = [new for new in proposals if new.score >= min_score]
        merged.append(sorted([*known, *accepted], key=lambda suggestion: -suggestion.score)[:top_k])
    return merged


def _to_score(probability: float, calibration: Calibration | None, *, is_log: bool) -> float:
    """Convert a probability to the scale of the model's scores."""
    if calibration is not None:
        ascending, first = np.unique(calibration.probabilities, return_index=True)
        return float(np.interp(probability, ascending, calibration.scores[first]))
    return float(np.log(probability)) if is_log else probability
