"""Retrieve candidate labels and compute the features of each (query, label) pair for a reranker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Csr, Features
from carya.fork_safety import cached_property
from carya.indexing.representations import cooccurrence_graph, normalize, pifa
from carya.models.ensemble.combine import predict_combined
from carya.models.reranked.column_views import column_views
from carya.models.reranked.similarity_model import similarity_model
from carya.models.restriction import score_labels
from carya.models.xr_linear.model import XRLinear
from carya.ranking.candidates import Candidates, LabelVotes
from carya.ranking.pairs import Pairs
from carya.trees.beam_search import BeamSearcher

_MIN_LOG_SCORE = -30.0
_CENTROID_FEATURES = 1000  # number of features kept in a label's centroid
_COOCCURRING = 64  # number of co-occurring labels stored per label
_ANCESTORS = 2  # number of ancestors per label; the scores of these ancestors are used as features
_LEADERS = 8  # number of top candidates whose co-occurring labels are counted


@dataclass(frozen=True)
class CandidateSettings:
    """Settings for candidate retrieval.

    Attributes
    ----------
    pool_size : int
        Total number of candidates from the trees.
    n_neighbors : int
        Number of nearest training rows that vote for their labels.
    extra_candidates : int
        Number of additional candidates per source (votes, label centroids and label names).
    beam_width : int, optional
        The beam width of all trees; by default, the largest of the trees' beam widths.
    labels : ndarray of int32, optional
        If given, each tree also contributes candidates from these labels: the `pool_size` labels that it ranks highest.
    """

    pool_size: int
    n_neighbors: int
    extra_candidates: int
    beam_width: int | None = None
    labels: NDArray[np.int32] | None = None


@dataclass(frozen=True, eq=False)
class CandidateFeatures:
    """The fitted components that retrieve candidates and compute their features.

    Attributes
    ----------
    members : list of XRLinear
        The trees.
    rows : XRLinear
        The training rows as a similarity model.
    labels : Csr, training rows x labels
        The labels of the training rows; values are 1.
    centroids : XRLinear
        The centroids of the labels' rows as a similarity model.
    cooccurrence : Csr, labels x labels
        For each pair of labels, the fraction of the first label's rows that also have the second label; only the
        largest values of each row are stored.
    names, name_words : XRLinear, optional
        Similarity models of the label names: `names` with the given feature weights, `name_words` with equal weights.
        They can have additional columns after the columns of the other components.
    """

    members: Sequence[XRLinear]
    rows: XRLinear
    labels: Csr
    centroids: XRLinear
    cooccurrence: Csr
    names: XRLinear | None = None
    name_words: XRLinear | None = None

    @classmethod
    def of(
        cls,
        members: Sequence[XRLinear],
        features: Features,
        labels: Csr,
        label_features: Features | None,
        *,
        n_jobs: int,
    ) -> Self:
        """Create all components from trained trees and their training rows."""
        threads = _core.thread_count(n_jobs)
        ones = labels.with_values(1)
        centroids = normalize(pifa(features, ones, keep=_CENTROID_FEATURES, threads=threads))
        names = name_words = None
        if label_features is not None:
            own = column_views(label_features, features.widths[0]).names
            counts = np.repeat(np.diff(own.sparse.indptr), np.diff(own.sparse.indptr))
            equal = Csr.of(own.sparse.indptr, own.sparse.indices, (1 / counts).astype(np.float32), own.sparse.cols)
            names = similarity_model(own, n_jobs=n_jobs, threads=threads)
            name_words = similarity_model(Features.of(equal, own.dense), n_jobs=n_jobs, threads=threads)
        return cls(
            members,
            similarity_model(normalize(features), n_jobs=n_jobs, threads=threads),
            ones,
            similarity_model(centroids, n_jobs=n_jobs, threads=threads),
            _cooccurrence(ones),
            names,
            name_words,
        )

    def __getstate__(self) -> dict[str, Any]:
        # Pickling is used for copies and for scikit-learn's worker processes; the cached searchers are then recreated.
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return self.labels.cols

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of sparse and dense features of a query."""
        return self.rows.widths_ if self.names is None else self.names.widths_

    @cached_property
    def log_frequency(self) -> NDArray[np.float32]:
        """log(1 + number of training rows) of each label."""
        return log_frequency(self.labels)

    @cached_property
    def _inner_searchers(self) -> list[list[BeamSearcher]]:
        """For each tree, one searcher per inner level; its searches end at that level."""
        return [
            [BeamSearcher(member.layers_[:level]) for level in range(1, len(member.layers_))] for member in self.members
        ]

    def compute(self, queries: Features, settings: CandidateSettings, *, threads: int) -> tuple[Pairs, Candidates]:
        """Return the pairs with their features, and the candidates, for a batch of queries.

        Queries without features have no pairs.
        """
        queries, normalized, name_queries = column_views(queries, self.rows.widths_[0])
        indptr, rows, cosines = self.rows.searcher.predict(
            normalized, top_k=settings.n_neighbors, beam_width=1, threads=threads
        )
        voters, cosines = _row_numbers(indptr), np.maximum(cosines, 0)
        votes = LabelVotes.of(voters, rows, cosines, self.labels)
        keys = [self._tree_candidates(queries, settings, threads)]
        if settings.extra_candidates:
            keys.append(votes.best(queries.rows, self.n_labels, settings.extra_candidates))
            keys.append(self._nearest(self.centroids.searcher, normalized, settings.extra_candidates, threads))
            if self.names is not None:
                keys.append(self._nearest(self.names.searcher, name_queries, settings.extra_candidates, threads))
        if settings.labels is not None:
            keys += [self._best_of_labels(member, queries, settings, threads) for member in self.members]
        candidates = Candidates.of(np.concatenate(keys), queries.rows, self.n_labels)
        columns = self._tree_features(queries, candidates, threads)
        columns |= _vote_features(votes, candidates, voters, cosines)
        columns |= self._label_features(queries, normalized, candidates, threads)
        columns |= self._name_features(name_queries, candidates, threads)
        columns["cooccurrence"] = self._cooccurrence_feature(candidates, columns["trees.gap"], columns["trees.rank"])
        values = np.column_stack(list(columns.values())).astype(np.float32)
        return Pairs(np.ascontiguousarray(values), tuple(columns), candidates.offsets), candidates

    def _tree_candidates(self, queries: Features, settings: CandidateSettings, threads: int) -> NDArray[np.int64]:
        """Return the keys of the labels with the highest mean scores over all trees."""
        offsets, labels, _ = predict_combined(
            [member.searcher for member in self.members],
            queries,
            top_k=settings.pool_size,
            beam_width=settings.beam_width or max(member.beam_width for member in self.members),
            pool_size=settings.pool_size,
            combine="mean",
            weights=np.ones(len(self.members), np.float32),
            threads=threads,
        )
        keys: NDArray[np.int64] = _row_numbers(offsets) * self.n_labels + labels
        return keys

    def _best_of_labels(
        self, member: XRLinear, queries: Features, settings: CandidateSettings, threads: int
    ) -> NDArray[np.int64]:
        """Return the keys of those labels in `settings.labels` that a tree ranks highest."""
        assert settings.labels is not None
        score = partial(member.searcher.score_pairs, threads=threads)
        offsets, labels, _ = score_labels(
            score, queries, settings.labels, self.n_labels, top_k=settings.pool_size, min_score=-math.inf
        )
        keys: NDArray[np.int64] = _row_numbers(offsets) * self.n_labels + labels
        return keys

    def _nearest(self, searcher: BeamSearcher, queries: Features, count: int, threads: int) -> NDArray[np.int64]:
        """Return the keys of the nearest labels with a positive cosine similarity."""
        offsets, labels, scores = searcher.predict(queries, top_k=count, beam_width=1, threads=threads)
        keys: NDArray[np.int64] = (_row_numbers(offsets) * self.n_labels + labels)[scores > 0]
        return keys

    def _tree_features(self, queries: Features, candidates: Candidates, threads: int) -> dict[str, NDArray[np.float32]]:
        """Return each candidate's score, rank and gap to the best score in each tree, and the scores of its
        ancestors.
        """
        pairs = candidates.matrix()
        columns, all_scores = {}, []
        for number, (member, inner) in enumerate(zip(self.members, self._inner_searchers, strict=True)):
            scores = _log_scores(member.searcher.score_pairs(queries, pairs, threads=threads), member)
            all_scores.append(scores)
            columns[f"tree{number}.score"] = scores
            columns[f"tree{number}.rank"] = candidates.ranks(scores)
            columns[f"tree{number}.gap"] = candidates.gaps(scores)
            leaf_labels = member.tree_.leaf_labels  # the first leaf of a label is in its home cluster
            nodes = candidates.labels if leaf_labels is None else np.searchsorted(leaf_labels, candidates.labels)
            for distance in range(1, _ANCESTORS + 1):  # a fixed number, because the depths of trees can differ
                level = len(inner) + 1 - distance
                if level < 1:
                    columns[f"tree{number}.ancestor{distance}"] = np.zeros(candidates.labels.size, np.float32)
                    continue
                nodes = member.tree_.parents[level][nodes]
                searcher = inner[level - 1]
                keys = candidates.queries * searcher.n_labels + nodes
                ancestors = Candidates.of(keys, queries.rows, searcher.n_labels)
                scores = _log_scores(searcher.score_pairs(queries, ancestors.matrix(), threads=threads), member)
                columns[f"tree{number}.ancestor{distance}"] = scores[np.searchsorted(ancestors.keys, keys)]
        mean = np.asarray(np.mean(all_scores, axis=0), np.float32)
        columns |= {"trees.score": mean, "trees.rank": candidates.ranks(mean), "trees.gap": candidates.gaps(mean)}
        return columns

    def _label_features(
        self, queries: Features, normalized: Features, candidates: Candidates, threads: int
    ) -> dict[str, NDArray[np.float32]]:
        cosines = self.centroids.searcher.score_pairs(normalized, candidates.matrix(), threads=threads)
        return {
            "centroid": cosines,
            "centroid.rank": candidates.ranks(cosines),
            "frequency": self.log_frequency[candidates.labels],
            "query_features": np.log1p(np.diff(queries.sparse.indptr)).astype(np.float32)[candidates.queries],
        }

    def _name_features(
        self, name_queries: Features, candidates: Candidates, threads: int
    ) -> dict[str, NDArray[np.float32]]:
        if self.names is None or self.name_words is None:
            return {}
        pairs = candidates.matrix()
        binary = Features.of(name_queries.sparse.with_values(1), name_queries.dense)
        cosines = self.names.searcher.score_pairs(name_queries, pairs, threads=threads)
        shares = self.name_words.searcher.score_pairs(binary, pairs, threads=threads)
        return {
            "name": cosines,
            "name.rank": candidates.ranks(cosines),
            "name.share": shares,
            "name.share.rank": candidates.ranks(shares),
            "name.share.gap": candidates.gaps(shares),
        }

    def _cooccurrence_feature(
        self, candidates: Candidates, gaps: NDArray[np.float32], ranks: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the mean co-occurrence of each label with the top candidates of its query.

        The mean is weighted by the scores of these candidates.
        """
        leaders = np.flatnonzero(ranks < _LEADERS)
        weights = np.exp(gaps[leaders])
        votes = LabelVotes.of(candidates.queries[leaders], candidates.labels[leaders], weights, self.cooccurrence)
        total = np.bincount(candidates.queries[leaders], weights, minlength=candidates.offsets.size - 1)
        total = total[candidates.queries]
        return (candidates.lookup(votes.keys, votes.sum) / np.maximum(total, 1e-9)).astype(np.float32)


def log_frequency(labels: Csr) -> NDArray[np.float32]:
    """Return log(1 + number of rows) of each label."""
    return np.log1p(labels.column_counts()).astype(np.float32)


def _vote_features(
    votes: LabelVotes, candidates: Candidates, voters: NDArray[np.int64], cosines: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    n_queries = candidates.offsets.size - 1
    total, total_cubes = (
        np.bincount(voters, cosines**power, minlength=n_queries)[candidates.queries] for power in (1, 3)
    )
    nearest = np.zeros(n_queries, np.float32)
    np.maximum.at(nearest, voters, cosines)
    cubes = candidates.lookup(votes.keys, votes.cubes)
    return {
        "votes": candidates.lookup(votes.keys, votes.count),
        "votes.share": (candidates.lookup(votes.keys, votes.sum) / np.maximum(total, 1e-9)).astype(np.float32),
        "votes.cubes": (cubes / np.maximum(total_cubes, 1e-9)).astype(np.float32),
        "votes.rank": candidates.ranks(cubes),
        "votes.nearest": candidates.lookup(votes.keys, votes.largest),
        "neighbors.nearest": nearest[candidates.queries],
        "neighbors.sum": total.astype(np.float32),
    }


def _row_numbers(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def _log_scores(scores: NDArray[np.float32], member: XRLinear) -> NDArray[np.float32]:
    """Return the logarithms of multiplicative scores; additive scores are returned unchanged."""
    if any(not layer.transform.is_multiplicative for layer in member.layers_):
        return np.clip(scores, -1e9, 1e9)
    return np.maximum(np.log(np.maximum(scores, 1e-30)), _MIN_LOG_SCORE).astype(np.float32)


def _cooccurrence(labels: Csr) -> Csr:
    """Return the most frequent co-occurring labels of each label, and the fractions of its rows that have them."""
    common = cooccurrence_graph(labels).to_scipy()
    rows = _row_numbers(common.indptr.astype(np.int64))
    order = np.lexsort((common.indices, -common.data, rows))
    kept = np.sort(order[np.arange(order.size) - common.indptr[rows] < _COOCCURRING])
    counts = np.maximum(labels.column_counts(), 1)
    fractions = (common.data[kept] / counts[rows[kept]]).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=labels.cols))]).astype(np.int64)
    return Csr.of(offsets, common.indices[kept].astype(np.int32), fractions, labels.cols)
