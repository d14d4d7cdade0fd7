"""Reranking: trees and nearest neighbors retrieve candidates, and a reranker ranks them using additional features."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import validation
from carya.core.inputs.labels import LabelNames
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterized, parameter
from carya.core.progress import Report, show_progress
from carya.core.rules import Choice, Either, Integer, Real, Rule
from carya.core.storage import SavedModel, consistent_parts
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError, ParameterError
from carya.models.base import BaseModel, check_tree
from carya.models.ensemble.model import Ensemble
from carya.models.interface import RankOptions
from carya.models.reranked.column_views import first_columns
from carya.models.reranked.features import CandidateFeatures, CandidateSettings
from carya.models.reranked.serialize import pack, unpack
from carya.models.restriction import filter_rankings
from carya.models.training_data import TrainingData
from carya.models.xr_linear.model import XRLinear
from carya.ranking.averaged import AveragedRanker
from carya.ranking.boosted import BoostedRanker
from carya.ranking.candidates import Candidates
from carya.ranking.neural import NeuralRanker
from carya.ranking.pairs import Pairs
from carya.ranking.ranker import Ranker, checked_scores
from carya.ranking.tasks.engine import Engine
from carya.trees.beam_search import Rankings
from carya.trees.label_tree import LabelTree

_DEFAULT_TREES = 2
_DEFAULT_ROUNDS = 100  # boosting iterations
_RUN = 20  # maximum length of the runs of consecutive rows that are held out together, and minimum number of runs
_BLOCK = 1024  # number of queries whose pairs are kept in memory at a time


class _Base(Rule):
    """Rule that allows the base models, which retrieve candidates."""

    text = "an XRLinear model, an Ensemble of XRLinear models, a non-empty list of XRLinear models, or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is a valid model or list of models."""
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(isinstance(model, XRLinear) for model in value)
        if isinstance(value, Ensemble):
            return self.allows(value.members)
        return value is None or isinstance(value, XRLinear)


class _Reranker(Rule):
    """Rule that allows a reranker."""

    text = "a Ranker (an object with name, fit, score, to_saved and from_saved) or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is a ranker or None."""
        return value is None or (isinstance(value, Ranker) and not isinstance(value, type))


class _RerankedState(NamedTuple):
    features: CandidateFeatures
    ranker: Ranker

    @property
    def widths(self) -> tuple[int, int]:
        return self.features.widths

    @property
    def n_labels(self) -> int:
        return self.features.n_labels


