"""Divide layer problems into parts (ranges of parents) that can be solved separately."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr, Features

if TYPE_CHECKING:
    from carya.ranking.linear import LayerProblem

#: Maximum work per part: the number of nonzeros in the rows of a parent times its number of children, summed over
#: parents. A part takes about ten seconds on two cores. The limit is constant because the parts must not depend on the
#: number of threads.
MAX_WORK = 2 * 10**10
_ROW_WORK = 8  # work per row in addition to its nonzeros


@dataclass(frozen=True, eq=False)
class ProblemPart:
    """The parents `first` … `last` - 1 of a layer problem.

    Attributes
    ----------
    number : int
        The index of the problem.
    first, last : int
    work : float
    """

    number: int
    first: int
    last: int
    work: float

    def select(self, problem: LayerProblem) -> LayerProblem:
        """Return this part as a separate problem; its solution is the same as in the complete problem."""
        begin, end = problem.chunks[self.first], problem.chunks[self.last]
        return replace(
            problem,
            shortlist=None if problem.shortlist is None else _rows(problem.shortlist, self.first, self.last),
            order=problem.order[begin:end],
            chunks=problem.chunks[self.first : self.last + 1] - begin,
            first_parent=problem.first_parent + self.first,
        )


def divide(problems: Sequence[LayerProblem], features: Features, *, max_work: float = MAX_WORK) -> list[ProblemPart]:
    """Divide problems into parts with approximately equal work; each part consists of consecutive parents.

    Parameters
    ----------
    max_work : float
        The work above which a problem is divided.
    """
    row_work = np.diff(features.sparse.indptr) + features.dense.shape[1] + _ROW_WORK
    parts = []
    for number, problem in enumerate(problems):
        work = _work_of_parents(problem, row_work)
        ends = np.cumsum(work)
        n_parts = int(min(max(1, np.ceil(ends[-1] / max_work)), work.size))
        # The parent at which each part begins; a parent is never divided, so there can be fewer parts than planned.
        cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_parts) / n_parts) + 1
        bounds = np.unique(np.concatenate([[0], cuts, [work.size]])).tolist()
        parts += [
            ProblemPart(number, first, last, float(work[first:last].sum()))
            for first, last in itertools.pairwise(bounds)
        ]
    return parts


def _work_of_parents(problem: LayerProblem, row_work: NDArray[np.int64]) -> NDArray[np.float64]:
    children = np.diff(problem.chunks).astype(np.float64)
    if problem.shortlist is None:
        return children * float(row_work.sum())
    totals = np.concatenate([[0], np.cumsum(row_work[problem.shortlist.indices], dtype=np.float64)])
    return children * np.diff(totals[problem.shortlist.indptr]) + 1


def _rows(matrix: Csr, first: int, last: int) -> Csr:
    begin, end = matrix.indptr[first], matrix.indptr[last]
    return Csr.of(
        matrix.indptr[first : last + 1] - begin, matrix.indices[begin:end], matrix.values[begin:end], matrix.cols
    )
