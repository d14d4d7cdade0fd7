"""Data-parallel training: several processes, each with its own GPU, train on different batches.

Processes started by ``torchrun`` run the same script on the same data. They shuffle the batches identically, each
process takes every n-th batch, and the gradients are averaged before each optimizer step. Training with n processes
therefore gives the same result as training with one process that accumulates the gradients of n batches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import distributed

T = TypeVar("T")


def join_process_group() -> None:
    """Connect to the other processes if ``torchrun`` started more than one."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and distributed.is_available() and not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def rank_and_world_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def local_device() -> torch.device:
    """Return the GPU assigned to this process, or the CPU if there is no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def shard(items: Sequence[T]) -> list[T]:
    """Return the items for this process; the first items are repeated so that all processes have the same number of
    items.
    """
    rank, world_size = rank_and_world_size()
    missing = -len(items) % world_size
    return [*items, *items[:missing]][rank::world_size]


def average_gradients(parameters: Iterable[torch.Tensor]) -> None:
    """Replace the gradients in each process with the mean over all processes."""
    _, world_size = rank_and_world_size()
    if world_size == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    distributed.all_reduce(flat)
    flat /= world_size
    means = flat.split([gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))
