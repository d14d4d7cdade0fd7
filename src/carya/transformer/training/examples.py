"""What goes into a training and what it gives account of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.transformer.encoder.tokens import Tokens
from carya.transformer.training.heads import Targets


@dataclass(frozen=True, eq=False)
class Examples:
    """Texts and what they should find, at every level."""

    tokens: Tokens
    targets: Sequence[Targets]

    def select(self, rows: NDArray[np.int64]) -> Examples:
        """Some of them."""
        return Examples(self.tokens.select(rows), [one.select(rows) for one in self.targets])


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train; :class:`carya.XRTransformer` says what each means."""

    loss: str = "bce"
    head: str = "auto"
    negatives: str = "both"
    beam: int = 10
    learning_rate: float = 1e-4
    head_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.1
    batch_tokens: int = 16384
    accumulate: int = 1
    patience: int | None = None
    compiled: bool | None = None
    packed: bool | None = None
    checkpoint_steps: int = 500
    seed: int = 0


@dataclass
class Account:
    """What training did.

    Attributes
    ----------
    epochs : list of int
        How many epochs each stage took; with early stopping, up to the best.
    history : list of dict
        For each epoch the stage, the mean loss, tokens and seconds, and with dev texts P@1, P@3 and P@5 there.
    """

    epochs: list[int] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
