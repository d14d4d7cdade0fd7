"""Training examples: tokenized texts and their target nodes at every tree level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr
from carya.matching import RelevanceCosts, level_targets
from carya.transformer.encoder.tokens import Tokens
from carya.trees.label_tree import LabelTree


@dataclass(frozen=True, eq=False)
class Targets:
    """Positive nodes of texts at one tree level.

    Attributes
    ----------
    starts : int64 ndarray of shape (texts + 1,)
        The start of each text's nodes in `nodes`, and the end of the last text's nodes.
    nodes : ndarray of int32
    costs : ndarray of float32
        The cost of missing each node.
    n_nodes : int
        The number of nodes at the level.
    """

    starts: NDArray[np.int64]
    nodes: NDArray[np.int32]
    costs: NDArray[np.float32]
    n_nodes: int

    def entries(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Return the targets of the texts in `rows` as three arrays: the position in `rows`, the node and the cost."""
        counts = np.diff(self.starts)[rows]
        ends = np.cumsum(counts)
        selected = np.repeat(self.starts[rows] - (ends - counts), counts) + np.arange(int(counts.sum()))
        return np.repeat(np.arange(rows.size), counts), self.nodes[selected].astype(np.int64), self.costs[selected]

    def padded(self, rows: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the nodes and costs of texts as (texts, width) arrays, truncated or padded (nodes: -1, costs: 0)."""
        text, node, cost = self.entries(rows)
        first = np.flatnonzero(np.diff(text, prepend=-1))  # first target of each text that has targets
        column = np.arange(text.size) - np.repeat(first, np.diff(np.append(first, text.size)))
        kept = column < width
        nodes = np.full((rows.size, width), -1, np.int64)
        costs = np.zeros((rows.size, width), np.float32)
        nodes[text[kept], column[kept]] = node[kept]
        costs[text[kept], column[kept]] = cost[kept]
        return nodes, costs


@dataclass(frozen=True, eq=False)
class Examples:
    """Tokenized texts and their targets at each tree level."""

    tokens: Tokens
    targets: Sequence[Targets]

    @classmethod
    def of(cls, tokens: Tokens, labels: Csr, tree: LabelTree, *, cost_sensitive: bool = False) -> Examples:
        """Create examples; if `cost_sensitive` is true, label values are costs and are summed within each cluster."""
        costs = RelevanceCosts("induce" if cost_sensitive else "none")
        targets = [
            Targets(level.indptr, level.indices, level.values, level.cols)
            for level in level_targets(labels, tree, costs=costs)
        ]
        return cls(tokens, targets)
