"""Train an encoder and its heads stage by stage, with checkpoints and early stopping.

The random numbers used in a step (dropout, order of texts) depend only on the seed, the stage and the step. Training
that is resumed from a checkpoint therefore gives the same result as uninterrupted training; on a CPU, the result is
identical bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carya.core.inputs.prefetch import prefetch
from carya.core.progress import Progress, Report
from carya.transformer.encoder.batches import BatchLayout, make_batches, shuffled_batches
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.settings import TransformerSettings
from carya.transformer.training import distributed
from carya.transformer.training.checkpoints import Checkpoints
from carya.transformer.training.curriculum import Stage
from carya.transformer.training.examples import Examples
from carya.transformer.training.heads import Heads, Shortlist
from carya.transformer.training.schedule import parameter_groups, rate_factor
from carya.transformer.training.step import Objective, TrainingStep, step_tensors

_BYTES_PER_SCORE = 16  # a score, its gradient, its target, and intermediate values of the loss
_HOST_MEMORY = 4 << 30  # memory in bytes that is assumed to be available for heads on a CPU
_MAX_TARGETS = 256  # maximum number of targets per text if shortlists are used
_MIN_TOKENS_TO_COMPILE = 50_000_000  # for stages with more tokens, compiling saves more time than it takes
_KS = (1, 3, 5)
_LOSS_WINDOW = 20  # number of steps over which the loss in the progress bar is averaged
_LOSS_INTERVAL = 1.0  # seconds between updates of the loss in the progress bar; reading it makes the host wait
_EVALUATION_ROWS = 1024


@dataclass
class TrainingHistory:
    """Record of the training epochs.

    Attributes
    ----------
    stage_epochs : list of int
        The number of epochs in each stage; with early stopping, the number of the best epoch.
    epochs : list of dict
        For each epoch: the stage, the epoch number, the mean loss, the number of tokens and the time in seconds; with
        validation examples, also P@1, P@3 and P@5.
    """

    stage_epochs: list[int] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _StageRun:
    """Objects that stay the same while a stage is trained."""

    number: int
    stage: Stage
    layout: BatchLayout
    objective: Objective
    optimizer: torch.optim.Optimizer
    step: TrainingStep
    report: Report


@dataclass
class _BestEpoch:
    """Best epoch of a stage so far, by the sum of P@1, P@3 and P@5 on the validation examples."""

    value: float = -math.inf
    epoch: int = 0
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)


class Trainer:
    """Trainer that fine-tunes an encoder and its heads.

    Parameters
    ----------
    encoder : Encoder
    heads : Heads
    examples : Examples
    stages : sequence of Stage
    settings : TransformerSettings
    validation : Examples, optional
        Examples that are evaluated after each epoch for early stopping (`patience`).
    initialize : callable, optional
        Function that sets the initial weights of the head for a given level; called before the level is trained.
    stop_after : sequence of int, optional
        The number of epochs after which each stage stops, as determined by early stopping in a previous run.
    checkpoints : Checkpoints, optional
    progress : Progress, optional
    packed : bool, optional
        Whether batches are packed; by default, they are packed on a GPU if the encoder supports it.
    """

    def __init__(
        self,
        encoder: Encoder,
        heads: Heads,
        examples: Examples,
        stages: Sequence[Stage],
        settings: TransformerSettings,
        *,
        validation: Examples | None = None,
        initialize: Callable[[int], None] = lambda level: None,
        stop_after: Sequence[int] | None = None,
        checkpoints: Checkpoints | None = None,
        progress: Progress | None = None,
        packed: bool | None = None,
    ) -> None:
        self._encoder, self._heads, self._examples, self._validation = encoder, heads, examples, validation
        self._stages, self._settings, self._initialize, self._stop_after = stages, settings, initialize, stop_after
        self._checkpoints, self._progress, self._packed = checkpoints, progress or Progress(), packed
        self._history = TrainingHistory()
        self._best = _BestEpoch()

    @property
    def is_resumed(self) -> bool:
        """Whether :meth:`run` resumes from a checkpoint, which also contains the weights of the encoder."""
        return self._checkpoints is not None and self._checkpoints.read() is not None

    def run(self) -> TrainingHistory:
        """Train all stages, resuming from the latest checkpoint if there is one, and return the history."""
        checkpoint = self._checkpoints.read() if self._checkpoints else None
        first_stage = first_epoch = first_batch = 0
        if checkpoint is not None:
            progress = checkpoint[1]
            first_stage, first_epoch, first_batch = (int(progress[name]) for name in ("stage", "epoch", "batch"))
            self._history = TrainingHistory(**progress["history"])
            self._best = _BestEpoch(progress["best_value"], progress["best_epoch"])
        for number in range(first_stage, len(self._stages)):
            if checkpoint is None:
                torch.manual_seed(self._random_seed(number, 0))
                self._initialize(self._stages[number].level)
                self._best = _BestEpoch()
            self._train_stage(number, checkpoint[0] if checkpoint else None, first_epoch, first_batch)
            checkpoint, first_epoch, first_batch = None, 0, 0
        return self._history

    def trains_all_nodes(self, level: int) -> bool:
        """Return whether a level is trained on all its nodes at once instead of on shortlists."""
        return self._n_chunks(level, 1) > 0

    def precision(self, examples: Examples, stage: Stage) -> dict[str, float]:
        """Return P@1, P@3 and P@5 of the heads at the level of a stage."""
        encoder, heads, settings = self._encoder, self._heads, self._settings
        embeddings = encoder.encode(examples.tokens, max_length=stage.max_length)
        encoder.set_attention(packed=encoder.layout(np.ones(1, np.int64), 1, 1, packed=self._packed).packed)
        targets = examples.targets[stage.level - 1]
        hits = np.zeros(max(_KS))
        beam_width = None if self.trains_all_nodes(stage.level) else settings.head_beam_width
        for begin in range(0, len(embeddings), _EVALUATION_ROWS):
            rows = np.arange(begin, min(begin + _EVALUATION_ROWS, len(embeddings)))
            block = torch.from_numpy(embeddings[rows]).to(encoder.device)
            nodes, _ = heads.rank(block, stage.level, top_k=max(_KS), beam_width=beam_width)
            positives = targets.padded(rows, max(1, int(np.diff(targets.starts)[rows].max())))[0]
            correct = (nodes.cpu().numpy()[:, :, None] == positives[:, None, :]).any(2)
            hits[: correct.shape[1]] += correct.sum(0)
        return {f"P@{k}": float(hits[:k].sum() / max(1, len(embeddings)) / k) for k in _KS}

    def _train_stage(
        self, number: int, state: dict[str, torch.Tensor] | None, first_epoch: int, first_batch: int
    ) -> None:
        stage, settings, encoder = self._stages[number], self._settings, self._encoder
        lengths = self._examples.tokens.lengths(stage.max_length)
        layout = encoder.layout(lengths, stage.max_length, settings.batch_tokens, packed=self._packed)
        encoder.set_attention(packed=layout.packed)
        objective = self._objective(stage, layout)
        optimizer = self._make_optimizer(objective)
        if state is not None:
            self._restore(state, optimizer)
        step = TrainingStep(
            encoder,
            self._heads,
            layout,
            objective,
            compiled=self._compiles(layout, stage.epochs * int(lengths.sum())),
            loss_scale=1 / settings.gradient_accumulation_steps,
        )
        last_epoch = stage.epochs if self._stop_after is None else self._stop_after[number]
        with self._progress.stage(f"fine-tune level {stage.level}") as report:
            run = _StageRun(number, stage, layout, objective, optimizer, step, report)
            for epoch in range(first_epoch, last_epoch):
                if self._is_patience_exhausted(epoch):
                    break
                encoder.train()
                self._heads.train()
                batches = shuffled_batches(lengths, layout, seed=[settings.seed, number, epoch])
                self._train_epoch(run, epoch, distributed.shard(batches), first_batch)
                first_batch = 0
                if self._validation is not None:
                    self._evaluate(run, epoch, self._validation)
                if self._checkpoints:  # written after the evaluation, so that resumed training stops at the same epoch
                    self._write_checkpoint(run, epoch + 1, 0)
        if self._best.parameters and self._best.epoch <= last_epoch:
            self._set_parameters(self._best.parameters)
        self._history.stage_epochs.append(self._best.epoch if self._best.parameters else last_epoch)
        self._best.parameters = {}

    def _train_epoch(self, run: _StageRun, epoch: int, batches: list[NDArray[np.int64]], first_batch: int) -> None:
        settings, optimizer, report = self._settings, run.optimizer, run.report
        accumulation = settings.gradient_accumulation_steps
        losses: list[torch.Tensor] = []
        n_tokens, started = 0, time.monotonic()
        shown_loss, next_update = math.nan, started
        rank, world_size = distributed.rank_and_world_size()
        inputs = prefetch(self._step_inputs(run, batches[first_batch:]))
        for number, (batch_tokens, tensors) in enumerate(inputs, first_batch):
            torch.manual_seed(self._random_seed(run.number, 1 + epoch, number * world_size + rank))
            losses.append(run.step(tensors).clone())
            n_tokens += batch_tokens
            done = number + 1
            if done % accumulation == 0 or done == len(batches):
                progress = (epoch + done / len(batches)) / run.stage.epochs
                for group in optimizer.param_groups:
                    group["lr"] = group["peak_lr"] * rate_factor(progress, settings.warmup_ratio)
                distributed.average_gradients(
                    parameter for group in optimizer.param_groups for parameter in group["params"]
                )
                optimizer.step()
                optimizer.zero_grad(set_to_none=not run.step.keeps_gradients)
            if report is not None:
                if time.monotonic() >= next_update:
                    shown_loss = float(torch.stack(losses[-_LOSS_WINDOW:]).mean()) * accumulation
                    next_update = time.monotonic() + _LOSS_INTERVAL
                report(epoch * len(batches) + done, run.stage.epochs * len(batches), loss=shown_loss)
            if self._checkpoints and done % (settings.checkpoint_steps * accumulation) == 0:
                self._write_checkpoint(run, epoch, done)
        if self._encoder.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.monotonic() - started
        mean_loss = float(torch.stack(losses).mean()) * accumulation if losses else math.nan
        self._history.epochs.append(
            {"stage": run.number, "epoch": epoch, "loss": mean_loss, "tokens": n_tokens, "seconds": seconds}
        )

    def _step_inputs(
        self, run: _StageRun, batches: list[NDArray[np.int64]]
    ) -> Iterator[tuple[int, list[torch.Tensor]]]:
        """Yield the number of tokens and the input tensors for each batch."""
        pinned = self._encoder.device.type == "cuda"
        for batch in make_batches(self._examples.tokens, batches, run.layout, pinned=pinned):
            tensors = step_tensors(batch, run.layout, self._examples.targets, run.objective, pinned=pinned)
            yield batch.n_tokens, tensors

    def _evaluate(self, run: _StageRun, epoch: int, validation: Examples) -> None:
        """Add the precision on the validation examples to the history and update the best epoch."""
        precision = self.precision(validation, run.stage)
        self._history.epochs[-1] |= precision
        value = sum(precision.values())
        if value > self._best.value:
            self._best.value, self._best.epoch = value, epoch + 1
            if self._settings.patience is not None:
                self._best.parameters = {
                    name: parameter.detach().clone() for name, parameter in self._named_parameters().items()
                }

    def _is_patience_exhausted(self, epoch: int) -> bool:
        """Return whether a stage stops early after `epoch` epochs."""
        patience = self._settings.patience
        return self._validation is not None and patience is not None and epoch - self._best.epoch >= patience

    def _objective(self, stage: Stage, layout: BatchLayout) -> Objective:
        settings, targets = self._settings, self._examples.targets[: stage.level]
        max_targets = max(int(np.diff(level.starts).max(initial=1)) for level in targets)
        return Objective(
            level=stage.level,
            loss=settings.head_loss,
            n_chunks=self._n_chunks(stage.level, layout.rows),
            shortlist=Shortlist(
                beam_width=settings.head_beam_width,
                teacher=settings.head_negatives in ("teacher", "both"),
                matcher=settings.head_negatives in ("matcher", "both"),
            ),
            max_targets=min(max(max_targets, 1), _MAX_TARGETS),
        )

    def _n_chunks(self, level: int, rows: int) -> int:
        """Return the number of chunks in which all nodes at a level are scored, or 0 if shortlists are used instead."""
        mode = self._settings.head_mode
        if mode == "shortlist" and level > 1:
            return 0
        weights = self._heads.weights[level - 1]
        cuda = weights.device.type == "cuda"
        memory = torch.cuda.get_device_properties(weights.device).total_memory if cuda else _HOST_MEMORY
        if mode == "auto" and _BYTES_PER_SCORE * weights.numel() > memory // 2 and level > 1:
            return 0
        return max(1, math.ceil(_BYTES_PER_SCORE * rows * weights.shape[0] / (memory // 4)))

    def _compiles(self, layout: BatchLayout, n_tokens: int) -> bool:
        """Return whether the training steps of a stage with `n_tokens` tokens are compiled."""
        if not layout.packed or self._encoder.device.type != "cuda":
            return False
        setting = self._settings.compile
        return n_tokens > _MIN_TOKENS_TO_COMPILE if setting is None else bool(setting)

    def _make_optimizer(self, objective: Objective) -> torch.optim.Optimizer:
        settings, heads = self._settings, self._heads
        levels = range(objective.level - 1, objective.level) if objective.n_chunks else range(objective.level)
        head_parameters = [parameter for level in levels for parameter in (heads.weights[level], heads.biases[level])]
        for parameter in heads.parameters():
            parameter.grad = None
        rate = settings.head_learning_rate
        groups = [
            *parameter_groups(self._encoder, settings),
            {"params": head_parameters, "lr": rate, "peak_lr": rate, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, fused=self._encoder.device.type == "cuda")

    def _random_seed(self, *key: int) -> int:
        """Return a random seed derived from the seed in the settings and the key."""
        return int(np.random.SeedSequence([self._settings.seed, *key]).generate_state(1, np.uint32)[0])

    def _named_parameters(self) -> dict[str, torch.Tensor]:
        named = {f"encoder.{name}": parameter for name, parameter in self._encoder.model.named_parameters()}
        return named | {f"heads.{name}": parameter for name, parameter in self._heads.named_parameters()}

    @torch.no_grad()
    def _set_parameters(self, values: dict[str, torch.Tensor]) -> None:
        for name, parameter in self._named_parameters().items():
            parameter.copy_(values[name])

    def _write_checkpoint(self, run: _StageRun, epoch: int, batch: int) -> None:
        """Write a checkpoint with the state before the given batch."""
        assert self._checkpoints is not None  # checked by the callers
        if distributed.rank_and_world_size()[0] > 0:
            return  # All processes have the same state, so only the first one writes it.
        tensors = dict(self._named_parameters())
        tensors |= {f"best.{name}": tensor for name, tensor in self._best.parameters.items()}
        for index, state in run.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        progress = {
            "stage": run.number,
            "epoch": epoch,
            "batch": batch,
            "best_value": self._best.value if math.isfinite(self._best.value) else -1e30,
            "best_epoch": self._best.epoch,
            "history": asdict(self._history),
        }
        self._checkpoints.write(tensors, progress)

    def _restore(self, state: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
        """Restore the parameters and the optimizer from a checkpoint."""
        self._set_parameters(state)
        self._best.parameters = {
            name.removeprefix("best."): tensor for name, tensor in state.items() if name.startswith("best.")
        }
        optimizer_state: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in state.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                optimizer_state.setdefault(int(index), {})[key] = tensor
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": optimizer_state, "param_groups": groups})
