"""A sequence-classification model with its tokenizer, trained to score (text, label text) pairs."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from carya.core.progress import Report
from carya.errors import InputError
from carya.fork_safety import ForkSafeLock
from carya.ranking.pairs import PairTexts
from carya.transformer.encoder.encoder import silent_transformers
from carya.transformer.training import distributed

if TYPE_CHECKING:
    from carya.transformer.reranking.cross_encoder import CrossEncoderRanker

_TOKENIZER_LOCK = ForkSafeLock()  # a tokenizer must not be used by several threads at the same time


class PairModel:
    """A sequence-classification model with one output.

    Parameters
    ----------
    model, tokenizer : objects from ``transformers``
    max_length : int
        Maximum number of tokens per pair.
    """

    def __init__(self, model: Any, tokenizer: Any, max_length: int) -> None:
        self.model = model.eval()
        if getattr(model.config, "summary_type", None) == "last":
            tokenizer.padding_side = "left"  # XLNet classifies by the last token, which must not be padding
        self.tokenizer = tokenizer
        self.max_length = max_length

    @classmethod
    def load(cls, name: str, *, max_length: int, seed: int, device: str) -> PairModel:
        """Load a model from a folder, or by name from the Hugging Face Hub or its cache.

        If its classification layer does not have exactly one output, a new layer is initialized randomly with the seed.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, tokenizer = _load(name, ignore_mismatched_sizes=True)
        if tokenizer.pad_token_id is None:  # many decoders have no padding token
            if tokenizer.eos_token_id is None:
                raise InputError(
                    f"The tokenizer of {name!r} must have a padding or end-of-sequence token, but it has neither. Use "
                    "another encoder."
                )
            tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
        positions = getattr(model.config, "max_position_embeddings", None)
        limit = min(positions if positions and positions > 0 else 2**20, tokenizer.model_max_length)
        if max_length > limit:
            raise InputError(f"max_length must be at most {limit}, the limit of the encoder, got {max_length}.")
        try:
            place = distributed.local_device() if device == "auto" else torch.device(device)
            return cls(model.to(place), tokenizer, max_length)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device {device!r} cannot be used: {error}") from None

    @classmethod
    def load_saved(cls, folder: Path, *, max_length: int) -> PairModel:
        """Load a model saved by :meth:`save`, on the default device; only safetensors files are read."""
        model, tokenizer = _load(folder, use_safetensors=True, local_files_only=True)
        return cls(model.to(distributed.local_device()), tokenizer, max_length)

    def save(self, folder: Path) -> None:
        """Save the weights (safetensors), configuration and tokenizer in the ``transformers`` format."""
        with silent_transformers():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    def train_on(
        self,
        texts: PairTexts,
        offsets: NDArray[np.int64],
        targets: NDArray[np.float32],
        settings: CrossEncoderRanker,
        report: Report,
    ) -> list[float]:
        """Train on the pairs of all queries that have a relevant candidate; return the mean loss of each epoch."""
        sums = np.add.reduceat(np.append(targets, 0), offsets[:-1]) * (np.diff(offsets) > 0)
        useful = np.flatnonzero((np.diff(offsets) > 1) & (sums > 0))
        if not useful.size:
            raise InputError(
                "The ranker cannot be trained: no query has two or more candidates of which at least one is relevant."
            )
        rng = np.random.default_rng(settings.seed)
        steps_per_epoch = -(-useful.size // settings.batch_size)
        n_steps = settings.epochs * steps_per_epoch
        optimizer = torch.optim.AdamW(_parameter_groups(self.model, settings.weight_decay), lr=settings.learning_rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: _learning_rate_factor(step, n_steps, settings.warmup_ratio)
        )
        losses = []
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(settings.seed)
            self.model.train()
            try:
                for epoch in range(settings.epochs):
                    order, total = rng.permutation(useful), 0.0
                    for step, begin in enumerate(range(0, order.size, settings.batch_size), 1):
                        chosen = [
                            _sample(rng, offsets[query], offsets[query + 1], targets, settings.n_negatives)
                            for query in order[begin : begin + settings.batch_size]
                        ]
                        total += self._step(texts, offsets, targets, chosen, settings.loss, optimizer)
                        schedule.step()
                        if report is not None:
                            report(epoch * steps_per_epoch + step, n_steps)
                    losses.append(total / steps_per_epoch)
            finally:
                self.model.eval()
        return losses

    @property
    def device(self) -> torch.device:
        """The device on which the weights are stored."""
        device: torch.device = next(self.model.parameters()).device
        return device

    @torch.no_grad()
    def score(self, texts: PairTexts, queries: NDArray[np.int64], *, batch_size: int) -> NDArray[np.float32]:
        """Return the output for each pair; `queries` contains the index of the query of each pair.

        Pairs whose texts have similar lengths are scored in the same batch.
        """
        lengths = np.array([len(texts.queries[query]) for query in range(len(texts.queries))], np.int64)[queries]
        order = np.argsort(lengths, kind="stable")
        scores = np.zeros(order.size, np.float32)
        for begin in range(0, order.size, batch_size):
            batch = order[begin : begin + batch_size]
            with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
                scores[batch] = self._forward(texts, queries[batch], batch).float().cpu().numpy()
        return scores

    def _step(
        self,
        texts: PairTexts,
        offsets: NDArray[np.int64],
        targets: NDArray[np.float32],
        chosen: list[NDArray[np.int64]],
        loss_name: str,
        optimizer: torch.optim.Optimizer,
    ) -> float:
        """Perform one optimizer step on a batch of queries and return the loss; `chosen` contains their pairs."""
        pairs = np.concatenate(chosen)
        queries = np.searchsorted(offsets, pairs, side="right") - 1
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            outputs = self._forward(texts, queries, pairs).float()
        goal = torch.from_numpy(targets[pairs]).to(outputs.device)
        if loss_name == "pointwise":
            loss = nn.functional.binary_cross_entropy_with_logits(outputs, (goal > 0).float())
        else:
            sizes = [part.size for part in chosen]
            losses = [
                -(part_goal / part_goal.sum() * part.log_softmax(0)).sum()
                for part, part_goal in zip(outputs.split(sizes), goal.split(sizes), strict=True)
            ]
            loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    def _forward(self, texts: PairTexts, queries: NDArray[np.int64], pairs: NDArray[np.int64]) -> torch.Tensor:
        first = [texts.queries[query] for query in queries.tolist()]
        second = [texts.label_texts[label] for label in texts.labels[pairs].tolist()]
        with _TOKENIZER_LOCK:
            batch = self.tokenizer(
                first,
                second,
                truncation="longest_first",
                max_length=self.max_length,
                padding=True,
                return_tensors="pt",
            )
        output: torch.Tensor = self.model(**batch.to(self.device)).logits[:, 0]
        return output


def _load(name: str | os.PathLike[str], **options: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    name = os.fspath(name)
    try:
        with silent_transformers():
            model = AutoModelForSequenceClassification.from_pretrained(
                name, num_labels=1, dtype=torch.float32, trust_remote_code=False, **options
            )
            local_only = options.get("local_files_only", False)
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=local_only)
    except Exception as error:  # transformers raises many types of exceptions for invalid files
        raise InputError(f"encoder {name!r} cannot be loaded: {error}") from None
    return model, tokenizer


def _sample(
    rng: np.random.Generator, begin: int, end: int, targets: NDArray[np.float32], n_negatives: int
) -> NDArray[np.int64]:
    """Return all relevant pairs for a query and a random selection of its other pairs."""
    pairs = np.arange(begin, end)
    negatives = pairs[targets[begin:end] == 0]
    if negatives.size > n_negatives:
        negatives = rng.choice(negatives, n_negatives, replace=False)
    return np.sort(np.concatenate([pairs[targets[begin:end] > 0], negatives]))


def _parameter_groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Return the parameters with and those without weight decay; the latter are biases and normalization weights."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in parameters if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


def _learning_rate_factor(step: int, n_steps: int, warmup_ratio: float) -> float:
    """Return the learning rate relative to its peak: a linear increase, then a linear decrease."""
    warmup = math.ceil(n_steps * warmup_ratio)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(0.0, (n_steps - step) / max(1, n_steps - warmup))
