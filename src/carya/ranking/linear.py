"""One-versus-rest linear rankers (section 2.3.2 of the paper), trained in parallel with the native solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.errors import InputError
from carya.trees.layer import Layer, Weights
from carya.trees.transforms import Transform


@dataclass(frozen=True, eq=False)
class LayerProblem:
    """Training problem for one layer.

    Attributes
    ----------
    level : int
        The tree level, 1 … D.
    seed : int
        The random seed; together with the level, it determines the order in which rows are visited.
    targets : Csr of shape (rows, nodes)
        The positive entries; their values are costs.
    shortlist : Csr of shape (parents, rows), or None
        The rows on which each parent's children are trained; None means all rows.
    order, chunks
        The nodes grouped by parent, as returned by :meth:`carya.LabelTree.children`.
    transform : Transform
        The transform that combines scores with the scores of the parents.
    """

    level: int
    seed: int
    targets: Csr
    shortlist: Csr | None
    order: NDArray[np.int32]
    chunks: NDArray[np.int64]
    transform: Transform


@dataclass(frozen=True, kw_only=True)
class LinearSolver:
    """Solver for layers; its attributes are the parameters of :class:`carya.XRLinear` with the same names."""

    loss: str
    penalty: str
    C: float
    positive_weight: float
    negative_weight: float
    bias: float
    tol: float
    max_iter: int
    threshold: float
    threshold_by: str
    max_weights: int | None
    weight_dtype: str
    use_target_costs: bool = False

    def train(
        self, features: Features, problems: Sequence[LayerProblem], *, threads: int, report: Report = None
    ) -> list[Layer]:
        """Train the layers of independent problems, from one or more trees, in a single task pool."""
        solutions = _core.train_layers(
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
            self.C * self.positive_weight,
            self.C * self.negative_weight,
            self.use_target_costs,
            self.bias,
            self.tol,
            self.max_iter,
            self.threshold,
            self.threshold_by == "effect",
            self.max_weights or 0,
            threads,
            report,
        )
        layers = []
        for problem in problems:
            triple, biases, dense = solutions.pop(0)  # removed from the list so that it is freed after packing
            try:
                weights = Csr.of_triple(triple, problem.order.size)
            except InputError:
                raise InputError("Training diverged: weights are NaN or infinite. Scale X or C down.") from None
            layers.append(
                Layer(
                    weights=Weights.pack(weights, problem.chunks, self.weight_dtype, threads=threads),
                    dense=dense,
                    biases=biases,
                    chunks=problem.chunks,
                    order=problem.order,
                    transform=problem.transform,
                )
            )
        return layers
