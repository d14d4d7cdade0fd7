"""Rankers mixed by a small network: what all of them say of a label, and how common it is, weighed together.

A sum of scores counts each ranker alike for all labels. But neighbours know more of rare labels than heads do, and what
one ranker alone suggests is worth less than what three agree on. So a ranker of pairs learns from dev texts, which
nothing was trained on, what the scores mean together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from carya import sparse as sp
from carya.ranking.neural import NeuralRanker
from carya.ranking.pairs import Pairs
from carya.ranking.pool import Pool

CANDIDATES = 30  # labels that each ranker suggests
_LEAST = 1e-4  # a score as good as none
_BLOCK = 8192  # texts whose pairs are in memory at once

#: What each ranker found, texts x labels.
Found = Mapping[str, sp.csr_array]


@dataclass(frozen=True, eq=False)
class Mixture:
    """A trained network, and what it knows of labels.

    Attributes
    ----------
    ranker : NeuralRanker
    frequency : ndarray of float32
        Of each label the logarithm of one more than its training texts.
    """

    ranker: NeuralRanker
    frequency: NDArray[np.float32]

    @classmethod
    def learned(cls, found: Found, truth: sp.csr_array, frequency: NDArray[np.float32], *, seed: int) -> Self:
        """From what rankers found for texts that they were not trained on."""
        pairs, pool = pairs_of(found, frequency)
        known = sp.csr_array(truth)
        known.sort_indices()
        rows = np.repeat(np.arange(known.shape[0], dtype=np.int64), np.diff(known.indptr))
        relevant = pool.lookup(rows * pool.n_labels + known.indices, (known.data > 0).astype(np.float32))
        return cls(NeuralRanker(seed=seed).fit(pairs, relevant), frequency)

    def rank(self, found: Found, *, top_k: int) -> sp.csr_array:
        """The best labels of every text, best first; scores are shares, which add up to 1 over all candidates."""
        n_rows, n_labels = next(iter(found.values())).shape
        parts = []
        for first in range(0, n_rows, _BLOCK):
            some = {name: one[first : first + _BLOCK] for name, one in found.items()}
            parts.append(self._ranked(*pairs_of(some, self.frequency), top_k))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate([part[0] for part in parts]))])
        labels, scores = (np.concatenate([part[at] for part in parts]) for at in (1, 2))
        return sp.csr_array((scores, labels, indptr), shape=(n_rows, n_labels))

    def _ranked(
        self, pairs: Pairs, pool: Pool, top_k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        raised = np.exp(pool.gaps(self.ranker.score(pairs)))
        total = np.bincount(pool.queries, raised, minlength=pool.offsets.size - 1)
        shares = (raised / total[pool.queries]).astype(np.float32)
        order = np.lexsort((pool.labels, -shares, pool.queries))
        place = np.arange(order.size) - np.repeat(pool.offsets[:-1], np.diff(pool.offsets))
        kept = order[place < top_k]
        return np.minimum(np.diff(pool.offsets), top_k), pool.labels[kept], shares[kept]


def feature_names(rankers: Sequence[str]) -> tuple[str, ...]:
    """What a network sees of a pair if these rankers are mixed: of each the score, its logarithm, share of the best."""
    return (*(f"{name}{kind}" for name in rankers for kind in ("", ".log", ".share")), "frequency")


def pairs_of(found: Found, frequency: NDArray[np.float32]) -> tuple[Pairs, Pool]:
    """All that is suggested for some texts, and what each ranker says of it."""
    n_rows, n_labels = next(iter(found.values())).shape
    keyed = {name: _keyed(one) for name, one in found.items()}
    pool = Pool.of(np.concatenate([keys for keys, _ in keyed.values()]), n_rows, n_labels)
    columns: list[NDArray[np.float32]] = []
    for keys, scores in keyed.values():
        said = pool.lookup(keys, scores)
        best = said - pool.gaps(said)
        columns += [said, np.log(np.maximum(said, _LEAST)), said / np.maximum(best, _LEAST)]
    values = np.column_stack([*columns, frequency[pool.labels]]).astype(np.float32)
    return Pairs(np.ascontiguousarray(values), feature_names(list(found)), pool.offsets), pool


def _keyed(found: sp.csr_array) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Row · labels + label of what was found, ascending, and the scores."""
    rows = np.repeat(np.arange(found.shape[0], dtype=np.int64), np.diff(found.indptr))
    keys = rows * found.shape[1] + found.indices
    order = np.argsort(keys)
    return keys[order], found.data[order].astype(np.float32)
