"""Split XR-Linear models, which search the top of the tree and send the clusters in the beam to the parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import validation
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterized, parameter
from carya.core.rules import Choice, Either, Integer
from carya.core.storage import SavedModel, consistent_parts
from carya.core.validation import FeaturesLike
from carya.errors import CaryaError, InputError
from carya.models.base import BaseModel
from carya.models.interface import RankOptions
from carya.models.registry import load_model
from carya.models.restriction import concatenate
from carya.models.routed.messages import PartRequest, PartResponse
from carya.models.routed.part import ModelPart, Part
from carya.models.routed.remote import RemotePart
from carya.models.routed.serialize import TopTree, unpack_top
from carya.models.training_data import TrainingData
from carya.trees.beam_search import BeamSearcher, Rankings
from carya.trees.layout_choice import choose_layout

_MAX_BLOCK_BYTES = 2 << 20  # target size of the queries per request to a part; a single query can exceed it

#: The address of a part: a folder, comma-separated URLs of replicas, or a list of URLs.
PartAddress = str | os.PathLike[str] | Sequence[str] | Part


class _RoutedState(NamedTuple):
    saved: SavedModel
    top: TopTree
    searcher: BeamSearcher
    parts: tuple[Part, ...]

    @property
    def widths(self) -> tuple[int, int]:
        return self.top.clusters.widths

    @property
    def n_labels(self) -> int:
        return self.top.n_labels


@dataclass(eq=False, repr=False, kw_only=True)
class RoutedModel(BaseModel[_RoutedState], Parameterized):
    """The top of a split XR-Linear model: all layers except for the last one, which is divided among the parts.

    It is created by :func:`carya.split_model` and loaded by :func:`carya.load_routed`. The results are identical to
    those of the unsplit model. Explanations, subsets and different transforms require the unsplit model.

    Examples
    --------
    >>> import tempfile, carya
    >>> X, Y = carya.data.make_world(300, 60, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = carya.XRLinear(max_leaf_size=10).fit(X, Y)
    ...     model.save(f"{folder}/model")
    ...     _ = carya.split_model(f"{folder}/model", f"{folder}/parts", n_parts=3)
    ...     routed = carya.load_routed(f"{folder}/parts/top")  # the parts are memory-mapped in this process
    >>> bool((routed.predict(X) != model.predict(X)).nnz)
    False
    """

    beam_width: int = parameter(10, Integer(1), "b, number of nodes kept per level during search")
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "number of threads; -1 means all cores")
    verbose: bool = parameter(False, Choice(True, False), "accepted for compatibility with other models; has no effect")

    def connect(
        self, parts: Sequence[PartAddress], *, timeout: float = 5.0, token: str | None = None, check: bool = True
    ) -> Self:
        """Connect the model to its parts.

        Parameters
        ----------
        parts : sequence of str, path or list of str
            For each part, in order: its folder, which is memory-mapped in this process, or the URLs of the servers for
            this part, as a list or as a comma-separated string.
        timeout : float
            The number of seconds after which a request to a server is considered to have failed and is sent to the next
            server for the same part.
        token : str, optional
            The bearer token for the servers.
        check : bool
            Whether to check that all parts are available; see :meth:`check_parts`.
        """
        state = self._check_fitted()
        split = state.top.split
        if isinstance(parts, (str, bytes)) or len(parts) != split.n_parts:
            raise InputError(
                f"The model has {split.n_parts} parts, but {1 if isinstance(parts, (str, bytes)) else len(parts)} "
                "were given. Pass one folder, URL or list of URLs per part."
            )
        connected = tuple(_open_part(number, part, timeout, token) for number, part in enumerate(parts))
        for part in connected:
            if isinstance(part, ModelPart):
                part.n_jobs = self.n_jobs
        self._state = state._replace(parts=connected)
        if check:
            self.check_parts()
        return self

    def check_parts(self) -> None:
        """Raise PartUnavailableError if a part is not available, or InputError if it belongs to another split."""
        state = self._check_connected()
        for number, part in enumerate(state.parts):
            part.check(state.top.split.id, number)

    @property
    def n_parts_(self) -> int:
        """The number of parts."""
        return self._check_fitted().top.split.n_parts

    @property
    def is_connected(self) -> bool:
        """Whether the parts are connected."""
        return bool(self._check_fitted().parts)

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve; always true."""
        return True

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` requires `label_features`; always false, because a split model cannot be trained."""
        return False

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` accepts `label_features`; always false, because a split model cannot be trained."""
        return False

    def fit_data(self, data: TrainingData) -> Self:
        """Raise InputError, because a split model cannot be trained."""
        raise InputError("A split model cannot be trained. Train an XRLinear model and split it with split_model.")

    def explain(self, x: FeaturesLike, label: int | str, *, tree: int | None = None) -> Any:
        """Raise InputError, because explanations require the weights of the unsplit model."""
        raise InputError("The scores of a split model cannot be explained. Use the unsplit model.")

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of the folder ``top``."""
        saved = self._check_fitted().saved
        if weight_dtype is not None:
            raise InputError("The weight data type of a split model cannot be changed. Convert the unsplit model.")
        changed = {name: value for name, value in self.get_params().items() if name in saved.parameters}
        return SavedModel(saved.kind, saved.parameters | changed, saved.shape, saved.arrays)

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore the top of a split model from an opened folder; called by :func:`carya.load`."""
        top = unpack_top(saved)
        with consistent_parts():
            names = cls.parameter_names()
            model = cls.from_saved_parameters({key: saved.parameters[key] for key in names if key in saved.parameters})
            clusters = top.clusters
            layouts = [
                choose_layout(layer, beam_width=model.beam_width, query_features=clusters.row_features).layout
                for layer in clusters.layers
            ]
            searcher = BeamSearcher(clusters.layers, layouts, below=[top.transform])
            model._state = _RoutedState(saved, top, searcher, ())
            model._restore_feature_names(saved)
            return model

    def _copy_with_transform(self, state: _RoutedState, transform: str | Sequence[str]) -> Self:
        raise InputError("The transform of a split model cannot be changed. Use the unsplit model.")

    def _copy_with_labels(self, state: _RoutedState, labels: NDArray[np.int32]) -> Self:
        raise InputError(
            "A split model does not support the subset method. Use the unsplit model, or pass labels to predict."
        )

    def _check_connected(self) -> _RoutedState:
        state = self._check_fitted()
        if not state.parts:
            raise InputError(
                f"The {state.top.split.n_parts} parts of the model are not connected. Use carya.load_routed, or "
                "call connect with the folders or URLs of the parts."
            )
        return state

    def _rank_batch(self, state: _RoutedState, queries: Features, options: RankOptions) -> Rankings:
        self._check_connected()
        width = self.beam_width if options.beam_width is None else options.beam_width
        width = validation.check_positive_int(width, "beam_width")
        threads = _core.thread_count(self.n_jobs)
        rankings = []
        for rows in _blocks(_bytes_per_row(queries)):
            block = queries if rows == slice(0, queries.rows) else queries.take(rows)
            indptr, clusters, scores = state.searcher.search_beams(
                block, beam_width=width, min_score=options.min_score, threads=threads
            )
            row_of = np.repeat(np.arange(block.rows), np.diff(indptr))
            waits = []
            for part, kept, part_queries, starts in _route(state.top, block, row_of, clusters, scores):
                request = PartRequest(state.top.split.id, part, part_queries, starts, options.top_k)
                waits.append((kept, state.parts[part].start(request)))  # send all requests before waiting
            responses = _wait_for_all([wait for _, wait in waits])
            answers = [
                _all_rows(response, kept, block.rows, state.n_labels)
                for (kept, _), response in zip(waits, responses, strict=True)
            ]
            rankings.append(
                state.searcher.merge_rankings(
                    answers or [_empty(block.rows)],
                    state.n_labels,
                    top_k=options.top_k,
                    min_score=options.min_score,
                )
            )
        return concatenate(rankings)

    def _score_pairs(self, state: _RoutedState, queries: Features, pairs: Csr) -> NDArray[np.float32]:
        self._check_connected()
        sizes = _bytes_per_row(queries) + 4 * np.diff(pairs.indptr)
        scores = np.empty(pairs.indices.size, np.float32)
        for rows in _blocks(sizes):
            whole = rows == slice(0, queries.rows)
            block, wanted = (queries, pairs) if whole else (queries.take(rows), pairs.take(rows))
            begin, end = pairs.indptr[rows.start], pairs.indptr[rows.stop]
            scores[begin:end] = self._score_block(state, block, wanted)
        return scores

    def _score_block(self, state: _RoutedState, queries: Features, pairs: Csr) -> NDArray[np.float32]:
        top = state.top
        pair_rows = np.repeat(np.arange(pairs.rows), np.diff(pairs.indptr))
        leaves, pair_of_leaf = _leaves_of(top, pairs.indices)
        clusters, rows = top.parents[leaves], pair_rows[pair_of_leaf]
        # The distinct clusters of each row, in ascending order, and their path scores.
        n_clusters = top.clusters.tree.n_labels
        distinct = np.unique(rows.astype(np.int64) * n_clusters + clusters)
        start_rows, start_clusters = np.divmod(distinct, n_clusters)
        indptr = np.searchsorted(start_rows, np.arange(pairs.rows + 1)).astype(np.int64)
        ones = np.ones(distinct.size, np.float32)
        shortlist = Csr.of(indptr, start_clusters.astype(np.int32), ones, n_clusters)
        path_scores = state.searcher.score_pairs_below(
            queries, None, shortlist, threads=_core.thread_count(self.n_jobs)
        )
        part_of_leaf = np.searchsorted(top.split.first_clusters, clusters, side="right") - 1
        waits = []
        for part, kept, block, starts in _route(top, queries, start_rows, shortlist.indices, path_scores):
            # A label can have several leaves in a part, but each (row, label) pair is sent only once.
            chosen = np.unique(pair_of_leaf[part_of_leaf == part])
            local_rows = np.searchsorted(kept, pair_rows[chosen])
            ends = np.searchsorted(local_rows, np.arange(kept.size + 1)).astype(np.int64)
            wanted = Csr.of(ends, pairs.indices[chosen], np.ones(chosen.size, np.float32), pairs.cols, "candidates")
            request = PartRequest(top.split.id, part, block, starts, candidates=wanted)
            waits.append((chosen, state.parts[part].start(request)))
        best = np.full(pairs.indices.size, -np.inf, np.float32)
        responses = _wait_for_all([wait for _, wait in waits])
        for (chosen, _), response in zip(waits, responses, strict=True):
            if response.scores.size != chosen.size:
                raise InputError("A part returned the wrong number of scores.")
            best[chosen] = np.maximum(best[chosen], response.scores)
        return state.searcher.final_scores(best)


def _open_part(number: int, address: PartAddress, timeout: float, token: str | None) -> Part:
    """Return the part at an address."""
    name = f"part-{number}"
    if isinstance(address, str) and "://" in address:
        address = [url.strip() for url in address.split(",")]
    if isinstance(address, (str, os.PathLike)):
        part: ModelPart = load_model(address, ModelPart)
        return part
    if isinstance(address, Sequence):
        return RemotePart(name, list(address), timeout=timeout, token=token)
    return address


def _wait_for_all(waits: Sequence[Callable[[], PartResponse]]) -> list[PartResponse]:
    """Return all responses, or raise the first error.

    Errors are raised only after all parts have responded, so that connections can be reused.
    """
    responses, errors = [], []
    for wait in waits:
        try:
            responses.append(wait())
        except CaryaError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return responses


def _bytes_per_row(queries: Features) -> NDArray[np.int64]:
    return 8 * np.diff(queries.sparse.indptr) + 4 * queries.widths[1]


def _blocks(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Yield slices of consecutive rows with about _MAX_BLOCK_BYTES each; a larger row forms a separate slice."""
    block = (np.cumsum(sizes) - sizes) // _MAX_BLOCK_BYTES
    begins = np.flatnonzero(np.diff(block, prepend=-1)).tolist() if sizes.size else [0]
    for begin, end in zip(begins, [*begins[1:], sizes.size], strict=True):
        yield slice(begin, end)


def _route(
    top: TopTree, queries: Features, rows: NDArray[Any], clusters: NDArray[np.int32], scores: NDArray[np.float32]
) -> Iterator[tuple[int, NDArray[np.int64], Features, Csr]]:
    """Yield the parts that contain some of the given clusters.

    For each part, yield its number, the rows that have clusters in the part, their queries, and the path scores of
    these clusters.
    """
    firsts = top.split.first_clusters
    part_of = np.searchsorted(firsts, clusters, side="right") - 1
    order = np.lexsort((clusters, rows, part_of))
    ends = np.searchsorted(part_of[order], np.arange(firsts.size))
    for part in range(firsts.size - 1):
        chosen = order[ends[part] : ends[part + 1]]
        if not chosen.size:
            continue
        kept, counts = np.unique(rows[chosen], return_counts=True)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        local = (clusters[chosen] - firsts[part]).astype(np.int32)
        starts = Csr.of(indptr, local, scores[chosen], int(firsts[part + 1] - firsts[part]), "starts")
        yield part, kept, queries if kept.size == queries.rows else queries.take(kept), starts


def _all_rows(response: PartResponse, kept: NDArray[np.int64], rows: int, n_labels: int) -> Rankings:
    """Return the rankings of a part for all rows of a block; rows that were not sent to the part are empty."""
    indptr, labels, scores = response.rankings
    lengths = np.diff(indptr)
    if lengths.size != kept.size or labels.size != scores.size or indptr[-1] != labels.size or indptr[0] != 0:
        raise InputError("A part returned rankings with the wrong shape.")
    if (lengths < 0).any() or labels.min(initial=0) < 0 or labels.max(initial=0) >= n_labels:
        raise InputError("A part returned an unknown label.")
    all_lengths = np.zeros(rows, np.int64)
    all_lengths[kept] = lengths
    return np.concatenate([[0], np.cumsum(all_lengths)]).astype(np.int64), labels, scores


def _empty(rows: int) -> Rankings:
    return np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)


def _leaves_of(top: TopTree, labels: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the last-level nodes of a list of labels and, for each node, the index of its label in this list."""
    if top.leaf_labels is None:
        return labels.astype(np.int64), np.arange(labels.size)
    begins, ends = (np.searchsorted(top.leaf_labels, labels, side) for side in ("left", "right"))
    counts = ends - begins
    index = np.repeat(np.arange(labels.size), counts)
    return np.arange(index.size) - np.repeat(np.cumsum(counts) - counts, counts) + begins[index], index
