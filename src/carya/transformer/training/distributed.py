"""Several processes, each with a GPU of its own, train as one: every one takes its share of the batches.

Processes that ``torchrun`` starts all run the same script on the same data. They draw the same order of batches, take
every n-th, and add up their gradients before a step; so n processes do what one does that accumulates n batches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import distributed

T = TypeVar("T")


def join() -> None:
    """Meet the others, if ``torchrun`` started this process as one of several."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and distributed.is_available() and not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def place() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def own_device() -> torch.device:
    """The GPU of this process, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def share(items: Sequence[T]) -> list[T]:
    """What this process takes; all take as many, the first items once more if there are not enough."""
    number, count = place()
    missing = -len(items) % count
    return [*items, *items[:missing]][number::count]


def average(parameters: Iterable[torch.Tensor]) -> None:
    """Make every process's gradients the mean of all."""
    _, count = place()
    if count == 1:
        return
    gradients = [one.grad for one in parameters if one.grad is not None]
    flat = torch.cat([one.reshape(-1) for one in gradients])
    distributed.all_reduce(flat)
    flat /= count
    for one, mean in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
        one.copy_(mean.view_as(one))
