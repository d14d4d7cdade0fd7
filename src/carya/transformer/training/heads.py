"""Heads: linear rankers on an encoder's embeddings, one for each level of the label tree.

A level can be trained on shortlists or on all its nodes at once, which is fast on a GPU as long as the scores of a
batch fit into memory. A shortlist is selected by a beam search through the levels above. It contains the children of
the clusters to which the text's labels belong (teacher) and of the clusters that the heads rank highest (matcher). The
heads of the levels above are trained at the same time, so all heads use the same embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from carya.transformer.training.losses import RELATIVE_LOSSES, row_losses

_LARGE = 1e9


@dataclass(frozen=True)
class Shortlist:
    """Parameters for selecting the shortlist of a text.

    Attributes
    ----------
    beam_width : int
        Number of clusters selected per level.
    teacher : bool
        Whether the clusters that contain the text's labels are selected first.
    matcher : bool
        Whether other clusters are selected by score.
    """

    beam_width: int
    teacher: bool
    matcher: bool


class Heads(nn.Module):
    """Linear rankers for all levels.

    Parameters
    ----------
    parents : sequence of arrays
        The tree, in the format of :attr:`carya.LabelTree.parents`.
    width : int
        The dimension of the embeddings. Embeddings are unit vectors, and heads multiply them by √width, so that
        the values have a magnitude of about 1.
    dropout : float
    """

    def __init__(self, parents: Sequence[NDArray[np.int32]], width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(level.size, width)) for level in parents)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(level.size)) for level in parents)
        self.scale = width**0.5
        self.dropout = dropout
        for level in range(1, len(parents)):
            self.register_buffer(f"children_{level}", _child_table(parents[level], parents[level - 1].size), False)

    @torch.no_grad()
    def initialize(
        self, level: int, parents: NDArray[np.int32] | None, frequencies: NDArray[np.float64], *, log_odds: bool
    ) -> None:
        """Initialize a level: copy the parents' weights or use small random weights, and set the biases.

        Parameters
        ----------
        parents : array or None
            The parent of each node at the level above; None if that level was not trained.
        frequencies : array
            The fraction of texts for which each node is positive.
        log_odds : bool
            Whether to set the biases to the log odds of the frequencies. Otherwise, they are set to -1, at which
            the hinge loss of a negative node is 0.
        """
        weights, biases = self.weights[level - 1], self.biases[level - 1]
        if parents is None:
            weights.normal_(std=0.02)
        else:
            indices = torch.from_numpy(parents.astype(np.int64)).to(weights.device)
            weights.copy_(self.weights[level - 2][indices] + 0.005 * torch.randn_like(weights))
        clipped = np.clip(frequencies, 1e-6, 0.5)
        values = np.log(clipped / (1 - clipped)) if log_odds else np.full(clipped.shape, -1.0)
        biases.copy_(torch.from_numpy(values.astype(np.float32)))

    @torch.no_grad()
    def set_weights(self, level: int, weights: NDArray[np.float32], biases: NDArray[np.float32]) -> None:
        """Set the weights of a level, given for inputs that are unit vectors, and its biases."""
        self.weights[level - 1].copy_(torch.from_numpy(weights / self.scale))
        self.biases[level - 1].copy_(torch.from_numpy(biases))

    @torch.no_grad()
    def add_weights(self, level: int, nodes: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Add weights, given for inputs that are unit vectors, to the weights of some nodes at a level."""
        level_weights = self.weights[level - 1]
        indices = torch.from_numpy(nodes.astype(np.int64)).to(level_weights.device)
        level_weights.index_add_(0, indices, torch.from_numpy(weights / self.scale).to(level_weights))

    def level_weights(self, level: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the weights of a level for inputs that are unit vectors, and its biases."""
        weights = self.weights[level - 1].detach().float().cpu().numpy() * self.scale
        return np.ascontiguousarray(weights, np.float32), self.biases[level - 1].detach().float().cpu().numpy()

    def full_loss(
        self, embeddings: torch.Tensor, level: int, costs: torch.Tensor, loss: str, n_chunks: int = 1
    ) -> torch.Tensor:
        """Return the loss of each text, summed over all nodes at a level.

        With several chunks, the scores of only one chunk are kept in memory at a time and are recomputed in the
        backward pass.
        """
        inputs = self._scaled(embeddings)
        weights, biases = self.weights[level - 1], self.biases[level - 1]
        if n_chunks == 1 or loss in RELATIVE_LOSSES:
            return row_losses(functional.linear(inputs, weights, biases), costs, loss)

        def chunk_loss(
            inputs: torch.Tensor, weights: torch.Tensor, biases: torch.Tensor, costs: torch.Tensor
        ) -> torch.Tensor:
            return row_losses(functional.linear(inputs, weights, biases), costs, loss)

        total = torch.zeros(inputs.shape[0], device=inputs.device)
        for chunk in zip(weights.chunk(n_chunks), biases.chunk(n_chunks), costs.chunk(n_chunks, 1), strict=True):
            total = total + checkpoint(chunk_loss, inputs, *chunk, use_reentrant=False)
        return total

    def shortlist_loss(
        self,
        embeddings: torch.Tensor,
        level: int,
        positives: Sequence[tuple[torch.Tensor, torch.Tensor]],
        loss: str,
        shortlist: Shortlist,
    ) -> torch.Tensor:
        """Return the loss of each text, summed over the shortlists at all levels down to the given level.

        Parameters
        ----------
        positives : sequence of (nodes, costs), one pair per level
            The targets, as returned by :meth:`~carya.transformer.training.examples.Targets.padded`.
        """
        inputs = self._scaled(embeddings)
        total = torch.zeros(inputs.shape[0], device=inputs.device)
        nodes = self._first_level(inputs)
        for current in range(1, level + 1):
            scores = self._scores(inputs, current, nodes if current > 1 else None)
            positive_nodes, costs = positives[current - 1]
            match = (nodes[:, :, None] == positive_nodes[:, None, :]) & (nodes[:, :, None] >= 0)
            total = total + row_losses(scores, (match * costs[:, None, :]).sum(2), loss, nodes >= 0)
            if current < level:
                priority = (
                    scores.detach().float() if shortlist.matcher else torch.zeros_like(scores, dtype=torch.float32)
                )
                priority = priority.masked_fill(nodes < 0, -2 * _LARGE)
                if shortlist.teacher:
                    priority = priority + _LARGE * match.any(2)
                nodes = self._children(current, nodes, priority, shortlist.beam_width)
        return total

    @torch.no_grad()
    def rank(
        self, embeddings: torch.Tensor, level: int, *, top_k: int, beam_width: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best nodes at a level for each embedding, and their raw scores.

        Without a beam width, all nodes are scored; otherwise, only the nodes that a beam search reaches are scored.
        """
        inputs = embeddings * self.scale
        if beam_width is None:
            scores = functional.linear(inputs, self.weights[level - 1], self.biases[level - 1])
            best = scores.topk(min(top_k, scores.shape[1]))
            return best.indices, best.values
        nodes = self._first_level(inputs)
        for current in range(1, level + 1):
            scores = self._scores(inputs, current, nodes if current > 1 else None).float()
            scores = scores.masked_fill(nodes < 0, -_LARGE)
            if current < level:
                nodes = self._children(current, nodes, scores, beam_width)
        best = scores.topk(min(top_k, scores.shape[1]))
        return nodes.gather(1, best.indices), best.values

    def _scaled(self, embeddings: torch.Tensor) -> torch.Tensor:
        return functional.dropout(embeddings * self.scale, self.dropout, self.training)

    def _first_level(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return all nodes at the first level for each text, as a tensor of shape (texts, nodes)."""
        return torch.arange(self.biases[0].numel(), device=inputs.device).expand(inputs.shape[0], -1)

    def _scores(self, inputs: torch.Tensor, level: int, nodes: torch.Tensor | None) -> torch.Tensor:
        """Return the raw scores of all nodes at a level, or of the given nodes for each text."""
        weights, biases = self.weights[level - 1], self.biases[level - 1]
        if nodes is None:
            return functional.linear(inputs, weights, biases)
        indices = nodes.clamp(min=0)
        rows = functional.embedding(indices, weights)
        return (
            torch.einsum("bsw,bw->bs", rows, inputs.to(rows.dtype))
            + functional.embedding(indices, biases[:, None])[..., 0]
        )

    def _children(self, level: int, nodes: torch.Tensor, scores: torch.Tensor, beam_width: int) -> torch.Tensor:
        """Return the children of the best nodes at a level as a (texts, shortlist) tensor, padded with -1."""
        best = scores.topk(min(beam_width, scores.shape[1]))
        parents = nodes.gather(1, best.indices)
        table: torch.Tensor = getattr(self, f"children_{level}")
        children = table[parents.clamp(min=0)]
        missing = (best.values < -_LARGE) | (parents < 0)
        return children.masked_fill(missing[:, :, None], -1).flatten(1)


def _child_table(parents: NDArray[np.int32], n_parents: int) -> torch.Tensor:
    """Return the children of each node at a level, one row per node, padded with -1."""
    counts = np.bincount(parents, minlength=n_parents)
    order = np.argsort(parents, kind="stable")
    column = np.arange(parents.size) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((n_parents, int(counts.max())), -1, np.int64)
    table[parents[order], column] = order
    return torch.from_numpy(table)
