"""Any encoder that ``transformers.AutoModel`` can load, as a function from texts to vectors of length 1."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from carya.core.prefetch import read_ahead
from carya.core.progress import Report
from carya.errors import InputError
from carya.transformer.encoder import attention, batches
from carya.transformer.encoder.batches import Batch, Layout
from carya.transformer.encoder.pooling import pool_packed, pool_padded, pooling_of
from carya.transformer.encoder.tokens import Tokens


class Encoder(nn.Module):
    """An encoder with its tokenizer, and how a text's vector is taken from those of its tokens.

    Parameters
    ----------
    pooling : {"first", "mean", "last"}
    layers : int
        How many of the last layers a vector is made of, side by side.
    """

    def __init__(self, model: Any, tokenizer: Any, pooling: str, layers: int = 1) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.layers = layers
        self.width = layers * int(getattr(model.config, "hidden_size", None) or model.config.d_model)
        self._plain = model.config._attn_implementation
        embeddings: Any = getattr(model, "embeddings", None)
        behind_padding = hasattr(embeddings, "create_position_ids_from_input_ids")
        self.first_position = int(embeddings.padding_idx) + 1 if behind_padding else 0
        self.packs = self._packs()

    @classmethod
    def load(cls, name: str | os.PathLike[str], *, pooling: str = "auto", layers: int = 1) -> Encoder:
        """An encoder from a folder or, by its name, from the Hugging Face hub or its cache."""
        from transformers import AutoModel, AutoTokenizer

        name = os.fspath(name)
        try:
            with _quiet():
                model = AutoModel.from_pretrained(name, dtype=torch.float32)
                tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise InputError(f"encoder {name!r} cannot be loaded: {error}") from None
        if getattr(model.config, "is_encoder_decoder", False):
            model = model.get_encoder()
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # a layer of another task, which would be saved and never trained
        model.config.use_cache = False
        most = getattr(model.config, "num_hidden_layers", layers)
        if layers > most:
            raise InputError(f"layers is {layers}, the encoder has {most}")
        pooling = pooling if pooling != "auto" else pooling_of(name, model.config.model_type)
        return cls(model, tokenizer, pooling, layers)

    @property
    def longest(self) -> int:
        """The most tokens the encoder can read."""
        most = getattr(self.model.config, "max_position_embeddings", None) or 2**20
        return min(most - self.first_position if most > 0 else 2**20, self.tokenizer.model_max_length)

    def layout(self, lengths: NDArray[np.int64], max_length: int, tokens: int, *, packed: bool | None = None) -> Layout:
        """How batches of texts should be laid out; packed if the encoder can and is on a GPU, unless told."""
        packed = self.packs and self.device.type == "cuda" if packed is None else packed
        pad = self.tokenizer.pad_token_id or 0
        return Layout.of(lengths, max_length, tokens, packed=packed, pad=pad, first_position=self.first_position)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.model.parameters()).device

    def use(self, *, packed: bool) -> None:
        """Choose the attention for packed or for padded batches."""
        wanted = attention.NAME if packed else self._plain
        if self.model.config._attn_implementation != wanted:
            self.model.set_attn_implementation(wanted)

    def forward(self, batch: Batch, rows: int) -> torch.Tensor:
        """Vectors of length 1, shape (rows, width); a packed batch gives zeros behind its own texts."""
        about: dict[str, Any] = {"output_hidden_states": True} if self.layers > 1 else {}
        if batch.mask is not None:
            found = self.model(input_ids=batch.ids, attention_mask=batch.mask, **about)
            pooled = [pool_padded(one, batch.mask, self.pooling) for one in self._last(found)]
        else:
            about |= {"position_ids": batch.positions, "text_starts": batch.starts, "longest_text": batch.longest}
            found = self.model(input_ids=batch.ids, **about)
            pooled = [pool_packed(one[0], batch, rows, self.pooling) for one in self._last(found)]
        units = [nn.functional.normalize(one.float(), dim=-1) for one in pooled]
        return units[0] if len(units) == 1 else torch.cat(units, dim=-1) / len(units) ** 0.5

    def _last(self, found: Any) -> list[torch.Tensor]:
        """What the last layers make of the tokens."""
        return [found[0]] if self.layers == 1 else list(found.hidden_states[-self.layers :])

    @torch.inference_mode()
    def encode(
        self, tokens: Tokens, *, max_length: int, batch_tokens: int = 1 << 16, report: Report = None
    ) -> NDArray[np.float32]:
        """The vectors of texts, shape (texts, width), each of length 1."""
        was_training = self.training
        self.eval()
        vectors = np.zeros((len(tokens), self.width), np.float32)
        lengths = tokens.lengths(max_length)
        cuda = self.device.type == "cuda"
        layout = self.layout(lengths, max_length, batch_tokens if cuda else min(batch_tokens, 4096))
        self.use(packed=layout.packed)
        order = np.argsort(lengths, kind="stable")[::-1].copy()  # the largest batch first: if it fits, all do
        done = 0
        try:
            for batch in read_ahead(
                batches.stream(tokens, batches.in_order(order, lengths, layout), layout, pinned=cuda)
            ):
                with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
                    found = self(batch.to(self.device), layout.rows)
                vectors[batch.rows] = found[: batch.rows.size].cpu().numpy()
                done += batch.rows.size
                if report is not None:
                    report(done, len(tokens))
        finally:
            self.train(was_training)
        return vectors

    def save(self, folder: Path) -> None:
        """Write weights (safetensors), configuration and tokenizer as ``transformers`` does."""
        self.use(packed=False)
        with _quiet():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    @torch.no_grad()
    def _packs(self) -> bool:
        """Whether packed texts get the vectors they get one by one: the encoder itself is asked."""
        takes = inspect.signature(self.model.forward).parameters
        if "position_ids" not in takes or not any(one.kind is one.VAR_KEYWORD for one in takes.values()):
            return False
        attention.register()
        was_training = self.training
        self.eval()
        ids = (np.arange(12, dtype=np.int32) * 7 + 3) % min(self.model.config.vocab_size, 97)
        tokens = Tokens(ids, np.array([0, 7, 12], np.int64))
        about = {"max_length": 12, "tokens": 16, "rows": 2, "first_position": self.first_position}
        both = np.arange(2)
        try:
            alone = self(batches.make(tokens, both, Layout(packed=False, **about)), 2)
            self.use(packed=True)
            together = self(batches.make(tokens, both, Layout(packed=True, **about)), 2)
        except (TypeError, ValueError, RuntimeError, KeyError, IndexError, AttributeError):
            return False
        finally:
            self.use(packed=False)
            self.train(was_training)
        return bool(torch.allclose(alone, together, atol=1e-4))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and reports of ``transformers``, which concern layers that are not used here."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def encode_texts(encoder: Encoder, texts: Iterable[str], *, max_length: int) -> NDArray[np.float32]:
    """The vectors of texts."""
    return encoder.encode(Tokens.of(texts, encoder.tokenizer, max_length=max_length), max_length=max_length)
