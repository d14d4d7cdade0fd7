"""Rankers mixed by a small network: what all of them say of a label, and how common it is, weighed together.

A sum of scores counts each ranker alike for all labels. But neighbours know more of rare labels than heads do, and what
one ranker alone suggests is worth less than what three agree on. So a ranker of pairs learns from dev texts, which
nothing was trained on, what the scores mean together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.ranking.candidates import Pool
from carya.ranking.neural import NeuralRanker
from carya.ranking.pairs import Pairs

_LEAST = 1e-6  # a score as good as none
_KINDS = ("", ".log", ".share", ".place")


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
    def learned(cls, said: Said, relevant: NDArray[np.float32], frequency: NDArray[np.float32], seed: int) -> Mixture:
        """From what rankers say of texts that they were not trained on."""
        return cls(_network(seed).fit(said.pairs(frequency), relevant), frequency)

    def rank(self, said: Said, *, top_k: int) -> sp.csr_array:
        """The best labels of every text, best first; scores are shares, which add up to 1 over all candidates."""
        return ranked(said.pool, self.ranker.score(said.pairs(self.frequency)), top_k)


@dataclass(frozen=True, eq=False)
class Said:
    """What rankers say of candidates.

    Attributes
    ----------
    pool : Pool
        The candidates.
    scores : dict of str to ndarray
        For each ranker the score of every candidate.
    """

    pool: Pool
    scores: Mapping[str, NDArray[np.float32]]

    def pairs(self, frequency: NDArray[np.float32]) -> Pairs:
        """What a network sees of the candidates."""
        columns: list[NDArray[np.float32]] = []
        for scores in self.scores.values():
            best = scores - self.pool.gaps(scores)
            columns += [
                scores,
                np.log(np.maximum(scores, _LEAST)),
                scores / np.maximum(best, _LEAST),
                (1 / (1 + self.pool.ranks(scores))).astype(np.float32),
            ]
        values = np.column_stack([*columns, frequency[self.pool.labels]]).astype(np.float32)
        return Pairs(np.ascontiguousarray(values), feature_names(list(self.scores)), self.pool.offsets)

    def relevant(self, truth: sp.csr_array) -> NDArray[np.float32]:
        """Which candidates are right."""
        return (self.pool.lookup(*keyed(truth)) > 0).astype(np.float32)


def feature_names(rankers: Sequence[str]) -> tuple[str, ...]:
    """What a network sees of these rankers: the score, its logarithm, its share of the best, and the place."""
    return (*(f"{name}{kind}" for name in rankers for kind in _KINDS), "frequency")


def pool_of(found: Sequence[sp.csr_array]) -> Pool:
    """All that rankers found for some texts."""
    return Pool.of(np.concatenate([keyed(one)[0] for one in found]), *found[0].shape)


def keyed(found: sp.csr_array) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Row · labels + label of what was found, ascending, and the scores."""
    rows = np.repeat(np.arange(found.shape[0], dtype=np.int64), np.diff(found.indptr))
    keys = rows * found.shape[1] + found.indices
    order = np.argsort(keys)
    return keys[order], found.data[order].astype(np.float32)


def crossed(said: Said, relevant: NDArray[np.float32], frequency: NDArray[np.float32], seed: int) -> sp.csr_array:
    """What networks rank highest for texts that they were not learned from: each for one half, from the other."""
    pairs, n_texts = said.pairs(frequency), said.pool.offsets.size - 1
    half = np.random.default_rng([seed, 2]).permutation(n_texts) % 2
    scores = np.zeros(len(pairs), np.float32)
    for turn in range(2):
        asked = half[said.pool.queries] == turn
        network = _network(seed).fit(_some(pairs, ~asked, half != turn), relevant[~asked])
        scores[asked] = network.score(_some(pairs, asked, half == turn))
    return ranked(said.pool, scores, 5)


def ranked(pool: Pool, scores: NDArray[np.float32], top_k: int) -> sp.csr_array:
    """The candidates of every text with the highest scores, best first, with exp(score) shared out among them."""
    raised = np.exp(pool.gaps(scores))
    total = np.bincount(pool.queries, raised, minlength=pool.offsets.size - 1)
    shares = (raised / total[pool.queries]).astype(np.float32)
    order = np.lexsort((pool.labels, -shares, pool.queries))
    sizes = np.diff(pool.offsets)
    kept = order[np.arange(order.size) - np.repeat(pool.offsets[:-1], sizes) < top_k]
    indptr = np.concatenate([[0], np.cumsum(np.minimum(sizes, top_k))])
    return sp.csr_array((shares[kept], pool.labels[kept], indptr), shape=(sizes.size, pool.n_labels))


def _network(seed: int) -> NeuralRanker:
    return NeuralRanker(width=64, batch=32, seed=seed)


def _some(pairs: Pairs, kept: NDArray[np.bool_], texts: NDArray[np.bool_]) -> Pairs:
    """The pairs of some texts."""
    offsets = np.concatenate([[0], np.cumsum(np.diff(pairs.offsets)[texts])]).astype(np.int64)
    return Pairs(pairs.values[kept], pairs.names, offsets)
