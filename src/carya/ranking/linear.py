"""One-versus-rest linear rankers (section 2.3.2 of the paper), trained in parallel with the native solver."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.core.rules import expand_per_layer
from carya.errors import InputError
from carya.trees.layer import Layer, Weights
from carya.trees.transforms import Transform

#: The settings of the solver that can differ between layers.
PER_LAYER_SETTINGS = ("C", "tol", "max_iter", "threshold", "max_weights")


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
    depth : int, optional
        The number of layers in the tree, used to expand per-layer settings; by default, this is the last layer.
    """

    level: int
    seed: int
    targets: Csr
    shortlist: Csr | None
    order: NDArray[np.int32]
    chunks: NDArray[np.int64]
    transform: Transform
    depth: int | None = None


@dataclass(frozen=True, kw_only=True)
class LinearSolver:
    """Solver for layers; its attributes are the parameters of :class:`carya.XRLinear` with the same names.

    The settings in `PER_LAYER_SETTINGS` are single values for all layers, pairs for the inner layers and the last
    layer, or tuples with one value per layer.
    """

    loss: str
    penalty: str
    C: float | tuple[float, ...]
    positive_weight: float
    negative_weight: float
    bias: float
    tol: float | tuple[float, ...]
    max_iter: int | tuple[int, ...]
    threshold: float | tuple[float, ...]
    threshold_by: str
    max_weights: int | tuple[int | None, ...] | None
    weight_dtype: str
    use_target_costs: bool = False

    def at_layer(self, level: int, depth: int) -> LinearSolver:
        """Return the solver of one layer, 1 … `depth`, whose settings are single values."""
        settings = {name: expand_per_layer(getattr(self, name), depth, name)[level - 1] for name in PER_LAYER_SETTINGS}
        return dataclasses.replace(self, **settings)

    def train(
        self,
        features: Features,
        problems: Sequence[LayerProblem],
        *,
        sample_weight: NDArray[np.float32] | None = None,
        threads: int,
        report: Report = None,
    ) -> list[Layer]:
        """Train the layers of independent problems, from one or more trees.

        Problems with the same settings form a single task pool.

        Parameters
        ----------
        sample_weight : ndarray of float32, shape (rows,), optional
            Positive factors by which the costs of each row are multiplied.
        """
        by_solver: dict[LinearSolver, list[int]] = {}
        for number, problem in enumerate(problems):
            solver = self.at_layer(problem.level, problem.depth or problem.level)
            by_solver.setdefault(solver, []).append(number)
        layers: dict[int, Layer] = {}
        for solver, numbers in by_solver.items():
            together = [problems[number] for number in numbers]
            solved = solver._train_together(
                features, together, sample_weight=sample_weight, threads=threads, report=report
            )
            layers |= dict(zip(numbers, solved, strict=True))
        return [layers[number] for number in range(len(problems))]

    def _train_together(
        self,
        features: Features,
        problems: Sequence[LayerProblem],
        *,
        sample_weight: NDArray[np.float32] | None,
        threads: int,
        report: Report,
    ) -> list[Layer]:
        C, tol, max_iter, threshold, max_weights = (self._single(name) for name in PER_LAYER_SETTINGS)
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
            C * self.positive_weight,
            C * self.negative_weight,
            self.use_target_costs,
            self.bias,
            tol,
            max_iter,
            threshold,
            self.threshold_by == "effect",
            max_weights or 0,
            sample_weight,
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

    def _single(self, name: str) -> Any:
        """Return a setting that has a single value."""
        value = getattr(self, name)
        assert not isinstance(value, tuple)  # expanded by at_layer
        return value