@dataclass(eq=False, repr=False)
class Reranked(BaseModel[_RerankedState], Parameterized):
    """A two-stage model: trees and nearest neighbors retrieve candidates, and a reranker ranks them.

    The reranker is trained on held-out rows, so it learns how reliable the scores of the first stage are.

    Examples
    --------
    >>> import carya
    >>> from carya.ranking import NeuralRanker
    >>> X, Y = carya.data.make_world(600, 60, seed=1)
    >>> model = carya.Reranked(carya.XRLinear(max_leaf_size=10), NeuralRanker()).fit(X[:500], Y[:500])
    >>> S = model.predict(X[500:], top_k=3)
    >>> labels, scores = model.rank(X[[500]], top_k=3)
    >>> len(labels)
    3
    """

    _restricts_labels: ClassVar[bool] = True

    base: Any = parameter(
        None,
        _Base(),
        "models that retrieve candidates: an XRLinear model, an Ensemble of XRLinear models or a list of XRLinear "
        "models; None means an Ensemble of two XRLinear models",
    )
    ranker: Any = parameter(
        None,
        _Reranker(),
        "the reranker; None means the average of a BoostedRanker and a NeuralRanker, which requires LightGBM",
    )
    pool_size: int = parameter(40, Integer(1), "number of candidates per query from the trees")
    n_neighbors: int = parameter(50, Integer(1), "number of nearest training rows that vote for their labels")
    extra_candidates: int = parameter(
        15,
        Integer(0),
        "number of additional candidates per source (votes, label centroids and label names)",
    )
    validation_fraction: float = parameter(
        0.2, Real(0, 0.9, open_low=True), "fraction of held-out rows per round, on which the reranker is trained"
    )
    n_rounds: int = parameter(
        1, Integer(1), "number of rounds with different held-out rows; each round trains all base models"
    )
    max_ranker_rows: int = parameter(10_000, Integer(1), "maximum number of rows on which the reranker is trained")
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "number of threads; -1 means all cores")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "random seed for choosing the held-out rows")
    verbose: bool = parameter(False, Choice(True, False), "show progress on standard error")

    def check_parameters(self) -> None:
        """Raise ParameterError for the first invalid parameter or combination, including those of the base models."""
        super().check_parameters()
        if self.n_rounds * self.validation_fraction > 1:
            raise ParameterError(
                f"n_rounds * validation_fraction must be <= 1, got {self.n_rounds} * {self.validation_fraction}."
            )
        if getattr(self.ranker, "needs_texts", False):
            raise ParameterError(
                f"The ranker {type(self.ranker).__name__} reads texts, but Reranked models accept only features. Use "
                "carya.TextReranker."
            )
        for model in self._base_models():
            model.check_parameters()

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if the reranker requires an optional package that is not installed."""
        ranker = AveragedRanker() if self.ranker is None else self.ranker
        if isinstance(ranker, Parameterized):  # user-defined rankers need not have this method
            ranker.check_dependencies()

    def fit(
        self,
        X: FeaturesLike,
        Y: LabelsLike | None = None,
        *,
        label_names: LabelNames | None = None,
        sample_weight: ArrayLike | None = None,
        label_features: FeaturesLike | None = None,
        label_graph: LabelsLike | None = None,
        shortlist: LabelsLike | None = None,
        tree: LabelTree | None = None,
        groups: ArrayLike | None = None,
        name_columns: int | None = None,
        engine: Engine | None = None,
        calibrate: bool | int = False,
    ) -> Self:
        """Train the reranker on held-out rows, and the base models on all rows.

        Parameters
        ----------
        X, Y, label_names : as in :meth:`XRLinear.fit`
        sample_weight : array_like of shape (n,), optional
            Weights of the rows in the base models, as in :meth:`XRLinear.fit`. The held-out rows, on which the reranker
            is trained, have equal weights, and so do the votes of neighbors. Rows with weight 0 are removed.
        label_features : like X, of shape (labels, ...), optional
            Features of the labels' names or descriptions. If they have the same columns as X, the similarity between
            names and queries becomes a feature of the reranker.
        label_graph, shortlist, tree : optional
            For the base models; see :meth:`XRLinear.fit` and :meth:`Ensemble.fit`.
        groups : array_like of int, shape (n,), optional
            Rows in the same group, such as parts of one document, are held out together; otherwise, near-duplicates of
            the held-out rows would remain among the neighbors, which is not the case for new queries. By default, up to
            20 consecutive rows are held out together, because rows from the same source are often adjacent.
        name_columns : int, optional
            Number of sparse columns at the end of X that are used only for comparisons with label_features, such as the
            columns of character n-grams, which match names within longer words. Trees and neighbors use only the other
            columns.
        engine : RayEngine, optional
            The engine that trains the trees; see :meth:`XRLinear.fit`.
        calibrate : bool or int
            Whether to learn probabilities (:meth:`predict_proba`). For each of 3 folds, a model trained on the
            other folds ranks the rows of this fold; the final model is trained on all rows. An integer is the number
            of folds.
        """
        self.check_parameters()
        return self._fit_labeled(
            TrainingData.of(
                X,
                Y,
                label_names=label_names,
                sample_weight=sample_weight,
                label_features=label_features,
                label_graph=label_graph,
                shortlist=shortlist,
                tree=check_tree(tree),
                groups=groups,
                name_columns=name_columns,
                engine=engine,
            ),
            calibrate=calibrate,
        )

    def fit_data(self, data: TrainingData) -> Self:
        """Train on validated data."""
        self.check_parameters()
        self.check_dependencies()  # checked before the trees are trained
        features, labels = data.features, data.labels
        own = None
        if data.label_features is not None:
            own = validation.check_label_features(data.label_features, labels.cols)
        comparable = own is not None and own.widths == features.widths
        n_columns = features.widths[0] - _check_name_columns(data.name_columns, features.widths[0], comparable)
        rows = first_columns(features, n_columns)  # the other columns are used only for comparisons with label names
        tree_label_features = None
        if own is not None:
            tree_label_features = (first_columns(own, n_columns) if comparable else own).to_input()
        names = own if comparable else None  # label features with different columns are used only by the trees
        tree_data = replace(
            data, features=rows, label_features=tree_label_features, groups=None, name_columns=None, feature_names=None
        )

        def train(train_data: TrainingData) -> CandidateFeatures:
            members = self._train_trees(train_data)
            return CandidateFeatures.of(members, train_data.features, train_data.labels, names, n_jobs=self.n_jobs)

        ranker = self.ranker
        if ranker is None:
            boosted = BoostedRanker(n_estimators=_DEFAULT_ROUNDS, negative_fraction=0.5, n_jobs=self.n_jobs)
            ranker = AveragedRanker([boosted, NeuralRanker()])
        ranker = copy.deepcopy(ranker)
        pairs, relevance = [], []
        with show_progress(self.verbose) as progress:
            for held_out in self._held_out_rows(labels.rows, data.groups):
                train_rows = np.setdiff1d(np.arange(labels.rows), held_out)
                candidate_features = train(tree_data.take(train_rows))
                queries = features.take(held_out)
                with progress.stage("rank held-out rows") as report:
                    for begin, block_pairs, candidates in self._compute_blocks(
                        candidate_features, queries, self._candidate_settings(None), report
                    ):
                        block = held_out[begin : begin + candidates.offsets.size - 1]
                        relevance.append(_relevance(candidates, labels.take(block)))
                        pairs.append(block_pairs)
            with progress.stage("train reranker"):
                ranker.fit(Pairs.concatenate(pairs), np.concatenate(relevance))
        self.set_fitted(train(tree_data), ranker)
        self.set_feature_names(data.feature_names)
        return self

    def pairs(self, X: FeaturesLike, *, beam_width: int | None = None) -> tuple[Pairs, NDArray[np.int32]]:
        """Return the reranker's input for the given queries: the features of all pairs, and the label of each pair."""
        state = self._check_fitted()
        features, queries = state.features, self._check_queries(state, X)
        width = None if beam_width is None else validation.check_positive_int(beam_width, "beam_width")
        settings = self._candidate_settings(width)
        pairs, candidates = features.compute(queries, settings, threads=_core.thread_count(self.n_jobs))
        return pairs, candidates.labels

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        features, ranker = self._check_fitted()
        parameters = self.get_params(deep=False)
        own = {name: value for name, value in parameters.items() if name not in ("base", "ranker")}
        return self._with_feature_names(pack(features, ranker, own, weight_dtype))

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore a model from an opened folder; called by :func:`carya.load`."""
        features, ranker, parameters = unpack(saved)
        with consistent_parts():
            model = cls.from_saved_parameters(parameters | {"base": list(features.members), "ranker": ranker})
            model.set_fitted(features, ranker)
            model._restore_feature_names(saved)
            return model

    @property
    def needs_label_features(self) -> bool:
        """Whether any base model requires `label_features` in `fit`."""
        return any(model.needs_label_features for model in self._base_models())

    @property
    def ranks_unseen_labels(self) -> bool:
        """Whether labels without training rows are candidates if their names are similar to the query."""
        return self.extra_candidates > 0

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` accepts `label_features`; always true, because the reranker compares them with queries."""
        return True

    @property
    def uses_label_graph(self) -> bool:
        """Whether any base model accepts `label_graph` in `fit`."""
        return any(model.uses_label_graph for model in self._base_models())

    @property
    def uses_shortlist(self) -> bool:
        """Whether any base model accepts `shortlist` in `fit`."""
        return any(model.uses_shortlist for model in self._base_models())

    @property
    def uses_tree(self) -> bool:
        """Whether any base model accepts a tree in `fit`."""
        return self.base is None or any(model.uses_tree for model in self._base_models())

    @property
    def uses_engine(self) -> bool:
        """Whether an engine can train a base model on other machines."""
        return self.base is None or any(model.uses_engine for model in self._base_models())

    def _tree_row(self, row: Features, tree: XRLinear) -> Features:
        return first_columns(row, tree.widths_[0])

    def _base_models(self) -> list[Any]:
        if self.base is None:
            return []
        return list(self.base) if isinstance(self.base, (list, tuple)) else [self.base]

    def set_fitted(self, features: CandidateFeatures, ranker: Ranker) -> None:
        """Set the fitted state."""
        self.members_ = list(features.members)
        self.ranker_ = ranker
        # assigned last and atomically, because other threads may be ranking
        self._state = _RerankedState(features, ranker)

    def _candidate_settings(self, beam_width: int | None) -> CandidateSettings:
        return CandidateSettings(int(self.pool_size), int(self.n_neighbors), int(self.extra_candidates), beam_width)

    def _train_trees(self, data: TrainingData) -> list[XRLinear]:
        """Train the trees; an ensemble is replaced by its trees, because the reranker itself combines their scores."""
        if self.base is None:
            ensemble = Ensemble(XRLinear(n_jobs=self.n_jobs), n_trees=_DEFAULT_TREES)
        elif isinstance(self.base, Ensemble):
            ensemble = self.base
        else:
            ensemble = Ensemble(self._base_models())
        trained = Ensemble(_with_full_beam(ensemble.members), n_trees=ensemble.n_trees).fit_data(data)
        members: list[XRLinear] = trained.members_
        return members

    def _held_out_rows(self, rows: int, groups: ArrayLike | None) -> list[NDArray[np.int64]]:
        """Return the held-out rows of each round; rows in the same group are held out together."""
        per_round = max(1, min(int(rows * self.validation_fraction), int(self.max_ranker_rows) // int(self.n_rounds)))
        if groups is None:
            group = np.arange(rows) // min(_RUN, max(1, per_round // _RUN))
        else:
            array = np.asarray(groups)
            if array.shape != (rows,):
                raise InputError(f"groups must have shape ({rows},), one entry per row of X, got {array.shape}.")
            group = np.unique(array, return_inverse=True)[1]
            if group.max(initial=0) == 0:
                raise InputError("groups has a single distinct value. At least 2 are required to hold out rows.")
        shuffled = np.random.default_rng(self.seed).permutation(int(group.max()) + 1)[group]
        order = np.argsort(shuffled, kind="stable")
        rounds = []
        for number in range(int(self.n_rounds)):
            groups_of_round = shuffled[order[number * per_round : (number + 1) * per_round]]
            held_out = np.flatnonzero(np.isin(shuffled, groups_of_round))
            if not 0 < held_out.size < rows:
                raise InputError(
                    f"X has {rows} rows in {shuffled.max() + 1} groups, too few for {self.n_rounds} rounds of held-out "
                    "rows. Use more rows or a smaller n_rounds."
                )
            rounds.append(held_out)
        return rounds

    def _compute_blocks(
        self, features: CandidateFeatures, queries: Features, settings: CandidateSettings, report: Report
    ) -> Iterator[tuple[int, Pairs, Candidates]]:
        """Yield the index of the first query, the pairs and the candidates for each block of queries."""
        threads = _core.thread_count(self.n_jobs)
        for begin in range(0, queries.rows, _BLOCK):
            block = queries.take(slice(begin, begin + _BLOCK)) if queries.rows > _BLOCK else queries
            yield begin, *features.compute(block, settings, threads=threads)
            if report is not None:
                report(min(begin + _BLOCK, queries.rows), queries.rows)

    def _rank_batch(self, state: _RerankedState, queries: Features, options: RankOptions) -> Rankings:
        features, ranker = state
        lengths, labels, scores = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
        with show_progress(self.verbose) as progress, progress.stage("rank") as report:
            settings = self._candidate_settings(options.beam_width)
            if options.labels is not None:
                settings = replace(settings, pool_size=max(settings.pool_size, options.top_k), labels=options.labels)
            top_k = options.top_k if options.labels is None else state.n_labels
            for _, pairs, candidates in self._compute_blocks(features, queries, settings, report):
                block_scores = checked_scores(ranker, pairs)
                selected, best = candidates.best(block_scores, top_k, options.min_score)
                lengths.append(np.diff(best.offsets))
                labels.append(best.labels)
                scores.append(block_scores[selected])
        rankings = np.cumsum(np.concatenate(lengths)), np.concatenate(labels), np.concatenate(scores)
        return rankings if options.labels is None else filter_rankings(rankings, options.labels, top_k=options.top_k)


def _check_name_columns(name_columns: object, width: int, comparable: bool) -> int:
    """Validate `name_columns`; return the number of columns that are used only for comparisons with label names."""
    if name_columns is None:
        return 0
    count = validation.check_positive_int(name_columns, "name_columns")
    if count >= width:
        raise InputError(f"name_columns must be less than the number of sparse columns of X ({width}), got {count}.")
    if not comparable:
        raise InputError("name_columns requires label_features with the same columns as X.")
    return count


def _relevance(candidates: Candidates, labels: Csr) -> NDArray[np.float32]:
    rows = np.repeat(np.arange(labels.rows), np.diff(labels.indptr))
    return candidates.lookup(rows * labels.cols + labels.indices, np.ones(labels.indices.size, np.float32))


def _with_full_beam(members: Any) -> Any:
    """Return a copy of a tree that is trained with its full beam width, because it is also searched with this width."""
    if not isinstance(members, XRLinear) or members.training_beam_width is not None:
        return members
    return members.clone(training_beam_width=members.beam_width)
