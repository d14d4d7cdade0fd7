"""One part of a split model: the rankers of the labels in some clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

import numpy as np

from carya import _core
from carya.core.matrices import Csr
from carya.core.storage import SavedModel, consistent_parts
from carya.errors import InputError
from carya.models.routed.messages import PartRequest, PartResponse
from carya.models.routed.serialize import TreePart, unpack_part
from carya.trees.beam_search import BeamSearcher


class Part(Protocol):
    """A part of a split model, in this process or on another machine."""

    def start(self, request: PartRequest) -> Callable[[], PartResponse]:
        """Start processing a request; return a function that waits for the response."""
        ...

    def check(self, split: str, number: int) -> None:
        """Raise an error if the part is not available or is not the given part."""
        ...


class ModelPart:
    """A part of a split model, as loaded by :func:`carya.load`.

    Parameters
    ----------
    tree : TreePart
    n_jobs : int
        The number of threads; -1 means all cores.

    Examples
    --------
    >>> import tempfile, carya
    >>> X, Y = carya.data.make_world(300, 60, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     carya.XRLinear(max_leaf_size=10).fit(X, Y).save(f"{folder}/model")
    ...     _ = carya.split_model(f"{folder}/model", f"{folder}/parts", n_parts=2)
    ...     carya.load(f"{folder}/parts/part-1")
    ModelPart(part 1, 3 clusters, 30 labels)
    """

    def __init__(self, tree: TreePart, n_jobs: int = -1) -> None:
        self.tree = tree
        self.n_jobs = n_jobs
        self.widths_ = (tree.layer.weights.n_features, tree.layer.dense.shape[1])
        self._searcher = BeamSearcher([tree.layer], tree.layout, tree.leaf_labels, above=tree.above)

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore a part from an opened folder; called by :func:`carya.load`."""
        tree = unpack_part(saved)
        with consistent_parts():
            return cls(tree)

    def __repr__(self) -> str:
        tree = self.tree
        return f"ModelPart(part {tree.number}, {tree.n_clusters:,} clusters, {tree.labels.size:,} labels)"

    def decode(self, message: bytes) -> PartRequest:
        """Restore a request from bytes; raise InputError if it is invalid."""
        return PartRequest.decode(message, self.widths_, self.tree.n_clusters, int(self.tree.labels[-1]) + 1)

    def check(self, split: str, number: int) -> None:
        """Raise InputError if this is not the given part."""
        if (split, number) != (self.tree.split, self.tree.number):
            raise InputError(
                f"This is part {self.tree.number} of the split {self.tree.split}, not part {number} of {split}. Use "
                "the parts and the top of the same split."
            )

    def answer(self, request: PartRequest) -> PartResponse:
        """Rank the labels in the requested clusters, or score the candidates.

        Raises InputError if the request is for another part or contains a label of another part.
        """
        self.check(request.split, request.part)
        threads = _core.thread_count(self.n_jobs)
        labels = self.tree.labels
        if request.candidates is None:
            indptr, ranked, scores = self._searcher.search_below(
                request.queries, request.starts, top_k=request.top_k, threads=threads
            )
            return PartResponse(indptr, labels[ranked], scores)
        wanted = request.candidates
        local = np.minimum(np.searchsorted(labels, wanted.indices), labels.size - 1).astype(np.int32)
        if (labels[local] != wanted.indices).any():
            raise InputError("The candidates contain labels of another part.")
        candidates = Csr.of(wanted.indptr, local, wanted.values, labels.size, "candidates")
        try:
            scores = self._searcher.score_pairs_below(request.queries, request.starts, candidates, threads=threads)
        except ValueError as error:
            raise InputError(str(error)) from None
        return PartResponse(np.zeros(0, np.int64), np.zeros(0, np.int32), scores)

    def start(self, request: PartRequest) -> Callable[[], PartResponse]:
        """Return a function that processes the request."""
        return lambda: self.answer(request)
