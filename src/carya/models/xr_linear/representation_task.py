"""Task that computes the PIFA representation of a range of labels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Csr, Features
from carya.indexing.representations import aggregate, sampled_rows
from carya.models.restriction import concatenate
from carya.ranking.tasks.checkpoint_folder import CheckpointFolder, csr_arrays, csr_of_arrays, fingerprint
from carya.ranking.tasks.solve_part import load_arrays, load_data

#: Maximum number of feature values that a task adds up, estimated from the average row. A task takes a few seconds.
MAX_WORK = 10**9


@dataclass(frozen=True)
class AggregateLabels:
    """Task that computes the PIFA vectors of the labels `first` … `last` - 1.

    Attributes
    ----------
    folder : str
        The checkpoint folder, which all processes can access.
    data_key, key : str
        The hashes of the training data and of all inputs of the representation.
    first, last : int
    keep : int or float, optional
    for_group : bool
        See :func:`carya.indexing.representations.aggregate`.
    work : float
        The estimated amount of work.
    """

    folder: str
    data_key: str
    key: str
    first: int
    last: int
    keep: float | None
    for_group: bool
    work: float

    @property
    def _own_key(self) -> str:
        return f"{self.key}-{self.first}-{self.last}"

    def is_done(self) -> bool:
        """Return whether the result is stored."""
        return CheckpointFolder(self.folder).contains("label-vectors", self._own_key)

    def run(self, threads: int) -> None:
        """Compute and store the vectors, unless another run of this task has already done so."""
        if self.is_done():
            return
        features = load_data(self.folder, self.data_key).features
        positives = csr_of_arrays(load_arrays(self.folder, "positives", self.key), features.rows, "positives")
        own = positives.take(slice(self.first, self.last))
        vectors = aggregate(features, own, keep=self.keep, for_group=self.for_group, threads=threads)
        arrays = csr_arrays(vectors.sparse) | {"dense": vectors.dense}
        CheckpointFolder(self.folder).store("label-vectors", self._own_key, arrays)

    def result(self) -> dict[str, NDArray[Any]]:
        """Return the stored vectors as the arrays of a CSR matrix and a dense matrix."""
        return load_arrays(self.folder, "label-vectors", self._own_key)


def divide_labels(
    features: Features,
    positives: Csr,
    checkpoints: CheckpointFolder,
    data_key: str,
    *,
    keep: float | None,
    for_group: bool,
    max_work: float | None = None,
) -> list[AggregateLabels]:
    """Divide the labels into ranges with similar amounts of work, and store the input of their tasks.

    Parameters
    ----------
    positives : Csr of shape (labels, rows)
    max_work : float, optional
        The work above which the labels are divided; by default, `MAX_WORK`.
    """
    values_per_row = (features.sparse.values.size + features.dense.size) / max(features.rows, 1)
    n_rows = sampled_rows(positives) if for_group else np.diff(positives.indptr)
    ends = np.cumsum((n_rows + 1) * (values_per_row + 1))
    n_tasks = int(min(max(1, np.ceil(ends[-1] / (max_work or MAX_WORK))), positives.rows))
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_tasks) / n_tasks) + 1
    bounds = np.unique(np.concatenate([[0], cuts, [positives.rows]])).tolist()
    key = fingerprint([data_key, positives, keep, for_group])
    if len(bounds) > 2 and not checkpoints.contains("positives", key):
        checkpoints.store("positives", key, csr_arrays(positives))
    starts = np.concatenate([[0], ends])
    folder = str(checkpoints.path.absolute())
    return [
        AggregateLabels(folder, data_key, key, first, last, keep, for_group, float(starts[last] - starts[first]))
        for first, last in itertools.pairwise(bounds)
    ]


def concatenate_vectors(results: Sequence[dict[str, NDArray[Any]]], n_features: int) -> Features:
    """Return the vectors of consecutive ranges of labels as one matrix."""
    arrays = concatenate([(part["indptr"], part["indices"], part["values"]) for part in results])
    dense = np.concatenate([part["dense"] for part in results])
    native = _core.Csr(*arrays, n_features, "The label representation", _core.Validation.structure)
    return Features.of(Csr(*arrays, n_features, native), dense, "The label representation")
