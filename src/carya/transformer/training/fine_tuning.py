"""From texts and a label tree to a fine-tuned encoder with heads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carya import matching
from carya.core.matrices import Csr
from carya.core.progress import Progress
from carya.errors import InputError
from carya.models.xr_linear.model import XRLinear
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.encoder.tokens import Tokens
from carya.transformer.inputs import LabelTexts
from carya.transformer.rankers.head_ranker import likened_ranker, trained_head
from carya.transformer.settings import TransformerParameters
from carya.transformer.training import distributed
from carya.transformer.training.checkpoints import Checkpoints
from carya.transformer.training.curriculum import stages
from carya.transformer.training.examples import Account, Examples, Settings
from carya.transformer.training.heads import Heads, Targets
from carya.transformer.training.trainer import Training
from carya.trees.label_tree import LabelTree


@dataclass(frozen=True, eq=False)
class Matcher:
    """A trained encoder, and its heads as a ranker.

    Attributes
    ----------
    encoder : Encoder
    head : XRLinear
        Ranks the nodes of the last trained level by the encoder's vectors.
    vectors : ndarray of float32
        Of the training texts.
    account : Account
    about : XRLinear or None
        Ranks labels by the cosine of their texts' vectors.
    """

    encoder: Encoder
    head: XRLinear | None
    vectors: NDArray[np.float32]
    account: Account = field(default_factory=Account)
    about: XRLinear | None = None


def device_of(name: str) -> torch.device:
    """The device of that name; auto is the GPU, if there is one."""
    try:
        device = distributed.own_device() if name == "auto" else torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used: {error}") from None
    return device


def load_encoder(settings: TransformerParameters) -> Encoder:
    """The encoder that parameters name, where it is to work."""
    encoder = Encoder.load(settings.encoder, pooling=settings.pooling, layers=settings.layers).to(
        device_of(settings.device)
    )
    if settings.max_length > encoder.longest:
        raise InputError(f"max_length is {settings.max_length}, the encoder reads at most {encoder.longest} tokens")
    if settings.recompute:
        encoder.model.gradient_checkpointing_enable({"use_reentrant": False})
    return encoder


def fine_tuned(
    settings: TransformerParameters,
    texts: Sequence[str],
    labels: Csr,
    tree: LabelTree,
    levels: Sequence[int],
    *,
    dev: tuple[Sequence[str], Csr] | None,
    stop_after: Sequence[int] | None,
    about: LabelTexts | None = None,
    progress: Progress,
    purpose: str,
) -> Matcher:
    """An encoder trained on levels of a tree, one after the other.

    Parameters
    ----------
    levels : sequence of int
        The levels to train, coarse to fine.
    stop_after : sequence of int, optional
        The epochs of each stage, as found before.
    about : LabelTexts, optional
        What is written about labels, to be learned too.
    purpose : str
        What this training is for, so that checkpoints of another are not mistaken for its own.
    """
    distributed.join()
    torch.manual_seed(settings.seed)
    encoder = load_encoder(settings)
    with progress.stage("tokenise") as report:
        tokens = Tokens.of(texts, encoder.tokenizer, max_length=settings.max_length, report=report)
    costs = "induce" if settings.cost_sensitive else "none"
    written = None if about is None else Tokens.of(about.texts, encoder.tokenizer, max_length=settings.max_length)
    read, wanted = tokens, labels
    if about is not None and written is not None and settings.label_text_passes:
        read = tokens.joined(*[written] * settings.label_text_passes)
        wanted = _below(labels, about.targets(settings.label_text_passes))
    examples = Examples(read, _targets(wanted, tree, costs))
    seen = None
    if dev is not None:
        dev_tokens = Tokens.of(dev[0], encoder.tokenizer, max_length=settings.max_length)
        seen = Examples(dev_tokens, _targets(dev[1], tree, "none"))
    heads = Heads(tree.parents, encoder.width, dropped=settings.dropout).to(encoder.device)
    plan = stages(levels, settings.epochs, settings.max_length, shorter_first=settings.shorter_first)

    def begin(level: int) -> None:
        shares = np.bincount(examples.targets[level - 1].nodes, minlength=tree.level_sizes[level]) / max(1, labels.rows)
        inherits = settings.bootstrap != "random" and any(stage.level == level - 1 for stage in plan)
        parent = tree.parents[level - 1] if inherits else None
        heads.begin(level, parent, shares, bias=settings.objective in ("bce", "softmax"))
        if settings.bootstrap == "linear":
            _solve(settings, encoder, heads, read, wanted, tree, level)

    training = Training(
        encoder,
        heads,
        examples,
        plan,
        _settings(settings),
        dev=seen,
        begin=begin,
        stop_after=stop_after,
        checkpoints=_checkpoints(settings, read, wanted, purpose),
        progress=progress,
    )
    account = training.run()
    with progress.stage("encode") as report:
        vectors = encoder.encode(tokens, max_length=settings.max_length, report=report)
    last = plan[-1].level
    likened = None
    if about is not None and written is not None and last == tree.depth:
        of_labels = encoder.encode(written, max_length=settings.max_length)
        likened = likened_ranker(settings, about, of_labels)
        of_labels -= of_labels.mean(axis=0)  # what all have in common tells no label from another
        heads.add(last, about.columns, of_labels * np.float32(settings.label_text_weight))
    head = trained_head(settings, heads, tree, last, vectors, everything=training.trains_all(last))
    return Matcher(encoder, head, vectors, account, likened)


def frozen(settings: TransformerParameters, texts: Sequence[str], *, progress: Progress) -> Matcher:
    """The encoder as it is, and its vectors of texts, from the cache if they are there."""
    encoder = load_encoder(settings)
    tokens = Tokens.of(texts, encoder.tokenizer, max_length=settings.max_length)
    return Matcher(encoder, None, cached_vectors(settings, encoder, tokens, progress))


def cached_vectors(
    settings: TransformerParameters, encoder: Encoder, tokens: Tokens, progress: Progress
) -> NDArray[np.float32]:
    """The vectors of texts by an encoder that is not trained; in a cache they are kept under what they depend on."""
    place = None
    if settings.cache is not None:
        named = hashlib.sha256(repr((encoder.pooling, encoder.layers, settings.max_length)).encode())
        for one in (tokens.ids, tokens.starts):
            named.update(np.ascontiguousarray(one).tobytes())
        for name, weight in encoder.model.named_parameters():
            named.update(f"{name} {float(weight.detach().double().sum())!r}".encode())
        place = Path(settings.cache) / f"{named.hexdigest()[:32]}.npy"
        if place.exists():
            kept: NDArray[np.float32] = np.load(place)
            if kept.shape == (len(tokens), encoder.width):
                return kept
    with progress.stage("encode") as report:
        vectors = encoder.encode(tokens, max_length=settings.max_length, report=report)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_suffix(".tmp.npy")
        np.save(beside, vectors)
        beside.replace(place)
    return vectors


def _targets(labels: Csr, tree: LabelTree, costs: str) -> list[Targets]:
    return [
        Targets(one.indptr, one.indices, one.values, one.cols)
        for one in matching.level_targets(labels, tree, costs=matching.Costs(costs))
    ]


def _below(first: Csr, second: Csr) -> Csr:
    """The rows of one matrix, then those of another."""
    return Csr.of(
        np.concatenate([first.indptr, first.indptr[-1] + second.indptr[1:]]),
        np.concatenate([first.indices, second.indices]),
        np.concatenate([first.values, second.values]),
        first.cols,
    )


def _settings(settings: TransformerParameters) -> Settings:
    return Settings(
        loss=settings.objective,
        head=settings.head,
        negatives=settings.head_negatives,
        beam=settings.head_beam,
        learning_rate=settings.learning_rate,
        head_learning_rate=settings.head_learning_rate,
        weight_decay=settings.weight_decay,
        warmup=settings.warmup,
        batch_tokens=settings.batch_tokens,
        accumulate=settings.accumulate,
        patience=settings.patience,
        compiled=settings.compiled,
        checkpoint_steps=settings.checkpoint_steps,
        seed=settings.seed,
    )


def _checkpoints(settings: TransformerParameters, tokens: Tokens, labels: Csr, purpose: str) -> Checkpoints | None:
    if settings.checkpoints is None:
        return None
    data = hashlib.sha256()
    for one in (tokens.ids, tokens.starts, labels.indptr, labels.indices, labels.values):
        data.update(np.ascontiguousarray(one).tobytes())
    idle = ("checkpoints", "checkpoint_steps", "cache", "device", "compiled", "n_jobs", "verbose", "held_out", "refit")
    about: dict[str, Any] = {k: v for k, v in settings.plain_parameters().items() if k not in idle}
    return Checkpoints(Path(settings.checkpoints) / purpose, about | {"data": data.hexdigest(), "purpose": purpose})


def _solve(
    settings: TransformerParameters,
    encoder: Encoder,
    heads: Heads,
    tokens: Tokens,
    labels: Csr,
    tree: LabelTree,
    level: int,
) -> None:
    """Begin a head as linear rankers of the vectors that there are."""
    vectors = encoder.encode(tokens, max_length=settings.max_length)
    above = LabelTree(tree.parents[:level])
    target = matching.level_targets(labels, tree)[level - 1]
    solver = XRLinear(tree=above, negatives="teacher", precision="float32", n_jobs=settings.n_jobs, seed=settings.seed)
    layer = solver.fit(vectors, target.to_scipy()).layers_[-1]
    dense, offsets = np.empty_like(layer.dense), np.empty_like(layer.offsets)
    dense[layer.order], offsets[layer.order] = layer.dense, layer.offsets
    heads.set_level(level, dense, np.maximum(offsets, -10))  # of a node without texts it is far below all others
