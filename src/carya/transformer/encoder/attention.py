"""Attention within concatenated texts, for encoders with a configurable attention function.

Encoders from ``transformers`` call a registered attention function. This function receives the boundaries of the texts,
so it requires neither a mask nor padding. On a GPU, it uses PyTorch's variable-length flash attention. On a CPU, where
it is used only in tests and comparisons, it uses standard attention with a block-diagonal mask.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "carya_packed"


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    text_starts: torch.Tensor,
    longest_text: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention output; each token attends only to tokens in the same text.

    The signature is the one that ``transformers`` requires.

    Parameters
    ----------
    query, key, value : tensors of shape (1, heads, tokens, width)
    text_starts : int32 tensor of shape (texts + 1,)
    longest_text : int
        Maximum number of tokens per text.
    """
    if query.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        options: dict[str, Any] = {} if sliding_window is None else {"window_size": (sliding_window - 1,) * 2}
        if scaling is not None and abs(scaling - query.shape[-1] ** -0.5) > 1e-9:
            options["scale"] = scaling
        tensors = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
        if tensors[0].dtype == torch.float32:  # rotary position embeddings return float32 under autocast
            tensors = [tensor.to(torch.bfloat16) for tensor in tensors]
        output = varlen_attn(*tensors, text_starts, text_starts, longest_text, longest_text, **options)
        return output[None], None
    positions = torch.arange(query.shape[2], device=query.device)
    text = torch.searchsorted(text_starts[1:].long(), positions, right=True)
    mask = text[:, None] == text[None, :]
    if sliding_window is not None:
        mask &= (positions[:, None] - positions[None, :]).abs() < sliding_window
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return output.transpose(1, 2).contiguous(), None


def register() -> None:
    """Register the attention function with ``transformers`` under :data:`NAME`."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, packed_attention)
