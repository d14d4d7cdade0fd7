"""Pool token embeddings into text embeddings: use the first token, the last token, or the mean of all tokens."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from carya.transformer.encoder.batches import Batch

#: Architectures in which the first token is trained to represent the text.
_FIRST_TOKEN = frozenset(
    {
        "albert",
        "bert",
        "camembert",
        "convbert",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "ernie",
        "modernbert",
        "mpnet",
        "rembert",
        "roberta",
        "xlm-roberta",
        "xlm-roberta-xl",
    }
)
#: Architectures in which the last token attends to all other tokens.
_LAST_TOKEN = frozenset(
    {
        "xlnet",
        "gpt2",
        "gpt_neox",
        "llama",
        "mistral",
        "opt",
        "phi3",
        "qwen2",
        "qwen3",
        "gemma2",
        "gemma3_text",
    }
)
_SENTENCE_TRANSFORMERS_MODES = {"cls": "first", "mean": "mean", "lasttoken": "last"}
_SENTENCE_TRANSFORMERS_FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


def pool_padded(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return the text embeddings of a padded batch."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "last":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), mask.sum(1) - 1]
    weights = mask[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)


def pool_packed(hidden: torch.Tensor, batch: Batch, rows: int, pooling: str) -> torch.Tensor:
    """Return the text embeddings of a packed batch; rows beyond its texts are undefined."""
    starts, text_numbers = batch.starts, batch.text_numbers
    assert starts is not None  # for the type checker; both tensors exist in a packed batch
    assert text_numbers is not None
    if pooling == "mean":
        sums = torch.zeros(rows + 1, hidden.shape[1], dtype=torch.float32, device=hidden.device)
        sums = sums.index_add(0, text_numbers, hidden.float())[:rows]
        return sums / (starts[1 : rows + 1] - starts[:rows]).clamp(min=1)[:, None]
    tokens = starts[:rows] if pooling == "first" else starts[1 : rows + 1] - 1
    return hidden[tokens.long().clamp(max=hidden.shape[0] - 1)]


def default_pooling(name: str, architecture: str) -> str:
    """Return the pooling method configured in the encoder's folder, or the usual one for its architecture."""
    configured = _configured_pooling(name)
    if configured is not None:
        return configured
    return "first" if architecture in _FIRST_TOKEN else "last" if architecture in _LAST_TOKEN else "mean"


def _configured_pooling(name: str) -> str | None:
    """Return the pooling method of a sentence-transformers model, or None if none is configured."""
    from transformers.utils import cached_file

    path = cached_file(
        name,
        "1_Pooling/config.json",
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        return None
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    if config.get("pooling_mode") in _SENTENCE_TRANSFORMERS_MODES:
        return _SENTENCE_TRANSFORMERS_MODES[config["pooling_mode"]]
    return next((pooling for flag, pooling in _SENTENCE_TRANSFORMERS_FLAGS.items() if config.get(flag)), None)
