"""Trees find candidates, a ranker of pairs puts them in order: more is known of fifty candidates than of all labels."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import storage, validation
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterised, parameter
from carya.core.progress import Report
from carya.core.rules import Choice, Either, Integer, Real, Rule
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError, ModelFormatError, ParameterError
from carya.models.base import Rankings, Verbs
from carya.models.ensemble.model import Ensemble
from carya.models.reranked.column_views import first
from carya.models.reranked.features import Asked, Evidence
from carya.models.reranked.serialize import pack, unpack
from carya.models.xr_linear.model import XRLinear
from carya.ranking.averaged import AveragedRanker
from carya.ranking.boosted import BoostedRanker
from carya.ranking.candidates import Pool
from carya.ranking.neural import NeuralRanker
from carya.ranking.pairs import Pairs
from carya.ranking.ranker import Ranker

_TREES = 2
_RUN = 20  # rows side by side that are held out together, and the least number of such runs
_BLOCK = 1024  # queries whose pairs are in memory at a time


class _Base(Rule):
    """Models that find candidates."""

    text = "an XRLinear, an Ensemble of them, a list of at least one XRLinear, or None"

    def allows(self, value: object) -> bool:
        """Whether the value is such a model or list."""
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(isinstance(one, XRLinear) for one in value)
        if isinstance(value, Ensemble):
            return self.allows(value.members)
        return value is None or isinstance(value, XRLinear)


class _OfPairs(Rule):
    """A ranker."""

    text = "a Ranker (an object with name, fit, score, to_saved and from_saved) or None"

    def allows(self, value: object) -> bool:
        """Whether the value does what a ranker does."""
        return value is None or (isinstance(value, Ranker) and not isinstance(value, type))


@dataclass(eq=False, repr=False)
class Reranked(Verbs[tuple[Evidence, Ranker]], Parameterised):
    """A model in two steps: trees and nearest neighbours find candidates, a ranker of pairs orders them.

    The ranker is trained on rows that the models had not seen, so that it learns what their scores are worth.

    Examples
    --------
    >>> import carya
    >>> from carya.ranking import NeuralRanker
    >>> X, Y = carya.data.make_world(600, 60, seed=1)
    >>> model = carya.Reranked(carya.XRLinear(max_leaf=10), NeuralRanker()).fit(X[:500], Y[:500])
    >>> S = model.predict(X[500:], top_k=3)
    >>> labels, scores = model.rank(X[[500]], top_k=3)
    >>> len(labels)
    3
    """

    base: Any = parameter(
        None, _Base(), "what finds candidates: a tree, the trees of an ensemble or a list of them; None is two trees"
    )
    ranker: Any = parameter(None, _OfPairs(), "what orders them; None is AveragedRanker(), trained with LightGBM")
    pool: int = parameter(40, Integer(1), "candidates that the models find for a query")
    neighbours: int = parameter(50, Integer(1), "training rows that vote for their labels, the nearest to a query")
    extra: int = parameter(
        15, Integer(0), "candidates that these votes, the centres of labels and the texts of labels each add"
    )
    held_out: float = parameter(
        0.2, Real(0, above=True, most=0.9), "the share of rows that models are trained without, to train the ranker on"
    )
    rounds: int = parameter(1, Integer(1), "how often rows are held out, each time others; each takes a training more")
    ranker_rows: int = parameter(10_000, Integer(1), "the most rows that the ranker is trained on")
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "threads; -1 is all cores")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "which rows are held out")
    verbose: bool = parameter(False, Choice(True, False), "progress bars on standard error")

    def check_parameters(self) -> None:
        """Raise ParameterError if a parameter cannot be, or if what the ranker is trained with is missing."""
        super().check_parameters()
        if self.rounds * self.held_out > 1:
            raise ParameterError(
                f"rounds={self.rounds} times held_out={self.held_out} is more than 1: the last round would have no rows"
            )
        ready = getattr(AveragedRanker() if self.ranker is None else self.ranker, "ready", None)
        if ready is not None:
            ready()  # before the trees are trained, not after

    def fit(
        self,
        X: FeaturesLike,
        Y: LabelsLike,
        *,
        label_features: FeaturesLike | None = None,
        groups: ArrayLike | None = None,
        columns: int | None = None,
    ) -> Self:
        """Train the ranker on rows that are held out, and the models on all.

        Parameters
        ----------
        X, Y : as in :meth:`XRLinear.fit`
        label_features : like X, of shape (labels, ...), optional
            What is written about a label. With the columns of X, the ranker sees how much of it stands in a query.
        groups : array_like of int, shape (n,), optional
            Rows that belong together, such as parts of one document, are held out together: else the ranker sees
            neighbours that a new query will not have. Without, rows that stand side by side are, up to 20 of them: what
            comes from one source often stands together.
        columns : int, optional
            Only the first so many sparse columns of X are for trees and neighbours, such as words; those behind are
            only compared with label_features, such as characters, which find a name within a longer word.
        """
        self.check_parameters()
        features, labels = validation.training_pair(X, Y)
        return self.fit_checked(features, labels, label_features=label_features, groups=groups, columns=columns)

    def fit_checked(
        self,
        features: Features,
        labels: Csr,
        *,
        label_features: FeaturesLike | None = None,
        groups: ArrayLike | None = None,
        columns: int | None = None,
    ) -> Self:
        """The same with matrices that came through the door."""
        self.check_parameters()
        own = None if label_features is None else validation.features(label_features, "label_features")
        if own is not None and own.rows != labels.cols:
            raise InputError(f"label_features have {own.rows} rows, there are {labels.cols} labels")
        comparable = own is not None and own.widths == features.widths
        count = features.widths[0] if columns is None else _columns(columns, features.widths[0], comparable)
        rows = first(features, count)  # what is behind only matters for rows held out
        about = own if comparable else None  # those of another kind are for trees alone
        for_trees = None if own is None else (first(own, count) if comparable else own).as_given()
        ranker = self.ranker or AveragedRanker([BoostedRanker(n_jobs=self.n_jobs), NeuralRanker()])
        ranker = copy.deepcopy(ranker)
        parts, relevance = [], []
        with self._progress() as progress:
            for held in self._held_out(labels.rows, groups):
                seen = np.setdiff1d(np.arange(labels.rows), held)
                evidence = self._evidence(rows.take(seen), labels.take(seen), for_trees, about)
                some = features.take(held)
                with progress.stage("look at rows held out") as report:
                    for begin, pairs, pool in self._pairs(evidence, some, None, report):
                        at = held[begin : begin + pool.offsets.size - 1]
                        relevance.append(_relevance(pool, labels.take(at)))
                        parts.append(pairs)
            with progress.stage("train the ranker"):
                ranker.fit(Pairs.joined(parts), np.concatenate(relevance))
        self._set_learned(self._evidence(rows, labels, for_trees, about), ranker)
        return self

    def pairs(self, X: FeaturesLike, *, beam_width: int | None = None) -> tuple[Pairs, NDArray[np.int32]]:
        """What the ranker sees of some queries: the features of all pairs, and the label of each."""
        evidence, _ = self._ready()
        queries = validation.features_like(X, evidence.widths)
        pairs, pool = evidence.pairs(queries, self._asked(beam_width), threads=_core.thread_count(self.n_jobs))
        return pairs, pool.labels

    def to_saved(self, *, precision: str | None = None) -> storage.Saved:
        """What :meth:`save` writes."""
        evidence, ranker = self._ready()
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in ("base", "ranker")}
        return pack(evidence, ranker, own, precision)

    @classmethod
    def from_saved(cls, saved: storage.Saved) -> Self:
        """The model in an opened folder; what :func:`carya.load` calls."""
        evidence, ranker, own = unpack(saved)
        try:
            model = cls(list(evidence.members), ranker, **own)
            model.check_parameters()
        except (TypeError, ValueError) as error:
            raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None
        model._set_learned(evidence, ranker)
        return model

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` fails without label_features: whether a base model needs them."""
        base = self.base if isinstance(self.base, (list, tuple)) else [] if self.base is None else [self.base]
        return any(one.needs_label_features for one in base)

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` takes label_features: always, as a ranker learns from what is written about labels."""
        return True

    def _set_learned(self, evidence: Evidence, ranker: Ranker) -> None:
        self.members_ = list(evidence.members)
        self.ranker_ = ranker
        self.widths_ = evidence.widths
        self.n_features_in_ = sum(evidence.widths)
        self.n_labels_ = evidence.n_labels
        self._fitted = (evidence, ranker)  # last, in one step: other threads may be asking

    def _asked(self, beam_width: int | None) -> Asked:
        width = None if beam_width is None else validation.positive_int(beam_width, "beam_width")
        return Asked(int(self.pool), int(self.neighbours), int(self.extra), width)

    def _evidence(self, features: Features, labels: Csr, for_trees: Any, about: Features | None) -> Evidence:
        """Train fresh models, maybe with features of labels; an ensemble of them shares what it can."""
        base = Ensemble(XRLinear(n_jobs=self.n_jobs), n_trees=_TREES) if self.base is None else self.base
        # Of an ensemble only the trees count: the ranker weighs what they say.
        trees = base if isinstance(base, Ensemble) else Ensemble(_list(base))
        ensemble = Ensemble(_with_whole_beams(trees.members), n_trees=trees.n_trees)
        ensemble.fit_checked(features, labels, label_features=for_trees)
        return Evidence.of(ensemble.members_, features, labels, about, n_jobs=self.n_jobs)

    def _held_out(self, rows: int, groups: ArrayLike | None) -> list[NDArray[np.int64]]:
        """The rows held out in each round; those of a group go together."""
        each = max(1, min(int(rows * self.held_out), int(self.ranker_rows) // int(self.rounds)))
        if groups is None:
            group = np.arange(rows) // min(_RUN, max(1, each // _RUN))
        else:
            given = np.asarray(groups)
            if given.shape != (rows,):
                raise InputError(f"groups has the shape {given.shape}, X has {rows} rows")
            group = np.unique(given, return_inverse=True)[1]
        shuffled = np.random.default_rng(self.seed).permutation(int(group.max()) + 1)[group]
        order = np.argsort(shuffled, kind="stable")
        held = []
        for turn in range(int(self.rounds)):
            some = shuffled[order[turn * each : (turn + 1) * each]]
            chosen = np.flatnonzero(np.isin(shuffled, some))
            if not 0 < chosen.size < rows:
                raise InputError(f"{rows} rows in {shuffled.max() + 1} groups are too few to hold out some of them")
            held.append(chosen)
        return held

    def _pairs(
        self, evidence: Evidence, queries: Features, beam_width: int | None, report: Report
    ) -> Iterator[tuple[int, Pairs, Pool]]:
        """Block by block, where it begins, its pairs and its candidates."""
        asked, threads = self._asked(beam_width), _core.thread_count(self.n_jobs)
        for begin in range(0, queries.rows, _BLOCK):
            block = queries.take(slice(begin, begin + _BLOCK)) if queries.rows > _BLOCK else queries
            yield begin, *evidence.pairs(block, asked, threads=threads)
            if report is not None:
                report(min(begin + _BLOCK, queries.rows), queries.rows)

    def _answer(self, queries: Features, top_k: int, beam_width: int | None, min_score: float | None) -> Rankings:
        evidence, ranker = self._ready()
        count = validation.positive_int(top_k, "top_k")
        least = validation.least_score(min_score)
        lengths, labels, scores = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
        with self._progress() as progress, progress.stage("rank") as report:
            for _, pairs, pool in self._pairs(evidence, queries, beam_width, report):
                said = _scores(ranker, pairs)
                chosen, best = pool.best(said, count, least)
                lengths.append(np.diff(best.offsets))
                labels.append(best.labels)
                scores.append(said[chosen])
        return np.cumsum(np.concatenate(lengths)), np.concatenate(labels), np.concatenate(scores)


def _columns(columns: object, width: int, comparable: bool) -> int:
    """The number of columns for trees, if that can be."""
    count = validation.positive_int(columns, "columns")
    if count > width:
        raise InputError(f"columns is {count}, X has {width} sparse columns")
    if not comparable:
        raise InputError("columns needs label_features that have the columns of X")
    return count


def _scores(ranker: Ranker, pairs: Pairs) -> NDArray[np.float32]:
    """What a ranker says, which may be anybody's."""
    said = np.asarray(ranker.score(pairs), np.float32)
    if said.shape != (len(pairs),) or not np.isfinite(said).all():
        raise InputError(f"the ranker {ranker.name!r} must give a finite score for each of {len(pairs)} pairs")
    return said


def _relevance(pool: Pool, labels: Csr) -> NDArray[np.float32]:
    rows = np.repeat(np.arange(labels.rows), np.diff(labels.indptr))
    return pool.lookup(rows * labels.cols + labels.indices, np.ones(labels.indices.size, np.float32))


def _list(base: Any) -> list[XRLinear]:
    return list(base) if isinstance(base, (list, tuple)) else [base]


def _with_whole_beams(members: Any) -> Any:
    """A tree that is to be trained several times, but with its whole beam, as it is searched here."""
    if not isinstance(members, XRLinear) or members.training_beam is not None:
        return members
    return XRLinear(**(members.get_params(deep=False) | {"training_beam": members.beam_width}))
