"""Generated texts about a few topics, with known labels."""

from __future__ import annotations

import numpy as np

import carya

TOPICS = {
    "cooking": "recipe oven flour butter bake kitchen taste salt",
    "astronomy": "star planet telescope orbit galaxy moon light dust",
    "sailing": "boat wind sail harbor wave rope anchor tide",
    "chess": "king queen rook pawn check mate board opening",
}


def corpus(rows: int = 300, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Return texts about one or two topics and their labels: one per topic, and one per distinct topic word."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(rows):
        topics = rng.choice(sorted(TOPICS), rng.integers(1, 3), replace=False).tolist()
        words = [str(word) for topic in topics for word in rng.choice(TOPICS[topic].split(), 5)]
        texts.append(" ".join(words))
        labels.append(
            topics + [f"{topic}/{word}" for topic in topics for word in TOPICS[topic].split() if word in words]
        )
    return texts, labels


def overlapping_tree(labels: list[str]) -> carya.LabelTree:
    """Return a tree with one cluster per topic; the label chess/queen is also in the cooking cluster."""
    topics = sorted(TOPICS)
    leaves = [(number, topics.index(label.partition("/")[0])) for number, label in enumerate(labels)]
    leaves = sorted([*leaves, (labels.index("chess/queen"), topics.index("cooking"))])
    return carya.LabelTree([[0] * len(topics), [topic for _, topic in leaves]], [label for label, _ in leaves])
