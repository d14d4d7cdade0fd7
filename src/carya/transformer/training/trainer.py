"""The training of an encoder and its heads, stage by stage: any step can be the last before a kill.

What a step draws (dropout, the order of texts) is named by the seed, the stage and the step, so that training resumed
from a checkpoint is the training that was never interrupted; on a CPU to the last bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carya.core.prefetch import read_ahead
from carya.core.progress import Progress, Report
from carya.transformer.encoder import batches
from carya.transformer.encoder.batches import Layout
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.training import distributed
from carya.transformer.training.checkpoints import Checkpoints
from carya.transformer.training.curriculum import Stage
from carya.transformer.training.examples import Account, Examples, Settings
from carya.transformer.training.heads import Heads
from carya.transformer.training.step import Step, Task, tensors_of

_BYTES_A_SCORE = 16  # a score, its gradient and target, and what a loss makes of them
_HOST_MEMORY = 4 << 30  # what heads may take where nobody says how much there is
_MOST_TARGETS = 256
_WORTH_COMPILING = 50_000_000  # tokens of a stage from which on the time to compile is won back
_KS = (1, 3, 5)
_SHOWN = 20  # steps whose mean loss a progress bar shows


class Training:
    """Fine-tunes an encoder and heads on examples.

    Parameters
    ----------
    begin : callable
        Called with a level before it is trained for the first time, to set its weights.
    stop_after : sequence of int, optional
        For each stage the epoch to stop behind, as found before on other texts.
    """

    def __init__(
        self,
        encoder: Encoder,
        heads: Heads,
        examples: Examples,
        stages: Sequence[Stage],
        settings: Settings,
        *,
        dev: Examples | None = None,
        begin: Callable[[int], None] = lambda level: None,
        stop_after: Sequence[int] | None = None,
        checkpoints: Checkpoints | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._encoder, self._heads, self._examples = encoder, heads, examples
        self._stages, self._settings, self._dev, self._begin = stages, settings, dev, begin
        self._stop_after = stop_after
        self._checkpoints = checkpoints
        self._progress = progress or Progress()
        self._account = Account()
        self._best: dict[str, torch.Tensor] = {}
        self._best_value = -math.inf
        self._best_epoch = 0

    def run(self) -> Account:
        """Train all stages, from the last checkpoint if there is one."""
        state = self._checkpoints.read() if self._checkpoints else None
        first, epoch, at = 0, 0, 0
        if state is not None:
            first, epoch, at = (int(state[1][name]) for name in ("stage", "epoch", "batch"))
            self._account = Account(**state[1]["account"])
            self._best_value, self._best_epoch = state[1]["best_value"], state[1]["best_epoch"]
        for number in range(first, len(self._stages)):
            resumed = state is not None and number == first
            if not resumed:
                torch.manual_seed(self._draw(number, 0))
                self._begin(self._stages[number].level)
                self._best, self._best_value, self._best_epoch = {}, -math.inf, 0
            self._train(number, state[0] if resumed and state else None, epoch, at)
            epoch = at = 0
        return self._account

    def _train(self, number: int, state: dict[str, torch.Tensor] | None, first_epoch: int, first_batch: int) -> None:
        stage, settings, encoder = self._stages[number], self._settings, self._encoder
        lengths = self._examples.tokens.lengths(stage.max_length)
        layout = encoder.layout(lengths, stage.max_length, settings.batch_tokens, packed=settings.packed)
        encoder.use(packed=layout.packed)
        task = self._task(stage, layout)
        optimiser = self._optimiser(stage.level, task)
        if state is not None:
            self._restore(state, optimiser)
        much = stage.epochs * int(lengths.sum()) > _WORTH_COMPILING
        compiled = layout.packed and encoder.device.type == "cuda" and settings.compiled in (None, True)
        compiled = compiled and (much or settings.compiled is True)
        step = Step(encoder, self._heads, layout, task, compiled=compiled, share=1 / settings.accumulate)
        rates = [group["lr"] for group in optimiser.param_groups]
        last = stage.epochs if self._stop_after is None else self._stop_after[number]
        with self._progress.stage(f"fine-tune level {stage.level}") as report:
            for epoch in range(first_epoch, last):
                encoder.train()
                self._heads.train()
                plan = distributed.share(batches.plan(lengths, layout, key=[settings.seed, number, epoch]))
                self._epoch(number, epoch, plan, first_batch, layout, task, step, optimiser, rates, report)
                first_batch = 0
                if self._dev is not None and self._enough(number, epoch):
                    break
        if self._best and self._best_epoch <= last:
            self._put(self._best)
        self._account.epochs.append(self._best_epoch if self._best else last)
        self._best = {}

    def _epoch(
        self,
        number: int,
        epoch: int,
        plan: list[NDArray[np.int64]],
        first: int,
        layout: Layout,
        task: Task,
        step: Step,
        optimiser: torch.optim.Optimizer,
        rates: list[float],
        report: Report,
    ) -> None:
        stage, settings = self._stages[number], self._settings
        cuda = self._encoder.device.type == "cuda"
        losses: list[torch.Tensor] = []
        targets = self._examples.targets

        def ready() -> Any:
            for batch in batches.stream(self._examples.tokens, plan[first:], layout, pinned=cuda):
                yield batch.n_tokens, tensors_of(batch, layout, targets, task, pinned=cuda)

        tokens, started = 0, time.monotonic()
        shown, due = math.nan, started
        mine, count_of_processes = distributed.place()
        for at, (count, tensors) in enumerate(read_ahead(ready()), first):
            torch.manual_seed(self._draw(number, 1 + epoch, at * count_of_processes + mine))
            losses.append(step(tensors).clone())
            tokens += count
            if (at + 1) % settings.accumulate == 0 or at + 1 == len(plan):
                done = (epoch + (at + 1) / len(plan)) / stage.epochs
                for group, rate in zip(optimiser.param_groups, rates, strict=True):
                    group["lr"] = rate * _slope(done, settings.warmup)
                distributed.average(one for group in optimiser.param_groups for one in group["params"])
                optimiser.step()
                optimiser.zero_grad(set_to_none=not step.keeps_gradients)
            if report is not None:
                if time.monotonic() >= due:  # now and then: to read a loss is to wait for the device
                    shown, due = float(torch.stack(losses[-_SHOWN:]).mean()) * settings.accumulate, time.monotonic() + 1
                report(epoch * len(plan) + at + 1, stage.epochs * len(plan), loss=shown)
            if self._checkpoints and (at + 1) % (settings.checkpoint_steps * settings.accumulate) == 0:
                self._write(number, epoch, at + 1, optimiser)
        if cuda:
            torch.cuda.synchronize()
        seconds = time.monotonic() - started
        mean = float(torch.stack(losses).mean()) * settings.accumulate if losses else math.nan
        self._account.history.append(
            {"stage": number, "epoch": epoch, "loss": mean, "tokens": tokens, "seconds": seconds}
        )
        if self._checkpoints:
            self._write(number, epoch + 1, 0, optimiser)

    def _enough(self, number: int, epoch: int) -> bool:
        """Whether dev texts say that more epochs do not help; remembers the best."""
        stage = self._stages[number]
        assert self._dev is not None  # it is asked only then
        found = self.precision(self._dev, stage)
        self._account.history[-1] |= found
        value = sum(found.values())
        if value > self._best_value:
            self._best_value, self._best_epoch = value, epoch + 1
            if self._settings.patience is not None:
                self._best = {name: one.detach().clone() for name, one in self._parameters().items()}
        return self._settings.patience is not None and epoch + 1 - self._best_epoch >= self._settings.patience

    def precision(self, examples: Examples, stage: Stage) -> dict[str, float]:
        """P@1, P@3 and P@5 of the heads on examples, at a stage's level."""
        encoder, heads = self._encoder, self._heads
        vectors = encoder.encode(examples.tokens, max_length=stage.max_length)
        encoder.use(packed=encoder.layout(np.ones(1, np.int64), 1, 1, packed=self._settings.packed).packed)
        targets = examples.targets[stage.level - 1]
        hits = np.zeros(max(_KS))
        beam = None if self._pieces(stage.level, 1) else self._settings.beam
        for first in range(0, len(vectors), 1024):
            rows = np.arange(first, min(first + 1024, len(vectors)))
            some = torch.from_numpy(vectors[rows]).to(encoder.device)
            nodes, _ = heads.top(some, stage.level, top_k=max(_KS), beam=beam)
            wanted = targets.padded(rows, max(1, int(np.diff(targets.starts)[rows].max())))[0]
            found = (nodes.cpu().numpy()[:, :, None] == wanted[:, None, :]).any(2)
            hits[: found.shape[1]] += found.sum(0)
        return {f"P@{k}": float(hits[:k].sum() / max(1, len(vectors)) / k) for k in _KS}

    def trains_all(self, level: int) -> bool:
        """Whether all nodes of a level are trained at once."""
        return self._pieces(level, 1) > 0

    def _task(self, stage: Stage, layout: Layout) -> Task:
        settings = self._settings
        pieces = self._pieces(stage.level, layout.rows)
        most = max(int(np.diff(one.starts).max(initial=1)) for one in self._examples.targets[: stage.level])
        return Task(
            level=stage.level,
            loss=settings.loss,
            pieces=pieces,
            beam=settings.beam,
            teacher=settings.negatives in ("teacher", "both"),
            matcher=settings.negatives in ("matcher", "both"),
            width=min(max(most, 1), _MOST_TARGETS),
        )

    def _pieces(self, level: int, rows: int) -> int:
        """In how many pieces all nodes of a level are trained; 0 if a level is too large, or shortlists are wanted."""
        if self._settings.head == "shortlist" and level > 1:
            return 0
        weight = self._heads.weights[level - 1]
        cuda = weight.device.type == "cuda"
        memory = torch.cuda.get_device_properties(weight.device).total_memory if cuda else _HOST_MEMORY
        if self._settings.head == "auto" and _BYTES_A_SCORE * weight.numel() > memory // 2 and level > 1:
            return 0
        return max(1, math.ceil(_BYTES_A_SCORE * rows * weight.shape[0] / (memory // 4)))

    def _optimiser(self, level: int, task: Task) -> torch.optim.Optimizer:
        settings = self._settings
        decayed = [one for one in self._encoder.parameters() if one.requires_grad and one.ndim > 1]
        others = [one for one in self._encoder.parameters() if one.requires_grad and one.ndim <= 1]
        levels = range(level - 1, level) if task.pieces else range(level)
        heads = [one for at in levels for one in (self._heads.weights[at], self._heads.biases[at])]
        for one in self._heads.parameters():
            one.grad = None
        groups = [
            {"params": decayed, "lr": settings.learning_rate, "weight_decay": settings.weight_decay},
            {"params": others, "lr": settings.learning_rate, "weight_decay": 0.0},
            {"params": heads, "lr": settings.head_learning_rate, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, fused=self._encoder.device.type == "cuda")

    def _draw(self, *names: int) -> int:
        return int(np.random.SeedSequence([self._settings.seed, *names]).generate_state(1, np.uint32)[0])

    def _parameters(self) -> dict[str, torch.Tensor]:
        named = {f"encoder.{name}": one for name, one in self._encoder.model.named_parameters()}
        return named | {f"heads.{name}": one for name, one in self._heads.named_parameters()}

    @torch.no_grad()
    def _put(self, values: dict[str, torch.Tensor]) -> None:
        for name, one in self._parameters().items():
            one.copy_(values[name])

    def _write(self, number: int, epoch: int, at: int, optimiser: torch.optim.Optimizer) -> None:
        assert self._checkpoints is not None  # it is asked only then
        if distributed.place()[0] > 0:
            return  # all are in the same state, and the first writes it
        tensors = dict(self._parameters())
        tensors |= {f"best.{name}": one for name, one in self._best.items()}
        for index, one in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{name}": value for name, value in one.items()}
        about = {
            "stage": number,
            "epoch": epoch,
            "batch": at,
            "best_value": self._best_value if math.isfinite(self._best_value) else -1e30,
            "best_epoch": self._best_epoch,
            "account": {"epochs": self._account.epochs, "history": self._account.history},
        }
        self._checkpoints.write(tensors, about)

    def _restore(self, state: dict[str, torch.Tensor], optimiser: torch.optim.Optimizer) -> None:
        self._put(state)
        self._best = {name.removeprefix("best."): one for name, one in state.items() if name.startswith("best.")}
        kept: dict[int, dict[str, torch.Tensor]] = {}
        for name, one in state.items():
            if name.startswith("optimiser."):
                _, index, what = name.split(".")
                kept.setdefault(int(index), {})[what] = one
        optimiser.load_state_dict({"state": kept, "param_groups": optimiser.state_dict()["param_groups"]})


def _slope(done: float, warmup: float) -> float:
    """The share of the learning rate: up to 1 while warming up, then down to 0.

    >>> _slope(0.05, 0.1), _slope(0.1, 0.1), _slope(1.0, 0.1)
    (0.5, 1.0, 0.0)
    """
    return done / warmup if done < warmup else (1 - done) / (1 - warmup)
