"""All that speaks for a label: what trees, neighbours, centres, texts and other candidates say of a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.indexing.representations import pifa, unit
from carya.models.ensemble.combine import predict_combined
from carya.models.reranked.column_views import views
from carya.models.reranked.similarity_model import similarity
from carya.models.xr_linear.model import XRLinear
from carya.ranking.candidates import Pool, Votes
from carya.ranking.pairs import Pairs
from carya.trees.beam_search import Searcher

_LOWEST = -30.0  # the logarithm of a score that is as good as 0
_CENTRE_FEATURES = 1000  # of a label's centre, the largest
_COMPANY = 64  # labels that are remembered as coming with a label
_LEVELS = 2  # clusters above a label whose scores the ranker sees
_LEADERS = 8  # candidates whose company counts


@dataclass(frozen=True)
class Asked:
    """How candidates are found.

    Attributes
    ----------
    pool : int
        Candidates that the trees find together, with a beam of that width.
    neighbours : int
        Training rows that vote.
    extra : int
        Candidates that votes, centres and texts each add.
    """

    pool: int
    neighbours: int
    extra: int
    beam_width: int | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """What training rows leave behind, for :meth:`pairs` to ask.

    Attributes
    ----------
    members : list of XRLinear
        The trees.
    near : XRLinear
        Of the training rows (:mod:`carya.models.reranked.similarity_model`).
    labels : Csr, training rows x labels
        What they have; values are 1.
    centres : XRLinear
        Of the labels: the mean direction of their rows.
    company : Csr, labels x labels
        The share of a label's rows that have another label too; of each, the largest.
    texts, words : XRLinear, optional
        Of the labels' own features, if they are columns of X too: as they are, and each feature counting alike. They
        may have columns that the other parts do not see, behind theirs.
    """

    members: Sequence[XRLinear]
    near: XRLinear
    labels: Csr
    centres: XRLinear
    company: Csr
    texts: XRLinear | None = None
    words: XRLinear | None = None

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
        """From trained trees and the rows they were trained on; `label_features` may have columns behind theirs."""
        threads = _core.thread_count(n_jobs)
        ones = labels.with_values(1)
        centres = unit(pifa(features, ones, keep=_CENTRE_FEATURES, threads=threads))
        made = {"n_jobs": n_jobs, "threads": threads}
        texts = words = None
        if label_features is not None:
            own = views(label_features, features.widths[0]).texts
            counts = np.repeat(np.diff(own.sparse.indptr), np.diff(own.sparse.indptr))
            shares = Csr.of(own.sparse.indptr, own.sparse.indices, (1 / counts).astype(np.float32), own.sparse.cols)
            texts, words = similarity(own, **made), similarity(Features.of(shares, own.dense), **made)
        return cls(
            members, similarity(unit(features), **made), ones, similarity(centres, **made), _company(ones), texts, words
        )

    def __getstate__(self) -> dict[str, Any]:
        # For copies and for scikit-learn's worker processes: searches are made anew.
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return self.labels.cols

    @property
    def widths(self) -> tuple[int, int]:
        """How many features of a query are sparse, how many dense."""
        return self.near.widths_ if self.texts is None else self.texts.widths_

    @cached_property
    def frequency(self) -> NDArray[np.float32]:
        """The logarithm of the number of rows of each label, and one more."""
        return frequency_of(self.labels)

    @cached_property
    def _inner(self) -> list[list[Searcher]]:
        """For each tree, a search that ends at each of its inner levels."""
        return [[Searcher(one.layers_[:level]) for level in range(1, len(one.layers_))] for one in self.members]

    def pairs(self, queries: Features, asked: Asked, *, threads: int) -> tuple[Pairs, Pool]:
        """The candidates of some queries and what is known of each pair; a query without features has none."""
        queries, directed, about = views(queries, self.near.widths_[0])
        neighbours = self.near.search().predict(directed, top_k=asked.neighbours, beam_width=1, threads=threads)
        voters, cosines = _owners(neighbours[0]), np.maximum(neighbours[2], 0)
        votes = Votes.of(voters, neighbours[1], cosines, self.labels)
        found = [self._found(queries, asked, threads)]
        if asked.extra:
            found.append(votes.best(queries.rows, self.n_labels, asked.extra))
            found.append(self._nearest(self.centres.search(), directed, asked.extra, threads))
            if self.texts is not None:
                found.append(self._nearest(self.texts.search(), about, asked.extra, threads))
        pool = Pool.of(np.concatenate(found), queries.rows, self.n_labels)
        columns = self._of_trees(queries, pool, threads)
        columns |= _of_votes(votes, pool, voters, cosines)
        columns |= self._of_labels(queries, directed, pool, threads)
        columns |= self._of_texts(about, pool, threads)
        columns["company"] = self._of_company(pool, columns["trees.gap"], columns["trees.rank"])
        values = np.column_stack(list(columns.values())).astype(np.float32)
        return Pairs(np.ascontiguousarray(values), tuple(columns), pool.offsets), pool

    def _found(self, queries: Features, asked: Asked, threads: int) -> NDArray[np.int64]:
        """The keys of what the trees find together."""
        beam = asked.beam_width or max(member.beam_width for member in self.members)
        offsets, labels, _ = predict_combined(
            [member.search() for member in self.members],
            queries,
            top_k=asked.pool,
            beam_width=beam,
            pool=asked.pool,
            combine="mean",
            weights=np.ones(len(self.members), np.float32),
            threads=threads,
        )
        keys: NDArray[np.int64] = _owners(offsets) * self.n_labels + labels
        return keys

    def _nearest(self, search: Searcher, queries: Features, count: int, threads: int) -> NDArray[np.int64]:
        """The keys of the labels that a search says are nearest, and not at right angles."""
        offsets, labels, scores = search.predict(queries, top_k=count, beam_width=1, threads=threads)
        keys: NDArray[np.int64] = (_owners(offsets) * self.n_labels + labels)[scores > 0]
        return keys

    def _of_trees(self, queries: Features, pool: Pool, threads: int) -> dict[str, NDArray[np.float32]]:
        wanted = pool.matrix()
        columns, every = {}, []
        for number, (member, inner) in enumerate(zip(self.members, self._inner, strict=True)):
            scores = _logarithm(member.search().selected(queries, wanted, threads=threads), member)
            every.append(scores)
            columns[f"tree{number}.score"] = scores
            columns[f"tree{number}.rank"] = pool.ranks(scores)
            columns[f"tree{number}.gap"] = pool.gaps(scores)
            leaf_labels = member.tree_.leaf_labels  # of several leaves, the first is in the label's own cluster
            nodes = pool.labels if leaf_labels is None else np.searchsorted(leaf_labels, pool.labels)
            for above_it in range(1, _LEVELS + 1):  # trees of other rows may have other depths: always as many
                level = len(inner) + 1 - above_it
                if level < 1:
                    columns[f"tree{number}.above{above_it}"] = np.zeros(pool.labels.size, np.float32)
                    continue
                nodes = member.tree_.parents[level][nodes]
                search = inner[level - 1]
                keys = pool.queries * search.n_labels + nodes
                above = Pool.of(keys, queries.rows, search.n_labels)
                path = _logarithm(search.selected(queries, above.matrix(), threads=threads), member)
                at = np.searchsorted(above.keys, keys)
                columns[f"tree{number}.above{above_it}"] = path[at]
        mean = np.asarray(np.mean(every, axis=0), np.float32)
        columns |= {"trees.score": mean, "trees.rank": pool.ranks(mean), "trees.gap": pool.gaps(mean)}
        return columns

    def _of_labels(
        self, queries: Features, directed: Features, pool: Pool, threads: int
    ) -> dict[str, NDArray[np.float32]]:
        wanted = pool.matrix()
        near = self.centres.search().selected(directed, wanted, threads=threads)
        return {
            "centre": near,
            "centre.rank": pool.ranks(near),
            "frequency": self.frequency[pool.labels],
            "features": np.log1p(np.diff(queries.sparse.indptr)).astype(np.float32)[pool.queries],
        }

    def _of_texts(self, about: Features, pool: Pool, threads: int) -> dict[str, NDArray[np.float32]]:
        if self.texts is None or self.words is None:
            return {}
        wanted = pool.matrix()
        present = Features.of(about.sparse.with_values(1), about.dense)
        near = self.texts.search().selected(about, wanted, threads=threads)
        share = self.words.search().selected(present, wanted, threads=threads)
        return {
            "text": near,
            "text.rank": pool.ranks(near),
            "text.share": share,
            "text.share.rank": pool.ranks(share),
            "text.share.gap": pool.gaps(share),
        }

    def _of_company(self, pool: Pool, gaps: NDArray[np.float32], places: NDArray[np.float32]) -> NDArray[np.float32]:
        """How often a label comes with the best other candidates of its query, these weighed by their scores."""
        leaders = np.flatnonzero(places < _LEADERS)
        weights = np.exp(gaps[leaders])
        said = Votes.of(pool.queries[leaders], pool.labels[leaders], weights, self.company)
        whole = np.bincount(pool.queries[leaders], weights, minlength=pool.offsets.size - 1)[pool.queries]
        return (pool.lookup(said.keys, said.sum) / np.maximum(whole, 1e-9)).astype(np.float32)


def frequency_of(labels: Csr) -> NDArray[np.float32]:
    """Of each label the logarithm of one more than its rows."""
    return np.log1p(labels.column_counts()).astype(np.float32)


def _of_votes(
    votes: Votes, pool: Pool, voters: NDArray[np.int64], cosines: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    queries = pool.offsets.size - 1
    whole, cubes = (np.bincount(voters, cosines**power, minlength=queries)[pool.queries] for power in (1, 3))
    closest = np.zeros(queries, np.float32)
    np.maximum.at(closest, voters, cosines)
    cubed = pool.lookup(votes.keys, votes.cubes)
    return {
        "votes": pool.lookup(votes.keys, votes.count),
        "votes.share": (pool.lookup(votes.keys, votes.sum) / np.maximum(whole, 1e-9)).astype(np.float32),
        "votes.cubes": (cubed / np.maximum(cubes, 1e-9)).astype(np.float32),
        "votes.rank": pool.ranks(cubed),
        "votes.nearest": pool.lookup(votes.keys, votes.largest),
        "neighbours.nearest": closest[pool.queries],
        "neighbours.sum": whole.astype(np.float32),
    }


def _owners(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def _logarithm(scores: NDArray[np.float32], member: XRLinear) -> NDArray[np.float32]:
    """Scores that are products along a path as sums; others as they are."""
    if any(layer.transform.kind in ("noop", "log_hinge", "log_sigmoid") for layer in member.layers_):
        return np.clip(scores, -1e9, 1e9)
    return np.maximum(np.log(np.maximum(scores, 1e-30)), _LOWEST).astype(np.float32)


def _company(labels: Csr) -> Csr:
    """For each label, the labels that come with it, and in which share of its rows."""
    Y = labels.to_scipy()
    together = sp.csr_array(Y.T @ Y)
    together.setdiag(0)
    together.eliminate_zeros()
    rows = _owners(together.indptr.astype(np.int64))
    order = np.lexsort((together.indices, -together.data, rows))
    kept = np.sort(order[np.arange(order.size) - together.indptr[rows] < _COMPANY])
    counts = np.maximum(labels.column_counts(), 1)
    shares = (together.data[kept] / counts[rows[kept]]).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=labels.cols))]).astype(np.int64)
    kept_labels = together.indices[kept].astype(np.int32)
    sorted_within = np.lexsort((kept_labels, rows[kept]))
    return Csr.of(offsets, kept_labels[sorted_within], shares[sorted_within], labels.cols)
