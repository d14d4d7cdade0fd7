"""One step of training: a batch's loss and its gradient, on a GPU replayed as one graph, and compiled for long runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carya.transformer.encoder.batches import Batch, Layout
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.training.heads import Heads, Targets

_WARM_UP = 3  # runs before a graph is recorded: compilers and libraries make their choices in them


@dataclass(frozen=True)
class Task:
    """What a stage trains.

    Attributes
    ----------
    level : int
    loss : str
    pieces : int
        If all nodes are trained, in how many pieces of the level; 0 if shortlists are.
    beam, teacher, matcher
        How shortlists are made.
    width : int
        The most targets of a text that shortlists know.
    """

    level: int
    loss: str
    pieces: int
    beam: int
    teacher: bool
    matcher: bool
    width: int


def tensors_of(
    batch: Batch, layout: Layout, targets: Sequence[Targets], task: Task, *, pinned: bool
) -> list[torch.Tensor]:
    """All that a step needs to know of a batch, on the host."""
    rows = layout.rows if layout.packed else batch.rows.size
    weights = np.zeros(rows, np.float32)
    weights[: batch.rows.size] = 1
    made: list[NDArray[Any]] = [weights]
    if task.pieces:
        made += targets[task.level - 1].flat(batch.rows)
    else:
        for one in targets[: task.level]:
            nodes, costs = one.padded(batch.rows, task.width)
            gap = rows - batch.rows.size
            made += [np.pad(nodes, ((0, gap), (0, 0)), constant_values=-1), np.pad(costs, ((0, gap), (0, 0)))]
    tensors = [torch.from_numpy(one) for one in made]
    if pinned:
        tensors = [one.pin_memory() for one in tensors]
    text = [batch.ids, batch.mask, batch.positions, batch.starts, batch.owner]
    return [one for one in text if one is not None] + tensors


class Step:
    """Adds the gradient of a batch's mean loss to the parameters and gives the loss.

    Parameters
    ----------
    compiled : bool
        Fuse the computation. It takes a quarter of a minute for each stage, so short ones are better off without.

    Packed batches on a GPU never change their shapes: what is to be computed is recorded with the first of them, and
    replayed, without a word of Python, for all others.
    share : float
        What the loss is multiplied by, when gradients of several batches are added.
    """

    def __init__(
        self, encoder: Encoder, heads: Heads, layout: Layout, task: Task, *, compiled: bool, share: float = 1.0
    ) -> None:
        self._encoder, self._heads, self._layout, self._task = encoder, heads, layout, task
        self._device = encoder.device
        self._share = share
        self._compiled = compiled
        self._replays = layout.packed and self._device.type == "cuda"
        self._run: Callable[..., torch.Tensor] = self._compute
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: list[torch.Tensor] = []
        self._loss = torch.zeros(())

    @property
    def keeps_gradients(self) -> bool:
        """Whether gradients must stay where they are, as a graph writes to them."""
        return self._replays

    def __call__(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The loss; it stays on the device, so that nobody waits for it."""
        moved = self._moved(tensors)
        if not self._replays:
            loss = self._compute(*moved)
            loss.backward()
            return loss.detach()
        if self._graph is None:
            self._record(moved)
        else:
            torch._foreach_copy_(self._static, moved)
        assert self._graph is not None  # it has been recorded
        self._graph.replay()
        return self._loss

    def _moved(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """On the device, with the targets of all nodes as one matrix."""
        moved = [one.to(self._device, non_blocking=True) for one in tensors]
        if not self._task.pieces:
            return moved
        place, node, cost = moved[-3:]
        weights = moved[-4]
        half = self._device.type == "cuda"
        matrix = torch.zeros(
            weights.shape[0],
            self._heads.biases[self._task.level - 1].numel(),
            dtype=torch.bfloat16 if half else torch.float32,
            device=self._device,
        )
        matrix[place, node] = cost.to(matrix.dtype)
        return [*moved[:-3], matrix]

    def _compute(self, *tensors: torch.Tensor) -> torch.Tensor:
        task, nothing = self._task, np.zeros(0, np.int64)
        if self._layout.packed:
            ids, positions, starts, owner, weights, *rest = tensors
            longest = self._layout.max_length
            batch = Batch(nothing, ids, 0, longest, positions=positions, starts=starts, owner=owner)
        else:
            ids, mask, weights, *rest = tensors
            batch = Batch(nothing, ids, 0, ids.shape[1], mask=mask)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            vectors = self._encoder(batch, weights.shape[0])
            if task.pieces:
                losses = self._heads.loss_of_all(vectors, task.level, rest[0], task.loss, task.pieces)
            else:
                losses = self._heads.loss_of_shortlists(
                    vectors,
                    task.level,
                    list(zip(rest[::2], rest[1::2], strict=True)),
                    task.loss,
                    beam=task.beam,
                    teacher=task.teacher,
                    matcher=task.matcher,
                )
        return self._share * (losses * weights).sum() / weights.sum().clamp(min=1)

    def _record(self, tensors: list[torch.Tensor]) -> None:
        """Compile, warm up on a stream of its own, and record the graph."""
        self._static = [one.clone() for one in tensors]
        if self._compiled:
            self._run = torch.compile(self._compute, dynamic=False)
        trained = [one for one in (*self._encoder.parameters(), *self._heads.parameters()) if one.requires_grad]
        before = [None if one.grad is None else one.grad.clone() for one in trained]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                self._run(*self._static).backward()
        torch.cuda.current_stream().wait_stream(aside)
        for one, old in zip(trained, before, strict=True):
            if one.grad is not None:
                one.grad.zero_() if old is None else one.grad.copy_(old)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = self._run(*self._static)
            self._loss.backward()
            self._loss = self._loss.detach()
