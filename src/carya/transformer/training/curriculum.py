"""Training curriculum: stages that progress from a few clusters and short texts to all labels and full texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from carya.errors import ParameterError

_MIN_LENGTH = 32  # tokens


@dataclass(frozen=True)
class Stage:
    """Training stage for one tree level.

    Attributes
    ----------
    level : int
        The tree level, from 1 to D.
    epochs : int
    max_length : int
        Maximum number of tokens per text.
    """

    level: int
    epochs: int
    max_length: int


def plan_stages(
    levels: Sequence[int], epochs: int | Sequence[int], max_length: int, *, progressive_length: bool
) -> list[Stage]:
    """Return one stage for each level with a nonzero number of epochs.

    Parameters
    ----------
    levels : sequence of int
        Tree levels, from coarse to fine.
    epochs : int or sequence of int
        The number of epochs for all levels, or a sequence with one number for each of the last levels; earlier
        levels use the first number.
    max_length : int
    progressive_length : bool
        Whether to halve the maximum text length at each level above the last, down to 32 tokens.

    Examples
    --------
    >>> for stage in plan_stages([1, 2, 3], (1, 2, 10), 128, progressive_length=True):
    ...     print(stage)
    Stage(level=1, epochs=1, max_length=32)
    Stage(level=2, epochs=2, max_length=64)
    Stage(level=3, epochs=10, max_length=128)
    >>> plan_stages([2], 5, 64, progressive_length=True)
    [Stage(level=2, epochs=5, max_length=64)]
    """
    counts = list(epochs) if isinstance(epochs, Sequence) else [epochs] * len(levels)
    counts = counts[-len(levels) :]  # small trees have fewer levels
    counts = [counts[0]] * (len(levels) - len(counts)) + counts
    if not any(counts):
        raise ParameterError(f"epochs must be greater than 0 for at least one level, got {epochs!r}.")
    stages = []
    for index, (level, count) in enumerate(zip(levels, counts, strict=True)):
        halved = max_length >> (len(levels) - 1 - index) if progressive_length else max_length
        if count:
            stages.append(Stage(level, count, min(max_length, max(_MIN_LENGTH, halved))))
    return stages
