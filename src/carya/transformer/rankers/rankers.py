"""Rankers of a transformer model and their combination.

All rankers are native: the heads on the encoder's embeddings, a linear ranker on TF-IDF features and embeddings, a
linear ranker on TF-IDF features alone, the votes of the training texts with the nearest embeddings, and the similarity
to label texts by embeddings and by character n-grams. The combination is learned from validation texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.errors import InputError
from carya.models.ensemble.combine import combine_rankings, matrix_to_native
from carya.models.ensemble.weights import best_weights
from carya.models.interface import RankOptions
from carya.models.neighbors.model import NearestNeighbors
from carya.models.restriction import best_of_rows, concatenate
from carya.models.xr_linear.model import XRLinear
from carya.transformer.rankers.label_terms import TERM_RANKERS, label_term_features
from carya.transformer.rankers.mixture import (
    CandidateScores,
    Mixture,
    all_candidates,
    cross_validated_ranking,
    keys_and_scores,
)

#: Names of the rankers.
RANKER_NAMES = ("head", "concatenated", "linear", "neighbors", "label_texts", *TERM_RANKERS)
RankerModel = XRLinear | NearestNeighbors

_SHARPNESS = 7.0  # sharpness of the neighbors' votes, chosen on validation texts from debian-deps and tibkat-en
_POOL_SIZE = 50  # number of labels per ranker in a weighted sum
_N_CANDIDATES = 30  # number of labels per ranker in a learned mixture
_NO_CANDIDATES = ("label_coverage",)  # rankers that only score the labels that other rankers suggest
_MIN_MIXTURE_TEXTS = 500  # a mixture learned from fewer texts is unreliable
_MAX_MIXTURE_TEXTS = 20_000  # more texts do not improve a mixture
_BLOCK_ROWS = 8192  # number of texts whose candidates are kept in memory at the same time
_MAX_PAIRS = 1 << 20  # number of pairs in memory at the same time


@dataclass(frozen=True, eq=False)
class RankerInputs:
    """Features of texts, used as input to the rankers.

    Attributes
    ----------
    features : Features
        The TF-IDF features, followed by the user-supplied features.
    embeddings : ndarray of float32
    embedding_weight : float
        The norm of the embeddings when they are concatenated with the features.
    label_terms : Features or None
        The features that are compared with label texts.
    """

    features: Features
    embeddings: NDArray[np.float32]
    embedding_weight: float
    label_terms: Features | None = None

    def of(self, ranker: str) -> Any:
        """Return the input for the ranker with the given name."""
        if ranker == "concatenated":
            return append_embeddings(self.features, self.embeddings, self.embedding_weight).to_input()
        if ranker in TERM_RANKERS:
            assert self.label_terms is not None  # always set if the model has these rankers
            return label_term_features(ranker, self.label_terms).to_input()
        return self.features.to_input() if ranker == "linear" else self.embeddings

    @property
    def rows(self) -> int:
        """The number of texts."""
        return len(self.embeddings)

    def select(self, rows: slice | NDArray[np.int64]) -> RankerInputs:
        """Return the features of the selected texts."""
        terms = None if self.label_terms is None else self.label_terms.take(rows)
        return replace(self, features=self.features.take(rows), embeddings=self.embeddings[rows], label_terms=terms)


def append_embeddings(features: Features, embeddings: NDArray[np.float32], weight: float) -> Features:
    """Return the features with the scaled embeddings as additional dense columns."""
    dense = np.hstack([features.dense, embeddings * np.float32(weight)])
    return Features.of(features.sparse, np.ascontiguousarray(dense))


@dataclass(frozen=True, eq=False)
class CombinedRankers:
    """Rankers combined by a weighted sum or a learned mixture.

    Attributes
    ----------
    models : dict of str to model
        The rankers by name.
    weights : dict of str to float
        The weights of the rankers in a weighted sum, which add up to 1.
    mixture : Mixture or None
        The network that combines the rankers instead of a weighted sum.
    """

    models: Mapping[str, RankerModel]
    weights: Mapping[str, float]
    mixture: Mixture | None = None

    @classmethod
    def with_equal_weights(cls, models: Mapping[str, RankerModel]) -> CombinedRankers:
        """Combine the rankers with equal weights; used if there are no validation texts."""
        summed = _summed_rankers(models)
        return cls(models, dict.fromkeys(models, 0.0) | dict.fromkeys(summed, 1 / len(summed)))

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return int(next(iter(self.models.values())).n_labels_)

    def subset(self, labels: NDArray[np.int32]) -> CombinedRankers:
        """Return the same combination with rankers that are restricted to the given labels."""
        models = {name: model.subset(labels) for name, model in self.models.items()}
        mixture = self.mixture and replace(self.mixture, log_frequency=self.mixture.log_frequency[labels])
        return CombinedRankers(models, self.weights, mixture)

    def predict(
        self, inputs: RankerInputs, *, top_k: int, beam_width: int | None = None, using: str | None = None, threads: int
    ) -> sp.csr_array:
        """Return the scores of the best labels for each text; if `using` is given, only that ranker is used."""
        if using is not None:
            self._check_name(using)
            return self._predict_one(using, inputs, top_k, beam_width)
        if inputs.rows == 0:
            return sp.csr_array((0, self.n_labels), dtype=np.float32)
        if self.mixture is not None:
            return self._predict_mixture(self.mixture, inputs, top_k, beam_width)
        names = [name for name in self.models if self.weights[name] > 0]
        if len(names) == 1:
            return self._predict_one(names[0], inputs, top_k, beam_width)
        rankings = [
            matrix_to_native(self._predict_one(name, inputs, max(top_k, _POOL_SIZE), beam_width)) for name in names
        ]
        weights = np.array([self.weights[name] for name in names], np.float32)
        indptr, labels, scores = combine_rankings(
            rankings, combine="mean", weights=weights, top_k=top_k, threads=threads
        )
        return sp.csr_array((scores, labels, indptr), shape=(indptr.size - 1, self.n_labels))

    def predict_selected(
        self, inputs: RankerInputs, pairs: Csr, *, beam_width: int | None = None, using: str | None = None
    ) -> NDArray[np.float32]:
        """Return the scores of the given (text, label) pairs.

        A weighted sum includes the scores of all rankers, whereas `predict` includes only the best labels of each
        ranker. A learned mixture compares the label of each pair with those that the rankers suggest for the text.
        """
        if using is not None:
            self._check_name(using)
            return self._score_one(using, inputs, pairs)
        if not inputs.rows or not pairs.indices.size:
            return np.zeros(0, np.float32)
        if self.mixture is None:
            names = [name for name in self.models if self.weights[name] > 0]
            weights = np.array([self.weights[name] for name in names], np.float32)
            scores = [self._score_one(name, inputs, pairs) for name in names]
            return np.asarray(np.average(scores, axis=0, weights=weights), np.float32)
        values = []
        for begin in range(0, inputs.rows, _BLOCK_ROWS):
            rows = slice(begin, begin + _BLOCK_ROWS)
            block, own = inputs.select(rows), pairs.take(rows)
            rankings = self._candidates(block, _N_CANDIDATES, beam_width)
            scores_of_all = self.score_candidates(block, rankings, own)
            keys = np.repeat(np.arange(own.rows), np.diff(own.indptr)) * own.cols + own.indices
            positions = np.searchsorted(scores_of_all.candidates.keys, keys)
            values.append(self.mixture.score(scores_of_all)[positions])
        return np.concatenate(values)

    def predict_within(self, inputs: RankerInputs, options: RankOptions, *, using: str | None = None) -> sp.csr_array:
        """Score the labels in `options.labels` for every text, and return the best of these labels."""
        assert options.labels is not None
        labels, rankings = options.labels, []
        step = max(1, _MAX_PAIRS // labels.size)
        for begin in range(0, max(inputs.rows, 1), step):
            block = inputs.select(slice(begin, begin + step))
            indptr = np.arange(block.rows + 1, dtype=np.int64) * labels.size
            indices = np.tile(labels, block.rows)
            pairs = Csr.of(indptr, indices, np.ones(indices.size, np.float32), self.n_labels)
            scores = self.predict_selected(block, pairs, beam_width=options.beam_width, using=using)
            rankings.append(best_of_rows(indptr, indices, scores, top_k=options.top_k, min_score=options.min_score))
        ends, ranked, best = concatenate(rankings)
        return sp.csr_array((best, ranked, ends), shape=(inputs.rows, self.n_labels))

    def score_candidates(
        self, inputs: RankerInputs, rankings: Sequence[sp.csr_array], pairs: Csr | None = None
    ) -> CandidateScores:
        """Return the scores of all rankers for the union of their rankings and, optionally, for additional pairs."""
        candidates, is_suggested = all_candidates(rankings), None
        if pairs is not None:
            suggested = candidates.keys
            candidates = all_candidates([*rankings, pairs.to_scipy()])
            is_suggested = np.isin(candidates.keys, suggested, assume_unique=True)
        pattern = candidates.matrix().to_scipy()
        scores = {}
        for (name, model), ranking in zip(self.models.items(), rankings, strict=True):
            if isinstance(model, XRLinear):
                scores[name] = model.predict_selected(inputs.of(name), pattern).data
            else:  # a label outside the ranking has no votes from neighbors, so its score is 0
                scores[name] = candidates.lookup(*keys_and_scores(ranking))
        return CandidateScores(candidates, scores, is_suggested)

    def _check_name(self, using: str) -> None:
        if using not in self.models:
            raise InputError(f"using must be one of {', '.join(map(repr, self.models))} or None, got {using!r}.")

    def _score_one(self, name: str, inputs: RankerInputs, pairs: Csr) -> NDArray[np.float32]:
        """Return the scores of one ranker for the given pairs; pairs without votes from neighbors have a score of 0."""
        model = self.models[name]
        if isinstance(model, XRLinear):
            scores: NDArray[np.float32] = model.predict_selected(inputs.of(name), pairs.to_scipy()).data
            return scores
        keys, values = keys_and_scores(model.predict(inputs.of(name), top_k=self.n_labels))
        own = np.repeat(np.arange(pairs.rows, dtype=np.int64), np.diff(pairs.indptr)) * pairs.cols + pairs.indices
        if not keys.size:
            return np.zeros(own.size, np.float32)
        positions = np.minimum(np.searchsorted(keys, own), keys.size - 1)
        return np.where(keys[positions] == own, values[positions], 0).astype(np.float32)

    def _candidates(self, inputs: RankerInputs, top_k: int, beam_width: int | None) -> list[sp.csr_array]:
        """Return the candidates of each ranker for a learned mixture."""
        return [
            sp.csr_array((inputs.rows, self.n_labels), dtype=np.float32)
            if name in _NO_CANDIDATES
            else self._predict_one(name, inputs, top_k, beam_width)
            for name in self.models
        ]

    def _predict_one(self, name: str, inputs: RankerInputs, top_k: int, beam_width: int | None) -> sp.csr_array:
        options: dict[str, Any] = (
            {} if name == "neighbors" else {"beam_width": beam_width}
        )  # the neighbor search has no beam
        return self.models[name].predict(inputs.of(name), top_k=top_k, **options)

    def _predict_mixture(
        self, mixture: Mixture, inputs: RankerInputs, top_k: int, beam_width: int | None
    ) -> sp.csr_array:
        parts = []
        for begin in range(0, inputs.rows, _BLOCK_ROWS):
            block = inputs.select(slice(begin, begin + _BLOCK_ROWS))
            rankings = self._candidates(block, max(top_k, _N_CANDIDATES), beam_width)
            parts.append(mixture.rank(self.score_candidates(block, rankings), top_k=top_k))
        return sp.csr_array(sp.vstack(parts, format="csr")) if len(parts) > 1 else parts[0]


@dataclass(frozen=True)
class RankerCombiner:
    """Select the combination of rankers that performs best on validation texts.

    Attributes
    ----------
    method : {"auto", "learned", "weights"}
        ``"learned"`` selects a learned mixture, ``"weights"`` a weighted sum, and ``"auto"`` whichever of the two
        performs better on the validation texts, for which the mixture is cross-validated. A weighted sum is also used
        if no ranker suggests a relevant label, because a mixture cannot be learned in that case.
    seed, threads : int
    """

    method: str
    seed: int
    threads: int

    def combine(
        self,
        models: Mapping[str, RankerModel],
        inputs: RankerInputs,
        truth: sp.csr_array,
        log_frequency: NDArray[np.float32],
    ) -> tuple[CombinedRankers, dict[str, dict[str, float]]]:
        """Combine rankers; also return P@k for each ranker and, as ``mixture``, for their combination.

        Parameters
        ----------
        models : dict of str to model
        inputs : RankerInputs
            Features of validation texts that were not used to train the rankers.
        truth : csr_array
            Labels of the validation texts.
        log_frequency : ndarray of float32
            log(1 + number of training texts) for each label.
        """
        rankings = {name: model.predict(inputs.of(name), top_k=_POOL_SIZE) for name, model in models.items()}
        summed = CombinedRankers(models, self._weights(rankings, truth))
        reports = {name: precisions(truth, S) for name, S in rankings.items()}
        reports["mixture"] = precisions(truth, summed.predict(inputs, top_k=5, threads=self.threads))
        if self.method == "weights" or (self.method == "auto" and truth.shape[0] < _MIN_MIXTURE_TEXTS):
            return summed, reports
        order = np.random.default_rng([self.seed, 3]).permutation(truth.shape[0])
        rows = np.sort(order[:_MAX_MIXTURE_TEXTS])
        scores = summed.score_candidates(
            inputs.select(rows),
            [_first_columns(S, 0 if name in _NO_CANDIDATES else _N_CANDIDATES)[rows] for name, S in rankings.items()],
        )
        relevance = scores.relevance(truth[rows])
        try:
            cross_validated = cross_validated_ranking(scores, relevance, log_frequency, seed=self.seed)
            mixture = Mixture.fit(scores, relevance, log_frequency, seed=self.seed)
        except InputError:  # raised if no candidate is relevant, in which case no mixture can be learned
            return summed, reports
        report = precisions(truth[rows], cross_validated)
        if self.method == "auto":
            summed_ranking = summed.predict(inputs.select(rows), top_k=5, threads=self.threads)
            if sum(report.values()) <= sum(precisions(truth[rows], summed_ranking).values()):
                return summed, reports
        return replace(summed, mixture=mixture), reports | {"mixture": report}

    def _weights(self, rankings: Mapping[str, sp.csr_array], truth: sp.csr_array) -> dict[str, float]:
        """Return the best weights for a weighted sum, by ranker name."""
        names = _summed_rankers(rankings)
        native = [matrix_to_native(rankings[name]) for name in names]
        weights = best_weights(native, truth, combine="mean", threads=self.threads)
        by_name = dict(zip(names, (weights / weights.sum()).tolist(), strict=True))
        return dict.fromkeys(rankings, 0.0) | by_name


def neighbor_ranker(embeddings: NDArray[np.float32], labels: Csr, *, n_neighbors: int, n_jobs: int) -> NearestNeighbors:
    """Train a nearest-neighbor ranker: the training texts with the nearest embeddings vote for their labels."""
    ranker = NearestNeighbors(
        over="rows", ranker=None, search="exact", n_neighbors=n_neighbors, sharpness=_SHARPNESS, n_jobs=n_jobs
    )
    return ranker.fit(embeddings, labels.to_scipy())


def precisions(truth: sp.csr_array, S: sp.csr_array) -> dict[str, float]:
    """Return P@1, P@3 and P@5."""
    return {name: value for name, value in metrics.report(truth, S, k=(1, 3, 5)).items() if name.startswith("P@")}


def _summed_rankers(names: Mapping[str, Any]) -> list[str]:
    """Return the rankers in a weighted sum: all except label_texts, which is already included in the head's scores, and
    those that compare n-grams.
    """
    return [name for name in names if name not in ("label_texts", *TERM_RANKERS)]


def _first_columns(S: sp.csr_array, count: int) -> sp.csr_array:
    """Return the first `count` entries of each row, which are the best ones."""
    sizes = np.diff(S.indptr)
    kept = np.arange(S.indices.size) - np.repeat(S.indptr[:-1], sizes) < count
    indptr = np.concatenate([[0], np.cumsum(np.minimum(sizes, count))])
    return sp.csr_array((S.data[kept], S.indices[kept], indptr), shape=S.shape)
