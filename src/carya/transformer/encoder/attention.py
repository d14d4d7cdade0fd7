"""Attention inside each of several texts that lie one behind the other, for any encoder that lets it be exchanged.

Encoders of ``transformers`` ask a registered function for their attention. This one is told where texts begin, and so
needs no mask and no padding: on a GPU it is PyTorch's variable-length flash attention; elsewhere, where it serves tests
and comparisons, plain attention with a mask of blocks.
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
    """What ``transformers`` calls; queries, keys and values are (1, heads, tokens, width)."""
    if query.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        about: dict[str, Any] = {} if sliding_window is None else {"window_size": (sliding_window - 1,) * 2}
        if scaling is not None and abs(scaling - query.shape[-1] ** -0.5) > 1e-9:
            about["scale"] = scaling
        three = [one[0].transpose(0, 1) for one in (query, key, value)]
        if three[0].dtype == torch.float32:  # after rotary positions under autocast
            three = [one.to(torch.bfloat16) for one in three]
        found = varlen_attn(*three, text_starts, text_starts, longest_text, longest_text, **about)
        return found[None], None
    places = torch.arange(query.shape[2], device=query.device)
    text = torch.searchsorted(text_starts[1:].long(), places, right=True)
    mask = text[:, None] == text[None, :]
    if sliding_window is not None:
        mask &= (places[:, None] - places[None, :]).abs() < sliding_window
    found = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return found.transpose(1, 2).contiguous(), None


def register() -> None:
    """Make it known to ``transformers`` under :data:`NAME`."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, packed_attention)
