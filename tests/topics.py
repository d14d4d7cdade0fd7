"""Texts of a few topics, whose labels are known."""

from __future__ import annotations

import numpy as np

import carya

TOPICS = {
    "cooking": "recipe oven flour butter bake kitchen taste salt",
    "astronomy": "star planet telescope orbit galaxy moon light dust",
    "sailing": "boat wind sail harbour wave rope anchor tide",
    "chess": "king queen rook pawn check mate board opening",
}


def corpus(rows: int = 300, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts of one or two topics; every topic has a general label and one for each of its words."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(rows):
        some = rng.choice(sorted(TOPICS), rng.integers(1, 3), replace=False).tolist()
        words = [str(word) for topic in some for word in rng.choice(TOPICS[topic].split(), 5)]
        texts.append(" ".join(words))
        labels.append(some + [f"{topic}/{word}" for topic in some for word in TOPICS[topic].split() if word in words])
    return texts, labels


def overlapping_tree(labels: list[str]) -> carya.LabelTree:
    """A cluster for each topic; chess/queen lies in that of cooking too."""
    topics = sorted(TOPICS)
    places = [(at, topics.index(label.partition("/")[0])) for at, label in enumerate(labels)]
    places = sorted([*places, (labels.index("chess/queen"), topics.index("cooking"))])
    return carya.LabelTree([[0] * len(topics), [topic for _, topic in places]], [label for label, _ in places])
