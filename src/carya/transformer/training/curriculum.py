"""The stages of training: from few clusters and short texts to all labels and whole ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from carya.errors import ParameterError


@dataclass(frozen=True)
class Stage:
    """One level's turn.

    Attributes
    ----------
    level : int
        Of the tree, 1 … D.
    epochs : int
    max_length : int
        The most tokens of a text.
    """

    level: int
    epochs: int
    max_length: int


def stages(levels: Sequence[int], epochs: int | Sequence[int], max_length: int, *, shorter_first: bool) -> list[Stage]:
    """A stage for each level; if `shorter_first`, texts are half as long at every level above the last, down to 32.

    >>> for stage in stages([1, 2, 3], (1, 2, 10), 128, shorter_first=True):
    ...     print(stage)
    Stage(level=1, epochs=1, max_length=32)
    Stage(level=2, epochs=2, max_length=64)
    Stage(level=3, epochs=10, max_length=128)
    >>> stages([2], 5, 64, shorter_first=True)
    [Stage(level=2, epochs=5, max_length=64)]
    """
    each = [epochs] * len(levels) if isinstance(epochs, int) else list(epochs)
    if len(each) > len(levels):
        each = each[-len(levels) :]  # a small data set has fewer levels than one thought of
    each = [each[0]] * (len(levels) - len(each)) + each
    if not any(each):
        raise ParameterError(f"epochs must be above 0 for at least one level, got {epochs!r}")
    made = []
    for place, (level, count) in enumerate(zip(levels, each, strict=True)):
        halved = max_length >> (len(levels) - 1 - place) if shorter_first else max_length
        if count:
            made.append(Stage(level, count, min(max_length, max(32, halved))))
    return made
