"""Fine-tune an encoder with heads for the levels of a label tree, or use it without fine-tuning."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from carya.core.atomic import atomic_file
from carya.core.matrices import Csr
from carya.core.progress import Progress
from carya.errors import InputError
from carya.matching import level_targets
from carya.models.xr_linear.model import XRLinear
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.encoder.tokens import Tokens
from carya.transformer.inputs import LabelTexts, TrainingRun
from carya.transformer.rankers.head_ranker import head_ranker, label_text_ranker
from carya.transformer.settings import TransformerSettings
from carya.transformer.training import distributed
from carya.transformer.training.checkpoints import Checkpoints
from carya.transformer.training.contrastive import train_contrastively
from carya.transformer.training.curriculum import plan_stages
from carya.transformer.training.estimate import warn_if_slow
from carya.transformer.training.examples import Examples
from carya.transformer.training.heads import Heads
from carya.transformer.training.losses import RELATIVE_LOSSES
from carya.transformer.training.trainer import Trainer, TrainingHistory
from carya.trees.label_tree import LabelTree

_MIN_BIAS = -10  # lower bound for initial biases: in linear rankers, nodes without texts have extremely low biases


@dataclass(frozen=True, eq=False)
class Matcher:
    """A trained encoder and the rankers produced during training.

    Attributes
    ----------
    encoder : Encoder
    embeddings : ndarray of float32
        The embeddings of the training texts.
    head : XRLinear or None
        The ranker for the nodes at the last trained level; None if the encoder was not fine-tuned.
    label_texts : XRLinear or None
        The ranker that scores labels by the cosine similarity between text and label text.
    history : TrainingHistory
    """

    encoder: Encoder
    embeddings: NDArray[np.float32]
    head: XRLinear | None = None
    label_texts: XRLinear | None = None
    history: TrainingHistory = field(default_factory=TrainingHistory)

    def label_embeddings(self, texts: LabelTexts | None, max_length: int, n_labels: int) -> NDArray[np.float32]:
        """Return the embeddings of the label texts, one row per label; labels without a text have zero vectors."""
        embeddings = np.zeros((n_labels, self.encoder.width), np.float32)
        if texts is not None:
            embeddings[texts.labels] = self.encoder.encode_texts(texts.texts, max_length=max_length)
        return embeddings


def fine_tune(settings: TransformerSettings, run: TrainingRun, tree: LabelTree, levels: Sequence[int]) -> Matcher:
    """Fine-tune an encoder with heads at several tree levels, from coarse to fine."""
    distributed.join_process_group()
    torch.manual_seed(settings.seed)
    encoder = load_encoder(settings)
    max_length, label_texts = settings.max_length, run.data.label_texts
    with run.progress.stage("tokenize") as report:
        tokens = Tokens.of(run.data.texts, encoder.tokenizer, max_length=max_length, report=report)
    training_tokens, training_labels = tokens, run.data.labels
    label_tokens = None
    if label_texts is not None:
        label_tokens = Tokens.of(label_texts.texts, encoder.tokenizer, max_length=max_length)
        if settings.label_text_repeats:
            training_tokens = tokens.append(*[label_tokens] * settings.label_text_repeats)
            training_labels = _append_rows(training_labels, label_texts.targets(settings.label_text_repeats))
    examples = Examples.of(training_tokens, training_labels, tree, cost_sensitive=settings.cost_sensitive)
    validation = None
    if run.data.validation is not None and settings.patience is not None:
        validation_tokens = Tokens.of(run.data.validation.texts, encoder.tokenizer, max_length=max_length)
        validation = Examples.of(validation_tokens, run.data.validation.labels, tree)
    heads = Heads(tree.parents, encoder.width, dropout=settings.head_dropout).to(encoder.device)
    stages = plan_stages(levels, settings.epochs, max_length, progressive_length=settings.progressive_length)

    def initialize(level: int) -> None:
        counts = np.bincount(examples.targets[level - 1].nodes, minlength=tree.level_sizes[level])
        from_parents = settings.bootstrap != "random" and any(stage.level == level - 1 for stage in stages)
        heads.initialize(
            level,
            tree.parents[level - 1] if from_parents else None,
            counts / max(1, run.data.labels.rows),
            log_odds=settings.head_loss == "bce" or settings.head_loss in RELATIVE_LOSSES,
        )
        if settings.bootstrap == "linear":
            embeddings = encoder.encode(training_tokens, max_length=max_length)
            heads.set_weights(level, *_linear_weights(settings, embeddings, training_labels, tree, level))

    trainer = Trainer(
        encoder,
        heads,
        examples,
        stages,
        settings,
        validation=validation,
        initialize=initialize,
        stop_after=run.stop_after,
        checkpoints=_checkpoints(settings, training_tokens, training_labels, tree, run.name),
        progress=run.progress,
    )
    if run.stop_after is None:  # otherwise, the previous run's estimate already included this run
        runs = 2 if settings.refit and run.name == "split" else 1
        warn_if_slow(encoder, training_tokens, stages, extra_epochs=settings.contrastive_epochs, runs=runs)
    if settings.contrastive_epochs and label_texts is not None and label_tokens is not None and not trainer.is_resumed:
        train_contrastively(settings, encoder, tokens, run.data.labels, label_texts, label_tokens, tree, run.progress)
    history = trainer.run()
    with run.progress.stage("encode") as report:
        embeddings = encoder.encode(tokens, max_length=max_length, report=report)
    last_level = stages[-1].level
    text_ranker = None
    if label_texts is not None and label_tokens is not None and last_level == tree.depth:
        label_embeddings = encoder.encode(label_tokens, max_length=max_length)
        text_ranker = label_text_ranker(settings, label_texts, label_embeddings)
        label_embeddings -= label_embeddings.mean(axis=0)  # the component shared by all labels does not help rank them
        weights = label_embeddings * np.float32(settings.label_text_weight)
        heads.add_weights(last_level, label_texts.labels, weights)
    flat = trainer.trains_all_nodes(last_level)
    head = head_ranker(settings, heads, tree, last_level, embeddings, flat=flat)
    return Matcher(encoder, embeddings, head, text_ranker, history)


def use_frozen(settings: TransformerSettings, run: TrainingRun) -> Matcher:
    """Return a matcher with a pretrained encoder that is not fine-tuned; embeddings are cached in `cache_dir`."""
    encoder = load_encoder(settings)
    tokens = Tokens.of(run.data.texts, encoder.tokenizer, max_length=settings.max_length)
    return Matcher(encoder, _cached_embeddings(settings, encoder, tokens, run.progress))


def load_encoder(settings: TransformerSettings) -> Encoder:
    """Load the encoder specified in the settings and move it to the device."""
    encoder = Encoder.load(settings.encoder, pooling=settings.pooling, pooled_layers=settings.pooled_layers)
    encoder = encoder.to(select_device(settings.device))
    if settings.max_length > encoder.max_length:
        raise InputError(
            f"max_length must be at most {encoder.max_length}, the limit of the encoder, got {settings.max_length}."
        )
    if settings.gradient_checkpointing:
        model = encoder.model  # the method was renamed in transformers 5
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return encoder


def select_device(name: str) -> torch.device:
    """Return the device with the given name; auto means the GPU if one is available."""
    try:
        device = distributed.local_device() if name == "auto" else torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used: {error}") from None
    return device


def _cached_embeddings(
    settings: TransformerSettings, encoder: Encoder, tokens: Tokens, progress: Progress
) -> NDArray[np.float32]:
    """Return the embeddings of the texts, cached in files whose names are hashes of all inputs."""
    path = None
    if settings.cache_dir is not None:
        digest = hashlib.sha256(repr((encoder.pooling, encoder.pooled_layers, settings.max_length)).encode())
        for array in (tokens.ids, tokens.starts):
            digest.update(np.ascontiguousarray(array).tobytes())
        for name, weights in encoder.model.named_parameters():
            digest.update(f"{name} {float(weights.detach().double().sum())!r}".encode())
        path = Path(settings.cache_dir) / f"{digest.hexdigest()[:32]}.npy"
        if path.exists():
            cached: NDArray[np.float32] = np.load(path)
            if cached.shape == (len(tokens), encoder.width):
                return cached
    with progress.stage("encode") as report:
        embeddings = encoder.encode(tokens, max_length=settings.max_length, report=report)
    if path is not None:
        with atomic_file(path) as stream:
            np.save(stream, embeddings)
    return embeddings


def _append_rows(first: Csr, second: Csr) -> Csr:
    """Return a matrix with the rows of the first matrix, followed by those of the second."""
    return Csr.of(
        np.concatenate([first.indptr, first.indptr[-1] + second.indptr[1:]]),
        np.concatenate([first.indices, second.indices]),
        np.concatenate([first.values, second.values]),
        first.cols,
    )


def _checkpoints(
    settings: TransformerSettings, tokens: Tokens, labels: Csr, tree: LabelTree, run: str
) -> Checkpoints | None:
    if settings.checkpoint_dir is None:
        return None
    data = hashlib.sha256()
    for array in (tokens.ids, tokens.starts, labels.indptr, labels.indices, labels.values, *tree.parents):
        data.update(np.ascontiguousarray(array).tobytes())
    identity = settings.fine_tuning_parameters() | {"data": data.hexdigest(), "run": run}
    return Checkpoints(Path(settings.checkpoint_dir) / run, identity)


def _linear_weights(
    settings: TransformerSettings, embeddings: NDArray[np.float32], labels: Csr, tree: LabelTree, level: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Train linear rankers for the nodes at a level and return their weights and biases."""
    solver = XRLinear(
        tree=LabelTree(tree.parents[:level]),
        negatives="teacher",
        weight_dtype="float32",
        n_jobs=settings.n_jobs,
        seed=settings.seed,
    )
    targets = level_targets(labels, tree)[level - 1]
    layer = solver.fit(embeddings, targets.to_scipy()).layers_[-1]
    weights, biases = np.empty_like(layer.dense), np.empty_like(layer.biases)
    weights[layer.order], biases[layer.order] = layer.dense, layer.biases
    return weights, np.maximum(biases, _MIN_BIAS)
