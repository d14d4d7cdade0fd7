"""Estimate the fine-tuning time on a CPU, which can be hours, and warn before fine-tuning starts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence

import numpy as np

from carya.errors import SlowTrainingWarning
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.encoder.tokens import Tokens
from carya.transformer.training.curriculum import Stage

_MIN_TOKENS = 200_000  # fewer training tokens take at most a few minutes
_LONG = 300.0  # seconds
_SAMPLE_TOKENS = 1024
_STEP_COST = 3.5  # cost of a training step (forward, backward and update) relative to encoding the same tokens


def warn_if_slow(
    encoder: Encoder, tokens: Tokens, stages: Sequence[Stage], *, extra_epochs: int = 0, runs: int = 1
) -> None:
    """Issue SlowTrainingWarning if the encoder is on a CPU and training it is expected to take long.

    Parameters
    ----------
    tokens : Tokens
        The training texts.
    extra_epochs : int
        Number of epochs with texts of the maximum length, in addition to those of the stages.
    runs : int
        Number of times that the encoder is trained.
    """
    if encoder.device.type != "cpu":
        return
    longest = max(stage.max_length for stage in stages)
    passes = [(stage.epochs, stage.max_length) for stage in stages] + [(extra_epochs, longest)]
    n_tokens = runs * sum(epochs * int(tokens.lengths(length).sum()) for epochs, length in passes)
    if n_tokens < _MIN_TOKENS:
        return
    seconds = _STEP_COST * n_tokens / _tokens_per_second(encoder, tokens, longest)
    if seconds >= _LONG:
        warnings.warn(
            f"Fine-tuning is expected to take about {round(seconds / 60)} minutes on this CPU. Use a GPU, set "
            "fine_tune=False to use the encoder without fine-tuning, or decrease epochs or max_length.",
            SlowTrainingWarning,
            stacklevel=2,
        )


def _tokens_per_second(encoder: Encoder, tokens: Tokens, max_length: int) -> float:
    """Return the number of tokens that the encoder processes per second, measured on a sample of the texts."""
    lengths = tokens.lengths(max_length)
    order = np.random.default_rng(0).permutation(len(tokens))
    count = 1 + int(np.searchsorted(np.cumsum(lengths[order]), _SAMPLE_TOKENS))
    sample = tokens.take(np.sort(order[:count]))
    encoder.encode(sample.take(np.zeros(1, np.int64)), max_length=max_length)  # the first call takes longer
    started = time.perf_counter()
    encoder.encode(sample, max_length=max_length)
    return float(sample.lengths(max_length).sum()) / max(time.perf_counter() - started, 1e-6)
