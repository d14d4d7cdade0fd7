"""Optimizer parameter groups and the learning rate schedule of a training stage."""

from __future__ import annotations

from typing import Any

from carya.transformer.encoder.encoder import Encoder
from carya.transformer.settings import TransformerSettings


def parameter_groups(encoder: Encoder, settings: TransformerSettings) -> list[dict[str, Any]]:
    """Return the encoder's parameter groups; weight decay applies only to matrices."""
    trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    rates = {"lr": settings.learning_rate, "peak_lr": settings.learning_rate}
    matrices = [parameter for parameter in trained if parameter.ndim > 1]
    vectors = [parameter for parameter in trained if parameter.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": settings.weight_decay, **rates},
        {"params": vectors, "weight_decay": 0.0, **rates},
    ]


def rate_factor(progress: float, warmup_ratio: float) -> float:
    """Return the learning rate relative to its peak: a linear increase during warmup, then a linear decrease to 0.

    >>> rate_factor(0.05, 0.1), rate_factor(0.1, 0.1), rate_factor(1.0, 0.1)
    (0.5, 1.0, 0.0)
    """
    return progress / warmup_ratio if progress < warmup_ratio else (1 - progress) / (1 - warmup_ratio)
