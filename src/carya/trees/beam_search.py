"""Beam search through a list of layers, for batches, single queries, or given (query, label) pairs."""

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
from carya.trees.transforms import Transform

#: Row offsets, labels and scores of rankings, each row sorted best first.
Rankings = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def to_matrix(rankings: Rankings, n_labels: int) -> Csr:
    """Return rankings as a matrix of shape (queries, labels), in which the entries of each row are sorted by label."""
    indptr, labels, scores = rankings
    order = np.lexsort((labels, np.repeat(np.arange(indptr.size - 1), np.diff(indptr))))
    return Csr.of(indptr.astype(np.int64, copy=False), labels[order], scores[order], n_labels)


class BeamSearcher:
    """Beam search for the best-scoring labels or nodes of the last layer.

    Results do not depend on the number of threads, ties are broken in favor of the node with the lower index, and the
    GIL is released during a search.

    Parameters
    ----------
    layers : sequence of Layer
    layouts : str or sequence of str
        The memory layout of the weights (:mod:`carya.trees.layout_choice`), for all layers or per layer.
    leaf_labels : ndarray of int32, optional
        The label of each node in the last layer, if clusters overlap.
    above, below : sequence of Transform
        The transforms of the layers above and below, if `layers` are only some of the layers of a tree. Such a search
        starts at the nodes above its first layer, or ends before the labels. The methods whose names end in ``_below``
        or ``_beams`` take or return path scores, which are the scores or their logarithms and are used to compare nodes
        during a search.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        layouts: str | Sequence[str] = "packed",
        leaf_labels: NDArray[np.int32] | None = None,
        *,
        above: Sequence[Transform] = (),
        below: Sequence[Transform] = (),
    ) -> None:
        names = [layouts] if isinstance(layouts, str) else list(layouts)
        labels = np.zeros(0, np.int32) if leaf_labels is None else leaf_labels
        n_roots = layers[0].chunks.size - 1 if above else 1
        section = _core.TreeSection(n_roots, _native_transforms(above), _native_transforms(below))
        self.native = _core.BeamSearch([layer.native for layer in layers], names, labels, section)
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
    ) -> Rankings:
        """Return the `top_k` best labels for each query; queries without features are assigned no labels."""
        return self.native.predict(queries.native, top_k, beam_width, min_score, threads, report)

    def shortlist(self, queries: Features, *, beam_width: int, threads: int, report: Report = None) -> Csr:
        """Return the contents of the beam after the last layer as a matrix of shape (queries, nodes)."""
        rankings = self.predict(queries, top_k=beam_width, beam_width=beam_width, threads=threads, report=report)
        return to_matrix(rankings, self.n_labels)

    def rank(
        self,
        indices: NDArray[np.int32],
        values: NDArray[np.float32],
        dense: NDArray[np.float32],
        top_k: int,
        beam_width: int,
        min_score: float = -math.inf,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """Return the labels and scores for one query, best first, or None if the arrays are not a valid query."""
        ranking = self.native.rank(indices, values, dense, top_k, beam_width, min_score)
        # The type is quoted because evaluating it takes 8 µs.
        return cast("tuple[NDArray[np.int32], NDArray[np.float32]] | None", ranking)

    def score_pairs(
        self, queries: Features, candidates: Csr, *, threads: int, report: Report = None
    ) -> NDArray[np.float32]:
        """Return the score of every candidate pair, including pairs that beam search would not reach."""
        return self.native.score_pairs(queries.native, candidates.native, threads, report)

    def search_beams(self, queries: Features, *, beam_width: int, min_score: float, threads: int) -> Rankings:
        """Return the nodes in the beam after the last layer and their path scores, best first.

        Nodes that cannot lead to a label with a score of at least `min_score` are omitted.
        """
        return self.native.search_beams(queries.native, beam_width, min_score, threads)

    def search_below(self, queries: Features, starts: Csr, *, top_k: int, threads: int) -> Rankings:
        """Return the `top_k` best labels below the given nodes and their path scores, best first.

        Parameters
        ----------
        starts : Csr of shape (queries, nodes above the first layer)
            The path scores of the nodes at which the search starts.
        """
        return self.native.search_below(queries.native, starts.native, top_k, threads)

    def score_pairs_below(
        self, queries: Features, starts: Csr | None, candidates: Csr, *, threads: int
    ) -> NDArray[np.float32]:
        """Return the path score of every candidate pair.

        `starts` must contain each candidate's ancestor above the first layer; None means the root of the tree.
        """
        return self.native.score_pairs_below(
            queries.native, None if starts is None else starts.native, candidates.native, threads
        )

    def merge_rankings(self, rankings: Sequence[Rankings], n_labels: int, *, top_k: int, min_score: float) -> Rankings:
        """Merge rankings with path scores, and return the best labels and their scores, best first."""
        matrices = [_core.Csr(*ranking, n_labels, "ranking", _core.Validation.structure) for ranking in rankings]
        return self.native.merge_rankings(matrices, top_k, min_score)

    def final_scores(self, path_scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert path scores to scores."""
        return self.native.final_scores(path_scores)


def _native_transforms(transforms: Sequence[Transform]) -> list[tuple[_core.TransformKind, float]]:
    return [(getattr(_core.TransformKind, transform.kind), transform.power) for transform in transforms]
