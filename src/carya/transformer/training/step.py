"""Compute the loss of a batch and its gradient; on a GPU, the computation is replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carya.transformer.encoder.batches import Batch, BatchLayout
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.training.examples import Targets
from carya.transformer.training.heads import Heads, Shortlist

# Number of warm-up runs before a graph is recorded. Compilers and libraries select their kernels in the first runs.
_WARM_UP_RUNS = 3


@dataclass(frozen=True)
class Objective:
    """Training objective of a stage.

    Attributes
    ----------
    level : int
        The tree level.
    loss : str
        The loss function.
    n_chunks : int
        The number of chunks in which all nodes at the level are scored; 0 if shortlists are used instead.
    shortlist : Shortlist
        The parameters for selecting shortlists.
    max_targets : int
        The maximum number of targets per text that are used with shortlists.
    """

    level: int
    loss: str
    n_chunks: int
    shortlist: Shortlist
    max_targets: int


def step_tensors(
    batch: Batch, layout: BatchLayout, targets: Sequence[Targets], objective: Objective, *, pinned: bool
) -> list[torch.Tensor]:
    """Return the input of a step in host memory: the batch, the row weights and the targets."""
    rows = layout.rows if layout.packed else batch.rows.size
    weights = np.zeros(rows, np.float32)
    weights[: batch.rows.size] = 1
    arrays: list[NDArray[Any]] = [weights]
    if objective.n_chunks:
        arrays += targets[objective.level - 1].entries(batch.rows)
    else:
        padding = ((0, rows - batch.rows.size), (0, 0))
        for level in targets[: objective.level]:
            nodes, costs = level.padded(batch.rows, objective.max_targets)
            arrays += [np.pad(nodes, padding, constant_values=-1), np.pad(costs, padding)]
    tensors = [torch.from_numpy(array) for array in arrays]
    if pinned:
        tensors = [tensor.pin_memory() for tensor in tensors]
    return batch.tensors + tensors


class TrainingStep:
    """Callable that adds the gradient of a batch's mean loss to the parameters' gradients and returns the loss.

    Packed batches on a GPU have constant shapes: the computation is recorded as a CUDA graph for the first batch and
    replayed for all other batches without Python overhead.

    Parameters
    ----------
    compiled : bool
        Whether to compile the computation. This takes about 15 seconds per stage and pays off only in long stages.
    loss_scale : float
        The factor by which the loss is multiplied when the gradients of several batches are accumulated.
    """

    def __init__(
        self,
        encoder: Encoder,
        heads: Heads,
        layout: BatchLayout,
        objective: Objective,
        *,
        compiled: bool,
        loss_scale: float = 1.0,
    ) -> None:
        self._encoder, self._heads, self._layout, self._objective = encoder, heads, layout, objective
        self._device = encoder.device
        self._loss_scale = loss_scale
        self._compiled = compiled
        self._uses_graph = layout.packed and self._device.type == "cuda"
        self._compute: Callable[..., torch.Tensor] = self._mean_loss
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[torch.Tensor] = []
        self._loss = torch.zeros(())

    @property
    def keeps_gradients(self) -> bool:
        """Whether a CUDA graph writes to the gradient tensors, which must then be reused instead of replaced."""
        return self._uses_graph

    def __call__(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the loss, which stays on the device so that the host does not have to wait for it."""
        moved = self._to_device(tensors)
        if not self._uses_graph:
            loss = self._mean_loss(*moved)
            loss.backward()
            return loss.detach()
        if self._graph is None:
            self._record(moved)
        else:
            torch._foreach_copy_(self._inputs, moved)
        assert self._graph is not None  # recorded above or in an earlier call
        self._graph.replay()
        return self._loss

    def _to_device(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copy the tensors to the device; convert targets for all nodes to a cost matrix of shape (texts, nodes)."""
        moved = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
        if not self._objective.n_chunks:
            return moved
        row, node, cost = moved[-3:]
        weights = moved[-4]
        costs = torch.zeros(
            weights.shape[0],
            self._heads.biases[self._objective.level - 1].numel(),
            dtype=torch.bfloat16 if self._device.type == "cuda" else torch.float32,
            device=self._device,
        )
        costs[row, node] = cost.to(costs.dtype)
        return [*moved[:-3], costs]

    def _mean_loss(self, *tensors: torch.Tensor) -> torch.Tensor:
        objective, no_rows = self._objective, np.zeros(0, np.int64)
        if self._layout.packed:
            ids, positions, starts, text_numbers, weights, *targets = tensors
            longest = self._layout.max_length
            batch = Batch(no_rows, ids, 0, longest, positions=positions, starts=starts, text_numbers=text_numbers)
        else:
            ids, mask, weights, *targets = tensors
            batch = Batch(no_rows, ids, 0, ids.shape[1], mask=mask)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            embeddings = self._encoder(batch, weights.shape[0])
            if objective.n_chunks:
                (costs,) = targets
                losses = self._heads.full_loss(embeddings, objective.level, costs, objective.loss, objective.n_chunks)
            else:
                positives = list(zip(targets[::2], targets[1::2], strict=True))
                losses = self._heads.shortlist_loss(
                    embeddings, objective.level, positives, objective.loss, objective.shortlist
                )
        return self._loss_scale * (losses * weights).sum() / weights.sum().clamp(min=1)

    def _record(self, tensors: list[torch.Tensor]) -> None:
        """Compile the computation, warm up on a separate stream, and record the graph."""
        self._inputs = [tensor.clone() for tensor in tensors]
        if self._compiled:
            self._compute = torch.compile(self._mean_loss, dynamic=False)
        parameters = [
            parameter
            for parameter in (*self._encoder.parameters(), *self._heads.parameters())
            if parameter.requires_grad
        ]
        gradients = [None if parameter.grad is None else parameter.grad.clone() for parameter in parameters]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_RUNS):
                self._compute(*self._inputs).backward()
        torch.cuda.current_stream().wait_stream(stream)
        for parameter, gradient in zip(parameters, gradients, strict=True):  # discard the gradients of the warm-up runs
            if parameter.grad is not None:
                parameter.grad.zero_() if gradient is None else parameter.grad.copy_(gradient)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = self._compute(*self._inputs)
            self._loss.backward()
            self._loss = self._loss.detach()
