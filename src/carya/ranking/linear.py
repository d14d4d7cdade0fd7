"""One-versus-rest linear rankers (section 2.3.2 of the paper), trained in parallel by the native solver."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import memory
from carya.core.matrices import Csr, Features
from carya.core.progress import ProgressCallback, Report
from carya.core.rules import expand_per_layer
from carya.errors import InputError, ModelFormatError
from carya.ranking.tasks.checkpoint_folder import CheckpointFolder, fingerprint
from carya.ranking.tasks.parts import MAX_WORK, ProblemPart, divide
from carya.trees.layer import Layer, Weights
from carya.trees.transforms import Transform

#: The solver settings that can differ between layers.
PER_LAYER_SETTINGS = ("C", "tol", "max_iter", "threshold", "max_weights")


@dataclass(frozen=True, eq=False)
class Solution:
    """The trained rankers for the children of consecutive parents in a layer.

    Attributes
    ----------
    weights : _core.ChunkedWeights
        The weights of the sparse features.
    biases : ndarray of float32, shape (positions,)
    dense : ndarray of float32, shape (positions, dense features)
        The weights of the dense features.
    """

    weights: _core.ChunkedWeights
    biases: NDArray[np.float32]
    dense: NDArray[np.float32]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the solution as arrays for storage."""
        return self.weights.arrays() | {"biases": self.biases, "dense": self.dense}

    @classmethod
    def of_arrays(
        cls, arrays: dict[str, NDArray[Any]], chunks: NDArray[np.int64], n_features: int, weight_dtype: str
    ) -> Self:
        """Restore a solution from stored arrays without copying them; raise ModelFormatError if they are invalid."""
        weights = {name: array for name, array in arrays.items() if name not in ("biases", "dense")}
        try:
            chunked = _core.ChunkedWeights(chunks, n_features, getattr(_core.WeightDtype, weight_dtype), **weights)
        except (TypeError, ValueError) as error:
            raise ModelFormatError(f"A stored part of a layer is invalid: {error}") from None
        return cls(chunked, arrays["biases"], arrays["dense"])


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
        The positive entries; their values are misclassification costs.
    shortlist : Csr of shape (parents, rows), or None
        The rows on which the rankers of each parent's children are trained; None means all rows.
    order, chunks
        The nodes grouped by parent, as returned by :meth:`carya.LabelTree.children`.
    transform : Transform
        The transform that combines the scores of the nodes with the scores of their parents.
    depth : int, optional
        The number of layers in the tree, used to expand per-layer settings; by default, this layer is the last.
    first_parent : int
        The index of the first parent within its level; 0 unless the problem is part of a layer.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(50, 4, seed=0)
    >>> order, chunks = carya.LabelTree([[0, 0, 0, 0]]).children(1)
    >>> problem = LayerProblem(1, 0, Csr.of_scipy(Y), None, order, chunks, Transform.from_name("l3-hinge"))
    >>> (layer,) = carya.XRLinear().linear_solver().train(Features.of(Csr.of_scipy(X)), [problem], threads=1)
    >>> layer.n_nodes
    4
    """

    level: int
    seed: int
    targets: Csr
    shortlist: Csr | None
    order: NDArray[np.int32]
    chunks: NDArray[np.int64]
    transform: Transform
    depth: int | None = None
    first_parent: int = 0


@dataclass(frozen=True, kw_only=True)
class LinearSolver:
    """Solver for layers; its attributes are the :class:`carya.XRLinear` parameters of the same name.

    Each setting in `PER_LAYER_SETTINGS` is a single value for all layers, a pair of values for the inner layers and the
    last layer, or a tuple with one value per layer.

    Examples
    --------
    >>> import carya
    >>> solver = carya.XRLinear(C=(0.5, 2.0), max_iter=10).linear_solver()
    >>> [solver.at_layer(level, depth=3).C for level in (1, 2, 3)]
    [0.5, 0.5, 2.0]
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
        """Return the solver for one layer (1 … `depth`), whose settings are single values."""
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
        checkpoints: CheckpointFolder | None = None,
        data_key: str = "",
    ) -> list[Layer]:
        """Train one layer for each independent problem; the problems can belong to different trees.

        Problems with the same settings form a single task pool.

        Parameters
        ----------
        sample_weight : ndarray of float32, shape (rows,), optional
            Positive per-row weights; the loss of each row is multiplied by its weight.
        checkpoints : CheckpointFolder, optional
            The folder that stores the completed parts of the layers. If it is given, or if a memory limit is enforced,
            the parts are trained sequentially.
        data_key : str
            The hash of `features` and `sample_weight`, on which the checkpoint keys depend.
        """
        by_solver: dict[LinearSolver, list[int]] = {}
        for number, problem in enumerate(problems):
            solver = self.at_layer(problem.level, problem.depth or problem.level)
            by_solver.setdefault(solver, []).append(number)
        layers: dict[int, Layer] = {}
        for solver, numbers in by_solver.items():
            together = [problems[number] for number in numbers]
            options: dict[str, Any] = {"sample_weight": sample_weight, "threads": threads, "report": report}
            if checkpoints is None and not memory.is_limited():
                solutions = [[solution] for solution in solver._solve(features, together, **options)]
            else:
                solutions = solver._solve_parts(features, together, checkpoints, data_key, **options)
            solved = [
                solver.pack(problem, solutions.pop(0), features.sparse.cols, threads=threads) for problem in together
            ]
            layers |= dict(zip(numbers, solved, strict=True))
        return [layers[number] for number in range(len(problems))]

    def _solve(
        self,
        features: Features,
        problems: Sequence[LayerProblem],
        *,
        sample_weight: NDArray[np.float32] | None,
        threads: int,
        report: Report,
        positives: Csr | None = None,
    ) -> list[Solution]:
        """Solve problems in one task pool; `positives` are the transposed targets, if all problems share them."""
        C, tol, max_iter, threshold, max_weights = (self._single(name) for name in PER_LAYER_SETTINGS)
        problem_objects = [
            _core.LayerProblem(
                problem.level,
                problem.seed,
                (problem.targets.transpose(threads) if positives is None else positives).native,
                problem.order,
                problem.chunks,
                None if problem.shortlist is None else problem.shortlist.native,
                problem.first_parent,
            )
            for problem in problems
        ]
        arguments = (
            features.native,
            problem_objects,
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
            getattr(_core.WeightDtype, self.weight_dtype),
            sample_weight,
            threads,
            report,
        )
        try:
            return [Solution(*layer) for layer in _core.train_layers(*arguments)]
        except ValueError:
            raise InputError("Training diverged: weights are NaN or infinite. Reduce C or the scale of X.") from None

    def _solve_parts(
        self,
        features: Features,
        problems: Sequence[LayerProblem],
        checkpoints: CheckpointFolder | None,
        data_key: str,
        *,
        sample_weight: NDArray[np.float32] | None,
        threads: int,
        report: Report,
    ) -> list[list[Solution]]:
        """Solve problems in parts, each of which is moved to disk as soon as it is solved."""
        # With checkpoints, the division into parts must not depend on the memory limit.
        limits = {"max_work": memory.scale(MAX_WORK)} if checkpoints is None else {}
        parts = divide(problems, features, **limits)
        total, done = sum(part.work for part in parts), 0.0
        keys = [""] * len(parts)
        if checkpoints is not None:
            problem_keys = [self.problem_key(problem, data_key) for problem in problems]
            keys = [part_key(part, problems[part.number], problem_keys[part.number]) for part in parts]
        positives: dict[int, Csr] = {}
        solved: list[list[Solution]] = [[] for _ in problems]
        for part, key in zip(parts, keys, strict=True):
            name, selected = layer_name(problems[part.number].level), part.select(problems[part.number])
            arrays = None if checkpoints is None else checkpoints.load(name, key)
            if arrays is None:
                if part.number not in positives:
                    positives = {part.number: problems[part.number].targets.transpose(threads)}
                solution = self.solve_part(
                    features,
                    selected,
                    positives[part.number],
                    sample_weight=sample_weight,
                    threads=threads,
                    report=None if report is None else _scaled(report, done, part.work, total),
                )
                arrays = solution.to_arrays()
                if checkpoints is not None:
                    checkpoints.store(name, key, arrays)
            arrays = {name: memory.to_limited(array) for name, array in arrays.items()}
            solution = Solution.of_arrays(arrays, selected.chunks, features.sparse.cols, self.weight_dtype)
            solved[part.number].append(solution)
            done += part.work
        return solved

    def problem_key(self, problem: LayerProblem, data_key: str) -> str:
        """Return the hash of the inputs that all parts of a problem share."""
        return fingerprint([data_key, repr(self), problem.seed, problem.level, problem.targets])

    def solve_part(
        self,
        features: Features,
        problem: LayerProblem,
        positives: Csr,
        *,
        sample_weight: NDArray[np.float32] | None,
        threads: int,
        report: Report = None,
    ) -> Solution:
        """Return the solution of a part of a problem; `positives` are the transposed targets."""
        (solution,) = self._solve(
            features, [problem], sample_weight=sample_weight, threads=threads, report=report, positives=positives
        )
        return solution

    def pack(self, problem: LayerProblem, solutions: Sequence[Solution], n_features: int, *, threads: int) -> Layer:
        """Combine the solutions of all parts of a problem into a layer."""
        parts = [solution.weights for solution in solutions]
        return Layer(
            weights=Weights.pack_chunks(parts, problem.chunks, n_features, self.weight_dtype, threads=threads),
            dense=np.concatenate([solution.dense for solution in solutions]),
            biases=np.concatenate([solution.biases for solution in solutions]),
            chunks=problem.chunks,
            order=problem.order,
            transform=problem.transform,
        )

    def _single(self, name: str) -> Any:
        """Return a setting, which must be a single value."""
        value = getattr(self, name)
        assert not isinstance(value, tuple)  # expanded by at_layer
        return value


def layer_name(level: int) -> str:
    """Return the name under which a checkpoint folder stores the solutions of a layer."""
    return f"layer-{level}"


def part_key(part: ProblemPart, problem: LayerProblem, problem_key: str) -> str:
    """Return the hash of all inputs that determine the solution of a part."""
    selected = part.select(problem)
    return fingerprint([problem_key, selected.first_parent, selected.shortlist, selected.order, selected.chunks])


def _scaled(report: ProgressCallback, done: float, work: float, total: float) -> ProgressCallback:
    """Return a callback for one part that reports the progress of all parts."""

    def report_part(part_done: int, part_total: int, /, *, loss: float | None = None) -> None:
        report(int(done + work * part_done / max(part_total, 1)), int(total), loss=loss)

    return report_part
