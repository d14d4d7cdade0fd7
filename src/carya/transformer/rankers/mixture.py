"""Combine rankers with a small neural network that uses their scores and the label frequencies.

In a weighted sum, a ranker has the same weight for all labels. However, nearest neighbors are better than heads for
rare labels, and a label suggested by three rankers is more likely to be correct than a label suggested by only one.
Therefore, a reranker that uses the scores of all rankers as features is trained on held-out validation texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.ranking.candidates import Candidates
from carya.ranking.neural import NeuralRanker
from carya.ranking.pairs import Pairs

_MIN_SCORE = 1e-6  # lower bound for scores before taking logarithms or dividing
_FEATURE_SUFFIXES = ("", ".log", ".relative", ".rank")


@dataclass(frozen=True, eq=False)
class Mixture:
    """Neural network that ranks the candidates of all rankers.

    Attributes
    ----------
    ranker : NeuralRanker
    log_frequency : ndarray of float32
        log(1 + number of training texts) for each label.
    """

    ranker: NeuralRanker
    log_frequency: NDArray[np.float32]

    @classmethod
    def fit(
        cls,
        scores: CandidateScores,
        relevance: NDArray[np.float32],
        log_frequency: NDArray[np.float32],
        *,
        seed: int,
    ) -> Mixture:
        """Train the network on scores for texts that were not used to train the rankers."""
        return cls(_network(seed).fit(scores.pairs(log_frequency), relevance), log_frequency)

    def rank(self, scores: CandidateScores, *, top_k: int) -> sp.csr_array:
        """Return the best labels for each text, best first; the scores of all candidates for a text sum to 1."""
        return rank_candidates(scores.candidates, self.ranker.score(scores.pairs(self.log_frequency)), top_k)

    def score(self, scores: CandidateScores) -> NDArray[np.float32]:
        """Return the score of every candidate, including candidates that no ranker suggested."""
        return softmax(scores, self.ranker.score(scores.pairs(self.log_frequency)))


@dataclass(frozen=True, eq=False)
class CandidateScores:
    """Scores of several rankers for the same candidates.

    Attributes
    ----------
    candidates : Candidates
    scores : dict of str to ndarray
        The scores of all candidates, by ranker name.
    is_suggested : ndarray of bool, optional
        Whether each candidate was suggested by a ranker; by default, all were. Candidates that were not suggested do
        not affect the features of suggested ones.
    """

    candidates: Candidates
    scores: Mapping[str, NDArray[np.float32]]
    is_suggested: NDArray[np.bool_] | None = None

    def pairs(self, log_frequency: NDArray[np.float32]) -> Pairs:
        """Return the network's input features; :func:`feature_names` describes the columns."""
        columns: list[NDArray[np.float32]] = []
        for scores in self.scores.values():
            columns += [
                scores,
                np.log(np.maximum(scores, _MIN_SCORE)),
                (scores / np.maximum(self.best(scores), _MIN_SCORE)).astype(np.float32),
                (1 / (1 + self._ranks(scores))).astype(np.float32),
            ]
        values = np.column_stack([*columns, log_frequency[self.candidates.labels]]).astype(np.float32)
        return Pairs(np.ascontiguousarray(values), feature_names(list(self.scores)), self.candidates.offsets)

    def best(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return, for each candidate, the largest value among the suggested candidates for the same text."""
        if self.is_suggested is None:
            return values - self.candidates.gaps(values)
        lowest = np.float32(np.finfo(np.float32).min)
        best = np.full(self.candidates.offsets.size - 1, lowest, np.float32)
        np.maximum.at(best, self.candidates.queries, np.where(self.is_suggested, values, lowest))
        return best[self.candidates.queries]

    def _ranks(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return, for each candidate, the number of suggested candidates for the same text that rank above it."""
        if self.is_suggested is None:
            return self.candidates.ranks(scores)
        order = np.lexsort((-scores, self.candidates.queries))
        suggested = self.is_suggested[order].astype(np.int64)
        before = np.cumsum(suggested) - suggested
        ranks = np.empty(scores.size, np.float32)
        starts = np.searchsorted(self.candidates.queries[order], self.candidates.queries[order])
        ranks[order] = before - before[starts]
        return ranks

    def relevance(self, truth: sp.csr_array) -> NDArray[np.float32]:
        """Return 1 for each candidate that is a label of its text, and 0 for all others."""
        return (self.candidates.lookup(*keys_and_scores(truth)) > 0).astype(np.float32)


def feature_names(rankers: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the network's features.

    The features of each ranker are the score, its logarithm, the score relative to the best score for the text, and the
    reciprocal rank. The last feature is the logarithm of the label's frequency.
    """
    return (*(f"{name}{suffix}" for name in rankers for suffix in _FEATURE_SUFFIXES), "frequency")


def all_candidates(rankings: Sequence[sp.csr_array]) -> Candidates:
    """Return the union of several rankings of the same texts."""
    return Candidates.of(np.concatenate([keys_and_scores(S)[0] for S in rankings]), *rankings[0].shape)


def keys_and_scores(S: sp.csr_array) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the keys of a ranking's entries (row · n_labels + label) in ascending order, and their scores."""
    rows = np.repeat(np.arange(S.shape[0], dtype=np.int64), np.diff(S.indptr))
    keys = rows * S.shape[1] + S.indices
    order = np.argsort(keys)
    return keys[order], S.data[order].astype(np.float32)


def cross_validated_ranking(
    scores: CandidateScores, relevance: NDArray[np.float32], log_frequency: NDArray[np.float32], *, seed: int
) -> sp.csr_array:
    """Return the five best labels for each text in 2-fold cross-validation.

    The candidates for the texts in each fold are ranked by a network that was trained on the other fold.
    """
    candidates, pairs = scores.candidates, scores.pairs(log_frequency)
    fold = np.random.default_rng([seed, 2]).permutation(candidates.offsets.size - 1) % 2
    values = np.zeros(len(pairs), np.float32)
    for held_out_fold in range(2):
        held_out = fold[candidates.queries] == held_out_fold
        training_pairs = _select(pairs, ~held_out, fold != held_out_fold)
        network = _network(seed).fit(training_pairs, relevance[~held_out])
        values[held_out] = network.score(_select(pairs, held_out, fold == held_out_fold))
    return rank_candidates(candidates, values, 5)


def softmax(scores: CandidateScores, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the softmax of the values over the suggested candidates for each text."""
    candidates = scores.candidates
    exponentials = np.exp(values - scores.best(values))
    counted = exponentials if scores.is_suggested is None else np.where(scores.is_suggested, exponentials, 0)
    totals = np.bincount(candidates.queries, counted, minlength=candidates.offsets.size - 1)
    return (exponentials / totals[candidates.queries]).astype(np.float32)


def rank_candidates(candidates: Candidates, values: NDArray[np.float32], top_k: int) -> sp.csr_array:
    """Return the best candidates for each text, best first; the scores are the softmax of the values."""
    scores = softmax(CandidateScores(candidates, {}), values)
    order = np.lexsort((candidates.labels, -scores, candidates.queries))
    sizes = np.diff(candidates.offsets)
    kept = order[np.arange(order.size) - np.repeat(candidates.offsets[:-1], sizes) < top_k]
    indptr = np.concatenate([[0], np.cumsum(np.minimum(sizes, top_k))])
    return sp.csr_array((scores[kept], candidates.labels[kept], indptr), shape=(sizes.size, candidates.n_labels))


def _network(seed: int) -> NeuralRanker:
    return NeuralRanker(hidden_units=64, batch_size=32, seed=seed)


def _select(pairs: Pairs, selected: NDArray[np.bool_], queries: NDArray[np.bool_]) -> Pairs:
    """Return the selected pairs, which must be exactly the pairs for the selected queries."""
    offsets = np.concatenate([[0], np.cumsum(np.diff(pairs.offsets)[queries])]).astype(np.int64)
    return Pairs(pairs.values[selected], pairs.names, offsets)
