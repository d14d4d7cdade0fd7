"""Model cards: descriptions of a model's data, metrics, calibration and limitations, with metadata for the Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_METRICS = ("P@1", "P@3", "P@5", "R@1", "R@3", "R@5", "R@10", "nDCG@1", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
_METRIC_NAMES = {
    "P": "Precision (P)",
    "R": "Recall (R)",
    "nDCG": "nDCG",
    "PSP": "Propensity-scored precision (PSP)",
}
_N_LABELS = 5  # number of example labels in the card


@dataclass(frozen=True)
class CardDetails:
    """The contents of a model card that are not stored in the model.

    Attributes
    ----------
    description : str or None
        Paragraphs about the purpose of the model.
    data : str or None
        The training data: its name, source and license.
    evaluation : mapping or None
        Metrics on test data, as computed by :func:`carya.metrics.report` or ``carya evaluate --json``.
    license : str or None
        The Hub's identifier for the model's license, such as "apache-2.0".
    language : str or sequence of str or None
        Language codes of the texts, such as "en".
    """

    description: str | None = None
    data: str | None = None
    evaluation: Mapping[str, Any] | None = None
    license: str | None = None
    language: str | Sequence[str] | None = None


def model_card(model: Any, repo_id: str, details: CardDetails) -> str:
    """Return the model card of a fitted model as Markdown with YAML metadata.

    The example code in the card loads the model from the repository `repo_id`, such as "user/model".

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["a red apple", "a green apple", "a fast car"], [["fruit"], ["fruit"], ["vehicle"]]
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels)
    >>> card = model_card(ranker, "me/fruits", CardDetails(evaluation={"P@1": 0.5}))
    >>> print(card.partition("## Metrics")[2].partition("##")[0].strip())
    | % | @1 |
    |---|--:|
    | Precision (P) | 50.0 |
    """
    sections = [
        f"# {repo_id.rpartition('/')[2]}",
        details.description
        or "This model ranks labels for " + ("texts." if _ranks_texts(model) else "feature vectors."),
        "## Usage\n\n" + _usage(model, repo_id),
        "## Data\n\n" + _data(model, details.data),
        "## Metrics\n\n" + _metrics(details.evaluation),
        "## Calibration\n\n" + _calibration(model, details.evaluation),
        "## Limitations\n\n" + _limitations(model),
    ]
    return _metadata(model, repo_id, details) + "\n\n".join(sections) + "\n"


def _metadata(model: Any, repo_id: str, details: CardDetails) -> str:
    """Return the YAML block; values are written as JSON, which is valid YAML."""
    language = details.language
    values: dict[str, Any] = {
        "library_name": "carya",
        "tags": ["carya", "extreme-multi-label-classification", _kind(model)],
        "license": details.license,
        "language": [language] if isinstance(language, str) else None if language is None else list(language),
    }
    if _ranks_texts(model):
        values["pipeline_tag"] = "text-classification"
    measured = _known(details.evaluation)
    if measured:
        results = [{"type": name, "value": round(100 * value, 2)} for name, value in measured.items()]
        task = {"type": "text-classification", "name": "Extreme multi-label classification"}
        data = {"type": "other", "name": "test data"}
        values["model-index"] = [
            {"name": repo_id.rpartition("/")[2], "results": [{"task": task, "dataset": data, "metrics": results}]}
        ]
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items() if value is not None]
    return "---\n" + "\n".join(lines) + "\n---\n\n"


def _usage(model: Any, repo_id: str) -> str:
    call = (
        'for suggestion in model.suggest("a text"):\n    print(suggestion.name, suggestion.'
        + ("score)" if getattr(model, "calibration_", None) is None else "probability)")
        if _ranks_texts(model)
        else f"S = model.predict(X, top_k=10)  # X has {sum(model.widths_):,} columns"
    )
    return (
        "```sh\npip install 'carya[hub]'\n```\n\n"
        f'```python\nimport carya\n\nmodel = carya.from_pretrained("{repo_id}")\n{call}\n```'
    )


def _data(model: Any, data: str | None) -> str:
    sizes = [f"* Labels: {len(model.labels_):,}"]
    label_set = getattr(model, "label_set_", None)
    if label_set is not None and label_set.n_texts:
        sizes.append(f"* Training texts: {label_set.n_texts:,}")
    if _ranks_texts(model):
        examples = _example_labels(model)
        sizes.append(f"* {examples[0]}: " + ", ".join(f"`{name}`" for name in examples[1]))
    else:
        sizes.append(f"* Features: {sum(model.widths_):,}")
    return (data or "No description of the training data was provided.") + "\n\n" + "\n".join(sizes)


def _example_labels(model: Any) -> tuple[str, list[str]]:
    """Return a heading and the most frequent labels, or the first ones if their frequencies are unknown."""
    counts = getattr(getattr(model, "label_set_", None), "counts", None)
    if counts is None:
        return "Example labels", list(model.label_names_)[:_N_LABELS]
    order = np.argsort(-np.asarray(counts), kind="stable")[:_N_LABELS]
    return "Most frequent labels", [model.label_names_[number] for number in order.tolist()]


def _metrics(evaluation: Mapping[str, Any] | None) -> str:
    measured = _known(evaluation)
    if not measured:
        return "No metrics on test data were provided."
    cutoffs = sorted({int(name.partition("@")[2]) for name in measured})
    lines = ["| % | " + " | ".join(f"@{k}" for k in cutoffs) + " |", "|---" + "|--:" * len(cutoffs) + "|"]
    for metric, title in _METRIC_NAMES.items():
        values = [measured.get(f"{metric}@{k}") for k in cutoffs]
        if any(value is not None for value in values):
            cells = ["" if value is None else f"{100 * value:.1f}" for value in values]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    size = ""
    if evaluation and "rows" in evaluation:
        size = f"Measured on {evaluation['rows']:,} test rows, for the best 1 to {cutoffs[-1]} suggestions.\n\n"
    return size + "\n".join(lines)


def _calibration(model: Any, evaluation: Mapping[str, Any] | None) -> str:
    if getattr(model, "calibration_", None) is None:
        return "The model is not calibrated: its scores rank labels but are not probabilities."
    return (
        "The model is calibrated: `suggestion.probability` and `model.predict_proba` estimate the probability that a "
        "suggested label is correct."
    ) + _calibration_error(evaluation)


def _calibration_error(evaluation: Mapping[str, Any] | None) -> str:
    error = None if evaluation is None else evaluation.get("ECE@5")
    if error is None:
        return ""
    return (
        f" On the test rows, the probabilities of the best five suggestions differ from the observed fractions by "
        f"{100 * error:.1f} percentage points on average (ECE@5)."
    )


def _limitations(model: Any) -> str:
    limits = [
        "Only labels that occur in the training data can be suggested.",
        "Labels with few training rows are ranked less reliably than frequent labels.",
        "The model reproduces errors and biases in the labels of its training data.",
    ]
    if _ranks_texts(model):
        limits.append("Rankings are poor for texts in languages or domains other than those of the training texts.")
    return "\n".join(f"* {limit}" for limit in limits)


def _known(evaluation: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the metrics to show in a card."""
    return {} if evaluation is None else {name: float(evaluation[name]) for name in _METRICS if name in evaluation}


def _ranks_texts(model: Any) -> bool:
    return hasattr(model, "label_names_")


def _kind(model: Any) -> str:
    return str(getattr(model, "model_kind_", type(model).__name__))
