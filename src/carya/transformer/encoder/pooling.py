"""Where in a text its vector is taken from: the first token, the last, or the mean of all."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from carya.transformer.encoder.batches import Batch

#: Kinds whose first token was trained to stand for the text; of others that read both ways the mean is taken.
_FIRST = frozenset(
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
#: Kinds whose last token has seen all others.
_LAST = frozenset(
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


def pool_padded(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """The vectors of texts in rows with padding."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "last":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), mask.sum(1) - 1]
    weights = mask[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)


def pool_packed(hidden: torch.Tensor, batch: Batch, rows: int, pooling: str) -> torch.Tensor:
    """The vectors of texts that lie one behind the other; behind them some that nobody reads."""
    starts, owner = batch.starts, batch.owner
    assert starts is not None  # for the type checker: a packed batch has them
    assert owner is not None
    if pooling == "mean":
        sums = torch.zeros(rows + 1, hidden.shape[1], dtype=torch.float32, device=hidden.device)
        sums = sums.index_add(0, owner, hidden.float())[:rows]
        return sums / (starts[1 : rows + 1] - starts[:rows]).clamp(min=1)[:, None]
    places = starts[:rows] if pooling == "first" else starts[1 : rows + 1] - 1
    return hidden[places.long().clamp(max=hidden.shape[0] - 1)]


def pooling_of(name: str, kind: str) -> str:
    """What the encoder's own folder says, else what suits its kind."""
    said = _said_pooling(name)
    if said is not None:
        return said
    return "first" if kind in _FIRST else "last" if kind in _LAST else "mean"


def _said_pooling(name: str) -> str | None:
    """The pooling in a folder of sentence-transformers."""
    from transformers.utils import cached_file

    found = cached_file(
        name,
        "1_Pooling/config.json",
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if found is None:
        return None
    about = json.loads(Path(found).read_text(encoding="utf-8"))
    modes = {"cls": "first", "mean": "mean", "lasttoken": "last"}
    if about.get("pooling_mode") in modes:
        return modes[about["pooling_mode"]]
    for key, pooling in (
        ("pooling_mode_mean_tokens", "mean"),
        ("pooling_mode_cls_token", "first"),
        ("pooling_mode_lasttoken", "last"),
    ):
        if about.get(key):
            return pooling
    return None
