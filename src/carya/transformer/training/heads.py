"""Linear rankers on an encoder's vectors, one for each level of the label tree.

A level can be trained on all its nodes at once, which a GPU does quickly as long as a batch's scores fit in memory; or
on shortlists, for which the levels above are walked down with a beam: children of the clusters that hold the text's
labels (teacher), and of those that the heads themselves rank highest (matcher). The heads above are trained along, so
that whoever makes the shortlist ranks the same vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import dropout, linear
from torch.utils.checkpoint import checkpoint

from carya.transformer.training.losses import row_losses

_FAR = 1e9


@dataclass(frozen=True, eq=False)
class Targets:
    """What texts should find at one level.

    Attributes
    ----------
    starts : ndarray of int64, shape (texts + 1,)
    nodes : ndarray of int32
    costs : ndarray of float32
        What it costs to miss each.
    n_nodes : int
    """

    starts: NDArray[np.int64]
    nodes: NDArray[np.int32]
    costs: NDArray[np.float32]
    n_nodes: int

    def select(self, rows: NDArray[np.int64]) -> Targets:
        """Those of some texts."""
        at, ends = self._places(rows)
        return Targets(np.concatenate([[0], ends]).astype(np.int64), self.nodes[at], self.costs[at], self.n_nodes)

    def flat(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Place in the batch, node and cost of each target of some texts."""
        at, _ = self._places(rows)
        counts = np.diff(self.starts)[rows]
        return np.repeat(np.arange(rows.size), counts), self.nodes[at].astype(np.int64), self.costs[at]

    def padded(self, rows: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Nodes and costs of some texts, texts x width; -1 and 0 where there are fewer, the first where more."""
        place, node, cost = self.flat(rows)
        column = np.arange(place.size) - np.repeat(np.flatnonzero(np.diff(place, prepend=-1)), _runs(place))
        kept = column < width
        nodes = np.full((rows.size, width), -1, np.int64)
        costs = np.zeros((rows.size, width), np.float32)
        nodes[place[kept], column[kept]] = node[kept]
        costs[place[kept], column[kept]] = cost[kept]
        return nodes, costs

    def _places(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        counts = np.diff(self.starts)[rows]
        ends = np.cumsum(counts)
        return np.repeat(self.starts[rows] - (ends - counts), counts) + np.arange(int(counts.sum())), ends


def _runs(place: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.diff(np.append(np.flatnonzero(np.diff(place, prepend=-1)), place.size))


class Heads(nn.Module):
    """The rankers of all levels.

    Parameters
    ----------
    parents : sequence of arrays
        The tree, as :attr:`carya.LabelTree.parents`.
    width : int
        Of the vectors, which have length 1; rankers see them times the root of the width, so that an entry is about 1.
    dropped : float
        The share of entries dropped in training.
    """

    def __init__(self, parents: Sequence[NDArray[np.int32]], width: int, *, dropped: float = 0.0) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(one.size, width)) for one in parents)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(one.size)) for one in parents)
        self.scale = width**0.5
        self.dropped = dropped
        for level in range(1, len(parents)):
            self.register_buffer(f"children_{level}", _children(parents[level], parents[level - 1].size), False)

    @property
    def depth(self) -> int:
        """How many levels there are."""
        return len(self.weights)

    @torch.no_grad()
    def begin(self, level: int, parent: NDArray[np.int32] | None, shares: NDArray[np.float64], *, bias: bool) -> None:
        """Set a level's weights to those of its parents, or to small random ones, and its biases by frequency.

        Parameters
        ----------
        parent : array or None
            Of each node in the level above; None if nothing was trained there.
        shares : array
            The share of texts that have each node.
        bias : bool
            Whether biases should begin as the log odds of the shares; else as -1, a safe no to a hinge.
        """
        weight, offset = self.weights[level - 1], self.biases[level - 1]
        if parent is None:
            weight.normal_(std=0.02)
        else:
            at = torch.from_numpy(parent.astype(np.int64)).to(weight.device)
            weight.copy_(self.weights[level - 2][at] + 0.005 * torch.randn_like(weight))
        kept = np.clip(shares, 1e-6, 0.5)
        start = np.log(kept / (1 - kept)) if bias else np.full(kept.shape, -1.0)
        offset.copy_(torch.from_numpy(start.astype(np.float32)))

    @torch.no_grad()
    def set_level(self, level: int, weights: NDArray[np.float32], offsets: NDArray[np.float32]) -> None:
        """Take weights that were solved for vectors of length 1."""
        self.weights[level - 1].copy_(torch.from_numpy(weights / self.scale))
        self.biases[level - 1].copy_(torch.from_numpy(offsets))

    @torch.no_grad()
    def add(self, level: int, nodes: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Add weights, for vectors of length 1, to those of some nodes of a level."""
        mine = self.weights[level - 1]
        at = torch.from_numpy(nodes.astype(np.int64)).to(mine.device)
        mine.index_add_(0, at, torch.from_numpy(weights / self.scale).to(mine))

    def level_weights(self, level: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """A level's weights for vectors of length 1, and its biases."""
        weight = self.weights[level - 1].detach().float().cpu().numpy() * self.scale
        return np.ascontiguousarray(weight, np.float32), self.biases[level - 1].detach().float().cpu().numpy()

    def inputs(self, vectors: torch.Tensor) -> torch.Tensor:
        """Vectors as the rankers see them."""
        return dropout(vectors * self.scale, self.dropped, self.training)

    def loss_of_all(
        self, vectors: torch.Tensor, level: int, costs: torch.Tensor, name: str, pieces: int = 1
    ) -> torch.Tensor:
        """The loss of each text over all nodes of a level.

        With several pieces, scores of one piece of the level are held at a time, and made again for the gradient.
        """
        seen = self.inputs(vectors)
        weight, bias = self.weights[level - 1], self.biases[level - 1]
        if pieces == 1 or name == "softmax":
            return row_losses(linear(seen, weight, bias), costs, name)

        def piece(seen: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, costs: torch.Tensor) -> torch.Tensor:
            return row_losses(linear(seen, weight, bias), costs, name)

        total = torch.zeros(seen.shape[0], device=seen.device)
        for some in zip(weight.chunk(pieces), bias.chunk(pieces), costs.chunk(pieces, 1), strict=True):
            total = total + checkpoint(piece, seen, *some, use_reentrant=False)
        return total

    def loss_of_shortlists(
        self,
        vectors: torch.Tensor,
        level: int,
        positives: Sequence[tuple[torch.Tensor, torch.Tensor]],
        name: str,
        *,
        beam: int,
        teacher: bool,
        matcher: bool,
    ) -> torch.Tensor:
        """The loss of each text over shortlists of the levels down to one.

        Parameters
        ----------
        positives : sequence of (nodes, costs), one for each level down to this one
            As :meth:`Targets.padded` gives them.
        """
        seen = self.inputs(vectors)
        total = torch.zeros(seen.shape[0], device=seen.device)
        nodes = torch.arange(self.biases[0].numel(), device=seen.device).expand(seen.shape[0], -1)
        for at in range(1, level + 1):
            scores = self._scores(seen, at, nodes if at > 1 else None)
            mine, costs = positives[at - 1]
            match = (nodes[:, :, None] == mine[:, None, :]) & (nodes[:, :, None] >= 0)
            total = total + row_losses(scores, (match * costs[:, None, :]).sum(2), name, nodes >= 0)
            if at < level:
                wanted = scores.detach().float() if matcher else torch.zeros_like(scores, dtype=torch.float32)
                wanted = wanted.masked_fill(nodes < 0, -2 * _FAR)
                if teacher:
                    wanted = wanted + _FAR * match.any(2)
                nodes = self._below(at, nodes, wanted, beam)
        return total

    @torch.no_grad()
    def top(
        self, vectors: torch.Tensor, level: int, *, top_k: int, beam: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Nodes and raw scores of a level's best for each vector: of all nodes or, with a beam, of those it reaches."""
        seen = vectors * self.scale
        if beam is None:
            scores = linear(seen, self.weights[level - 1], self.biases[level - 1])
            best = scores.topk(min(top_k, scores.shape[1]))
            return best.indices, best.values
        nodes = torch.arange(self.biases[0].numel(), device=seen.device).expand(seen.shape[0], -1)
        for at in range(1, level + 1):
            scores = self._scores(seen, at, nodes if at > 1 else None).float().masked_fill(nodes < 0, -_FAR)
            if at < level:
                nodes = self._below(at, nodes, scores, beam)
        best = scores.topk(min(top_k, scores.shape[1]))
        return nodes.gather(1, best.indices), best.values

    def _scores(self, seen: torch.Tensor, level: int, nodes: torch.Tensor | None) -> torch.Tensor:
        weight, bias = self.weights[level - 1], self.biases[level - 1]
        if nodes is None:
            return linear(seen, weight, bias)
        known = nodes.clamp(min=0)
        rows = nn.functional.embedding(known, weight)
        return (
            torch.einsum("bsw,bw->bs", rows, seen.to(rows.dtype))
            + nn.functional.embedding(known, bias[:, None])[..., 0]
        )

    def _below(self, level: int, nodes: torch.Tensor, scores: torch.Tensor, beam: int) -> torch.Tensor:
        """The children of the best nodes of a level, texts x shortlist; -1 where there are fewer."""
        best = scores.topk(min(beam, scores.shape[1]))
        parents = nodes.gather(1, best.indices)
        table: torch.Tensor = getattr(self, f"children_{level}")
        children = table[parents.clamp(min=0)]
        gone = (best.values < -_FAR) | (parents < 0)
        return children.masked_fill(gone[:, :, None], -1).flatten(1)


def _children(parent: NDArray[np.int32], n_parents: int) -> torch.Tensor:
    """The children of every node of a level, filled up with -1."""
    counts = np.bincount(parent, minlength=n_parents)
    order = np.argsort(parent, kind="stable")
    column = np.arange(parent.size) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((n_parents, int(counts.max())), -1, np.int64)
    table[parent[order], column] = order
    return torch.from_numpy(table)
