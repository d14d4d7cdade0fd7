"""Train layers with an engine: each part of a layer is a task, and all tasks share a checkpoint folder."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.errors import ModelFormatError
from carya.ranking.linear import LayerProblem, LinearSolver, Solution, layer_name, part_key
from carya.ranking.tasks.checkpoint_folder import CheckpointFolder, csr_arrays, csr_of_arrays, fingerprint
from carya.ranking.tasks.engine import Engine
from carya.ranking.tasks.parts import ProblemPart, divide
from carya.trees.layer import Layer
from carya.trees.transforms import Transform


class StoredData(NamedTuple):
    """The features and sample weights of the training rows."""

    features: Features
    sample_weight: NDArray[np.float32] | None


@dataclass(frozen=True)
class SolvePart:
    """Task that trains a part of a layer.

    Attributes
    ----------
    folder : str
        The checkpoint folder, which all processes can access.
    solver : LinearSolver
    data_key, problem_key, result_key : str
        The hashes of the training data, of the problem, and of all inputs of the part.
    level, seed : int
    part : ProblemPart
    """

    folder: str
    solver: LinearSolver
    data_key: str
    problem_key: str
    result_key: str
    level: int
    seed: int
    part: ProblemPart

    @property
    def work(self) -> float:
        """The estimated amount of work."""
        return self.part.work

    def run(self, threads: int) -> None:
        """Train the part and store its weights, unless another run of this task has already done so."""
        checkpoints = CheckpointFolder(self.folder)
        name = layer_name(self.level)
        if checkpoints.contains(name, self.result_key):
            return
        data, (problem, positives) = load_data(self.folder, self.data_key), self._problem()
        solution = self.solver.solve_part(
            data.features, self.part.select(problem), positives, sample_weight=data.sample_weight, threads=threads
        )
        checkpoints.store(name, self.result_key, solution.to_arrays())

    def _problem(self) -> tuple[LayerProblem, Csr]:
        arrays = load_arrays(self.folder, "problem", self.problem_key)
        rows = arrays["rows"].item()
        positives = csr_of_arrays(arrays, rows, "positives", "positives.")
        shortlist = csr_of_arrays(arrays, rows, "shortlist", "shortlist.") if "shortlist.indptr" in arrays else None
        problem = LayerProblem(
            level=self.level,
            seed=self.seed,
            targets=positives,  # not used, because the solver receives the transposed targets
            shortlist=shortlist,
            order=arrays["order"],
            chunks=arrays["chunks"],
            transform=Transform.from_name("noop"),  # not used in training
        )
        return problem, positives


def train_layers(
    solver: LinearSolver,
    data: StoredData,
    problems: Sequence[LayerProblem],
    *,
    engine: Engine,
    checkpoints: CheckpointFolder,
    data_key: str,
    threads: int,
    report: Report = None,
) -> list[Layer]:
    """Train one layer for each independent problem with an engine; see :meth:`LinearSolver.train`."""
    store_data(checkpoints, data_key, data)
    parts = divide(problems, data.features)
    solvers = [solver.at_layer(problem.level, problem.depth or problem.level) for problem in problems]
    keys = [own.problem_key(problem, data_key) for own, problem in zip(solvers, problems, strict=True)]
    part_keys = [part_key(part, problems[part.number], keys[part.number]) for part in parts]
    tasks = []
    for number, problem in enumerate(problems):
        problem_key = fingerprint([keys[number], problem.shortlist, problem.order, problem.chunks])
        own_tasks = [
            SolvePart(
                str(checkpoints.path.absolute()),
                solvers[number],
                data_key,
                problem_key,
                key,
                problem.level,
                problem.seed,
                part,
            )
            for part, key in zip(parts, part_keys, strict=True)
            if part.number == number and not checkpoints.contains(layer_name(problem.level), key)
        ]
        if own_tasks:
            store_problem(checkpoints, problem_key, problem)
        tasks += own_tasks
    engine.run(tasks, report)
    n_features = data.features.sparse.cols
    solutions: list[list[Solution]] = [[] for _ in problems]
    for part, key in zip(parts, part_keys, strict=True):
        problem = problems[part.number]
        arrays = load_arrays(str(checkpoints.path), layer_name(problem.level), key)
        chunks = part.select(problem).chunks
        solutions[part.number].append(Solution.of_arrays(arrays, chunks, n_features, solver.weight_dtype))
    return [
        own.pack(problem, solutions[number], n_features, threads=threads)
        for number, (own, problem) in enumerate(zip(solvers, problems, strict=True))
    ]


def store_data(checkpoints: CheckpointFolder, key: str, data: StoredData) -> None:
    """Store the features and sample weights of the training rows, unless they are stored already."""
    if not checkpoints.contains("features", key):
        features = data.features
        arrays = csr_arrays(features.sparse, "sparse.") | {"dense": features.dense}
        arrays["cols"] = np.array([features.sparse.cols], np.int64)
        if data.sample_weight is not None:
            arrays["sample_weight"] = data.sample_weight
        checkpoints.store("features", key, arrays)


def store_problem(checkpoints: CheckpointFolder, key: str, problem: LayerProblem) -> None:
    """Store a problem for :class:`SolvePart`, unless it is stored already."""
    if not checkpoints.contains("problem", key):
        positives = problem.targets.transpose()
        arrays = csr_arrays(positives, "positives.") | {"order": problem.order, "chunks": problem.chunks}
        arrays["rows"] = np.array([positives.cols], np.int64)
        if problem.shortlist is not None:
            arrays |= csr_arrays(problem.shortlist, "shortlist.")
        checkpoints.store("problem", key, arrays)


@functools.lru_cache(maxsize=1)
def load_data(folder: str, key: str) -> StoredData:
    """Return memory-mapped training data; each process keeps the most recent data open."""
    arrays = load_arrays(folder, "features", key)
    features = Features.of(csr_of_arrays(arrays, arrays["cols"].item(), "sparse", "sparse."), arrays["dense"])
    return StoredData(features, arrays.get("sample_weight"))


def load_arrays(folder: str, name: str, key: str) -> dict[str, NDArray[Any]]:
    """Return a stored result; raise ModelFormatError if it does not exist."""
    arrays = CheckpointFolder(folder).load(name, key)
    if arrays is None:
        raise ModelFormatError(
            f"{folder} does not contain {name}-{key}. The checkpoint folder must be shared by all machines."
        )
    return arrays
