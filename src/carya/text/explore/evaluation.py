"""Rank labels for labeled texts, in the form that the explorer page evaluates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from carya.text.explore.explorer import Explorer
from carya.text.explore.views import EvaluatedLabel, EvaluatedText, EvaluatedTexts, LabelView


def rank_labeled_texts(
    explorer: Explorer, texts: Sequence[str], labels: Sequence[Sequence[str]], *, top_k: int = 10, tree: int = 0
) -> EvaluatedTexts:
    """Rank labels for texts and match their relevant labels, given by id or name, with the labels of the model.

    Parameters
    ----------
    explorer : Explorer
    texts : sequence of str
    labels : sequence of sequences of str
        The relevant labels of each text.
    top_k : int
        Maximum number of suggested labels per text.
    tree : int
        The tree that provides the clusters of the labels.

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["red apple", "red car", "green apple", "green car"], [["fruit"], ["car"], ["fruit"], ["car"]]
    >>> explorer = Explorer(carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels))
    >>> result = rank_labeled_texts(explorer, ["an apple"], [["fruit", "food"]], top_k=1)
    >>> [label.label.name for label in result.labels], result.texts[0].relevant, result.texts[0].unknown
    (['fruit'], (0,), ('food',))
    """
    ranker = explorer.ranker
    rankings = ranker.rank_texts(list(texts), top_k=top_k)
    positions: dict[int, int] = {}
    rows = []
    for ranking, names in zip(rankings, labels, strict=True):
        numbers = [explorer.labels.index.find(name) for name in dict.fromkeys(names)]
        known = dict.fromkeys(number for number in numbers if number is not None)
        unknown = tuple(name for name, number in zip(dict.fromkeys(names), numbers, strict=True) if number is None)
        suggested = [number for number, _ in ranking]
        scores = [score for _, score in ranking]
        probabilities: list[float] = []
        if ranker.calibration_ is not None:
            ranks = np.arange(1, len(ranking) + 1)
            probabilities = ranker.calibration_.of_labels(np.array(suggested, np.int64), scores, ranks).tolist()
        for number in (*suggested, *known):
            positions.setdefault(number, len(positions))
        rows.append(
            EvaluatedText(
                tuple(positions[number] for number in suggested),
                tuple(scores),
                tuple(probabilities),
                tuple(positions[number] for number in known),
                unknown,
            )
        )
    view = explorer.tree(tree) if ranker.text_trees_ else None
    return EvaluatedTexts(
        tuple(
            EvaluatedLabel(LabelView.of(explorer.labels, number), () if view is None else view.label_path(number))
            for number in positions
        ),
        tuple(rows),
    )
