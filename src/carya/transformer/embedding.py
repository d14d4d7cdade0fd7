"""Convert texts to embeddings with a pretrained encoder or the encoder of a trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.transformer.settings import TransformerSettings
from carya.transformer.training.fine_tuning import load_encoder, select_device


def load_pretrained(settings: TransformerSettings) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """Load an encoder and return the function that converts texts to embeddings of norm 1."""
    settings.check_parameters()
    encoder = load_encoder(settings)
    encoder.eval()
    return lambda texts: encoder.encode_texts(texts, max_length=settings.max_length)


def move_to_device(model: Any, device: str) -> None:
    """Move the encoder of a trained model to a PyTorch device."""
    model._check_fitted().encoder.to(select_device(device))
