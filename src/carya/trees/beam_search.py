"""Beam search over any list of layers: in batch, one query at a time, or for given pairs only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.trees.layer import Layer


class Searcher:
    """Finds the best nodes of the last of some layers.

    `layouts` says how weights are kept while searching (:mod:`carya.trees.layouts`), for all layers or for each;
    `leaf_labels` which label each node of the last layer stands for, if that is not the label itself.

    The number of threads never changes a result, ties go to the lower node, and other Python threads run meanwhile.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        layouts: str | Sequence[str] = "packed",
        leaf_labels: NDArray[np.int32] | None = None,
    ) -> None:
        names = [layouts] if isinstance(layouts, str) else list(layouts)
        labels = np.zeros(0, np.int32) if leaf_labels is None else leaf_labels
        self._search = _core.BeamSearch([layer.native for layer in layers], names, labels)
        self.n_labels = layers[-1].n_nodes if leaf_labels is None else int(leaf_labels[-1]) + 1

    def predict(
        self,
        queries: Features,
        *,
        top_k: int,
        beam_width: int,
        min_score: float = -math.inf,
        threads: int,
        report: Report = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Row offsets, labels and scores of the best `top_k` labels of every query, best first in each row.

        A query without features gets no labels.
        """
        return self._search.predict(queries.native, top_k, beam_width, min_score, threads, report)

    def shortlist(self, queries: Features, *, beam_width: int, threads: int, report: Report = None) -> Csr:
        """What the beam holds after the last layer, queries x nodes."""
        indptr, nodes, scores = self.predict(
            queries, top_k=beam_width, beam_width=beam_width, threads=threads, report=report
        )
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((nodes, rows))
        return Csr.of(indptr, nodes[order], scores[order], self.n_labels)

    def rank(
        self,
        indices: NDArray[np.int32],
        values: NDArray[np.float32],
        dense: NDArray[np.float32],
        *,
        top_k: int,
        beam_width: int,
        min_score: float = -math.inf,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """Labels and scores of one query, best first; None if the arrays are not those of a query of this model."""
        answer = self._search.rank(indices, values, dense, top_k, beam_width, min_score)
        return cast(tuple[NDArray[np.int32], NDArray[np.float32]] | None, answer)

    def selected(
        self, queries: Features, candidates: Csr, *, threads: int, report: Report = None
    ) -> NDArray[np.float32]:
        """The score of every candidate, whether a beam would have reached it or not."""
        return self._search.selected(queries.native, candidates.native, threads, report)
