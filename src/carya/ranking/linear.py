"""One-versus-rest linear rankers (paper, section 2.3.2), solved many at a time by the native core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.trees.layer import Layer, Weights
from carya.trees.transforms import Transform


@dataclass(frozen=True, eq=False)
class Problem:
    """What one layer is trained on.

    Attributes
    ----------
    level : int
        Of the tree, 1 … D.
    seed : int
        With the level, it decides the order in which rows are looked at.
    targets : Csr, rows x nodes
        The positives; values are costs.
    shortlist : Csr, parents x rows, or None
        The rows each parent's children are trained on; None is all rows.
    order, chunks
        The nodes grouped by parent, as :meth:`carya.LabelTree.children` gives them.
    transform : Transform
        How the layer's scores join those above.
    """

    level: int
    seed: int
    targets: Csr
    shortlist: Csr | None
    order: NDArray[np.int32]
    chunks: NDArray[np.int64]
    transform: Transform


@dataclass(frozen=True, kw_only=True)
class LinearRanker:
    """A solver with its settings; :meth:`train` makes layers."""

    loss: str
    penalty: str
    cost: float
    positive_cost: float
    negative_cost: float
    own_costs: bool
    bias: float
    tolerance: float
    max_passes: int
    threshold: float
    threshold_by: str
    max_weights: int | None
    precision: str

    def train(
        self, features: Features, problems: Sequence[Problem], *, threads: int, report: Report = None
    ) -> list[Layer]:
        """The layers of some problems that do not depend on each other, of one tree or several: one pool of work."""
        solved = _core.train_layers(
            features.native,
            [
                _core.LayerProblem(
                    problem.level,
                    problem.seed,
                    problem.targets.transpose().native,
                    problem.order,
                    problem.chunks,
                    None if problem.shortlist is None else problem.shortlist.native,
                )
                for problem in problems
            ],
            getattr(_core.Loss, self.loss.replace("-", "_")),
            getattr(_core.Penalty, self.penalty),
            self.cost * self.positive_cost,
            self.cost * self.negative_cost,
            self.own_costs,
            self.bias,
            self.tolerance,
            self.max_passes,
            self.threshold,
            self.threshold_by == "effect",
            self.max_weights or 0,
            threads,
            report,
        )
        layers = []
        for problem in problems:
            weights, offsets, dense = solved.pop(0)  # freed as soon as it is packed
            layers.append(
                Layer(
                    weights=Weights.pack(
                        Csr.of_triple(weights, problem.order.size, "the result of training (scale X, or costs, down)"),
                        problem.chunks,
                        self.precision,
                        threads=threads,
                    ),
                    dense=dense,
                    offsets=offsets,
                    chunks=problem.chunks,
                    order=problem.order,
                    transform=problem.transform,
                )
            )
        return layers
