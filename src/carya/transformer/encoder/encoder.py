"""Text encoder: converts texts to unit vectors with any model that ``transformers.AutoModel`` can load."""

from __future__ import annotations

import contextlib
import inspect
import logging as python_logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from carya.core.inputs.prefetch import prefetch
from carya.core.progress import Report
from carya.errors import InputError
from carya.transformer.encoder import attention
from carya.transformer.encoder.batches import Batch, BatchLayout, make_batch, make_batches, split_batches
from carya.transformer.encoder.pooling import default_pooling, pool_packed, pool_padded
from carya.transformer.encoder.tokens import Tokens

_UNLIMITED_LENGTH = 2**20
_MAX_CPU_BATCH_TOKENS = 4096


class Encoder(nn.Module):
    """A pretrained model with its tokenizer and pooling.

    Parameters
    ----------
    model, tokenizer : objects from ``transformers``
    pooling : {"first", "mean", "last"}
    pooled_layers : int
        Number of final layers whose embeddings are concatenated.

    Attributes
    ----------
    width : int
        The dimension of the embeddings.
    supports_packing : bool
        Whether packed texts have the same embeddings as separately encoded texts.
    """

    def __init__(self, model: Any, tokenizer: Any, pooling: str, pooled_layers: int = 1) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.pooled_layers = pooled_layers
        self.width = pooled_layers * int(getattr(model.config, "hidden_size", None) or model.config.d_model)
        self._default_attention = model.config._attn_implementation
        embeddings: Any = getattr(model, "embeddings", None)
        after_padding = hasattr(embeddings, "create_position_ids_from_input_ids")
        self.first_position = int(embeddings.padding_idx) + 1 if after_padding else 0
        self.supports_packing = self._test_packing()

    @classmethod
    def load(
        cls, name: str | os.PathLike[str], *, pooling: str = "auto", pooled_layers: int = 1, saved: bool = False
    ) -> Encoder:
        """Load an encoder from a folder, or by name from the Hugging Face Hub or its cache.

        Code that is stored with an encoder is never run. If `saved` is true, the encoder is part of a saved model: only
        local files are read, and the weights must be in the safetensors format, because loading pickled weights can run
        code.
        """
        from transformers import AutoModel, AutoTokenizer

        name = os.fspath(name)
        try:
            with silent_transformers():
                options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": saved}
                weights = {"use_safetensors": True} if saved else {}
                model = AutoModel.from_pretrained(name, dtype=torch.float32, **options, **weights)
                tokenizer = AutoTokenizer.from_pretrained(name, **options)
                tokenizer.init_kwargs.pop("local_files_only", None)  # would otherwise be saved with the tokenizer
        except Exception as error:  # transformers raises many types of exceptions for invalid files
            reason = str(error).strip().partition("\n")[0]  # the other lines contain advice about the Hugging Face Hub
            raise InputError(f"encoder {name!r} cannot be loaded: {reason}") from None
        if getattr(model.config, "is_encoder_decoder", False):
            model = model.get_encoder()
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # not used here; it would be saved but never trained
        model.config.use_cache = False
        n_layers = getattr(model.config, "num_hidden_layers", pooled_layers)
        if pooled_layers > n_layers:
            raise InputError(
                f"pooled_layers must be at most {n_layers}, the number of encoder layers, got {pooled_layers}."
            )
        if pooling == "auto":
            pooling = default_pooling(name, model.config.model_type)
        if not saved:
            return cls(model, tokenizer, pooling, pooled_layers)
        try:
            encoder = cls(model, tokenizer, pooling, pooled_layers)
            encoder.encode_texts(["a"], max_length=min(encoder.max_length, 16))
        except Exception as error:  # the configuration and the tokenizer can be invalid in many ways
            raise InputError(f"encoder {name!r} cannot encode texts: {error}") from None
        return encoder

    @property
    def max_length(self) -> int:
        """The maximum number of tokens per text."""
        n_positions = getattr(self.model.config, "max_position_embeddings", None) or _UNLIMITED_LENGTH
        limit = n_positions - self.first_position if n_positions > 0 else _UNLIMITED_LENGTH
        return min(limit, self.tokenizer.model_max_length)

    @property
    def device(self) -> torch.device:
        """The device on which the weights are stored."""
        return next(self.model.parameters()).device

    def layout(
        self, lengths: NDArray[np.int64], max_length: int, tokens: int, *, packed: bool | None = None
    ) -> BatchLayout:
        """Return the batch layout; by default, batches are packed on a GPU if the encoder supports packing."""
        packed = self.supports_packing and self.device.type == "cuda" if packed is None else packed
        pad = self.tokenizer.pad_token_id or 0
        return BatchLayout.of(lengths, max_length, tokens, packed=packed, pad=pad, first_position=self.first_position)

    def set_attention(self, *, packed: bool) -> None:
        """Select the attention function for packed or padded batches."""
        name = attention.NAME if packed else self._default_attention
        if self.model.config._attn_implementation != name:
            self.model.set_attn_implementation(name)

    def forward(self, batch: Batch, rows: int) -> torch.Tensor:
        """Return the embeddings, which are unit vectors, as a tensor of shape (rows, width).

        For a packed batch, the rows after the last text are undefined.
        """
        options: dict[str, Any] = {"output_hidden_states": True} if self.pooled_layers > 1 else {}
        if batch.mask is not None:
            output = self.model(input_ids=batch.ids, attention_mask=batch.mask, **options)
            pooled = [pool_padded(hidden, batch.mask, self.pooling) for hidden in self._last_layers(output)]
        else:
            options |= {"position_ids": batch.positions, "text_starts": batch.starts, "longest_text": batch.longest}
            output = self.model(input_ids=batch.ids, **options)
            pooled = [pool_packed(hidden[0], batch, rows, self.pooling) for hidden in self._last_layers(output)]
        units = [nn.functional.normalize(embeddings.float(), dim=-1) for embeddings in pooled]
        return units[0] if len(units) == 1 else torch.cat(units, dim=-1) / len(units) ** 0.5

    def _last_layers(self, output: Any) -> list[torch.Tensor]:
        """Return the token embeddings of the pooled layers."""
        return [output[0]] if self.pooled_layers == 1 else list(output.hidden_states[-self.pooled_layers :])

    @torch.inference_mode()
    def encode(
        self, tokens: Tokens, *, max_length: int, batch_tokens: int = 1 << 16, report: Report = None
    ) -> NDArray[np.float32]:
        """Return the embeddings of the texts as an array of shape (texts, width); each embedding has norm 1."""
        was_training = self.training
        self.eval()
        embeddings = np.zeros((len(tokens), self.width), np.float32)
        lengths = tokens.lengths(max_length)
        cuda = self.device.type == "cuda"
        layout = self.layout(lengths, max_length, batch_tokens if cuda else min(batch_tokens, _MAX_CPU_BATCH_TOKENS))
        self.set_attention(packed=layout.packed)
        # The longest texts come first: if the first batch fits into memory, all others do as well.
        order = np.argsort(lengths, kind="stable")[::-1].copy()
        batches = make_batches(tokens, split_batches(order, lengths, layout), layout, pinned=cuda)
        done = 0
        try:
            for batch in prefetch(batches):
                with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
                    output = self(batch.to(self.device), layout.rows)
                embeddings[batch.rows] = output[: batch.rows.size].cpu().numpy()
                done += batch.rows.size
                if report is not None:
                    report(done, len(tokens))
        finally:
            self.train(was_training)
        return embeddings

    def encode_texts(self, texts: Sequence[str], *, max_length: int) -> NDArray[np.float32]:
        """Tokenize the texts and return their embeddings."""
        return self.encode(Tokens.of(texts, self.tokenizer, max_length=max_length), max_length=max_length)

    def save(self, folder: Path) -> None:
        """Save the weights (safetensors), configuration and tokenizer in the ``transformers`` format."""
        self.set_attention(packed=False)
        with silent_transformers():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    @torch.no_grad()
    def _test_packing(self) -> bool:
        """Encode two texts both packed and separately; return whether the embeddings are the same."""
        arguments = inspect.signature(self.model.forward).parameters
        if "position_ids" not in arguments or all(
            argument.kind is not argument.VAR_KEYWORD for argument in arguments.values()
        ):
            return False
        attention.register()
        was_training = self.training
        self.eval()
        ids = (np.arange(12, dtype=np.int32) * 7 + 3) % min(self.model.config.vocab_size, 97)
        tokens = Tokens(ids, np.array([0, 7, 12], np.int64))
        options = {"max_length": 12, "tokens": 16, "rows": 2, "first_position": self.first_position}
        rows = np.arange(2)
        try:
            separate = self(make_batch(tokens, rows, BatchLayout(packed=False, **options)), 2)
            self.set_attention(packed=True)
            packed = self(make_batch(tokens, rows, BatchLayout(packed=True, **options)), 2)
        except (TypeError, ValueError, RuntimeError, KeyError, IndexError, AttributeError):
            return False
        finally:
            self.set_attention(packed=False)
            self.train(was_training)
        return bool(torch.allclose(separate, packed, atol=1e-4))


@contextlib.contextmanager
def silent_transformers() -> Iterator[None]:
    """Suppress progress bars and warnings from ``transformers``; the warnings concern layers that are not used here."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub = python_logging.getLogger("huggingface_hub")  # logs every attempt to download a file
    hub_level = hub.level
    hub.setLevel(python_logging.ERROR)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub.setLevel(hub_level)
        if bars:
            logging.enable_progress_bar()
