"""Nearest neighbors as the matcher: the nearest labels (Slice), or the labels of the nearest rows (AnnexML)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import validation
from carya.core.inputs.labels import LabelNames
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterized, parameter, read_settings
from carya.core.progress import Progress, show_progress
from carya.core.rules import Choice, Either, Integer, Parsed, Real, to_python_scalar
from carya.core.storage import SavedModel, consistent_parts
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError, ParameterError
from carya.indexing.representations import normalize
from carya.matching.hnsw import require_usearch
from carya.models.base import BaseModel
from carya.models.interface import RankOptions
from carya.models.neighbors.search import NeighborQuery, NeighborRanker, TrainedNeighbors
from carya.models.neighbors.serialize import pack, unpack
from carya.models.neighbors.training import MIN_GRAPH_ITEMS, NeighborTrainer
from carya.models.restriction import filter_rankings
from carya.models.training_data import TrainingData
from carya.models.xr_linear.model import XRLinear
from carya.ranking import LinearSolver
from carya.ranking.auto_settings import AUTO, auto_C
from carya.trees.beam_search import Rankings
from carya.trees.layer import WEIGHT_DTYPE
from carya.trees.transforms import TRANSFORM_NAMES, Transform

#: Defaults chosen on held-out rows (docs/nearest-neighbors.md).
_DEFAULT_NEIGHBORS = {"labels": 100, "rows": 50}


@dataclass(eq=False, repr=False, kw_only=True)
class NearestNeighbors(BaseModel[NeighborRanker], Parameterized):
    """Model that ranks the labels suggested by the nearest neighbors of a query.

    With ``over="labels"``, each label is represented by the centroid of its rows, and the labels nearest to the query
    are ranked. With ``over="rows"``, the training rows nearest to the query vote for their labels. The suggested labels
    are then ranked by one linear ranker per label, trained on the rows for which the label is relevant or suggested.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(500, 60, seed=1)
    >>> model = carya.NearestNeighbors(n_neighbors=20).fit(X, Y)
    >>> S = model.predict(X, top_k=3)                # rows x labels, each row sorted best first
    >>> labels, scores = model.rank(X[[0]], top_k=3) # one query
    >>> bool(carya.metrics.precision(Y, S, k=1) > 0.8)
    True
    >>> by_vote = carya.NearestNeighbors(over="rows", n_neighbors=10, ranker=None).fit(X, Y)
    >>> bool(by_vote.score(X, Y) > 0.8)
    True
    """

    foreign_names: ClassVar[Mapping[str, str]] = {
        "k": "n_neighbors",
        "M": "connectivity",
        "efC": "ef_construction",
        "ef": "ef_search",
        "efS": "ef_search",
        "threads": "n_jobs",
        "beam_width": "n_neighbors",
        "cost": "C",
        "tolerance": "tol",
        "precision": "weight_dtype",
    }

    # Phases 1 and 2: the neighbors.
    over: str = parameter(
        "labels", Choice("labels", "rows"), "items to search: labels, or training rows, which vote for their labels"
    )
    n_neighbors: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        f"number of neighbors; None means {_DEFAULT_NEIGHBORS['labels']} labels or {_DEFAULT_NEIGHBORS['rows']} rows",
    )
    sharpness: float | None = parameter(
        None,
        Either(Real(0, open_low=True), Choice(None)),
        "with over=rows: votes are weighted by exp(-sharpness · (1 - cosine)); None means weighting by the cosine",
    )
    max_candidates: int = parameter(
        200, Integer(1), "with over=rows: maximum number of labels to rank; those with the most votes are kept"
    )
    representation: str = parameter(
        "pifa",
        Choice("pifa", "lf"),
        "label vectors: pifa (the centroid of the label's rows) or lf (the label_features passed to fit)",
    )
    index_features: int | None = parameter(
        384,
        Either(Integer(1), Choice(None)),
        "maximum number of sparse features per label vector with pifa; the largest are kept; None means all",
    )
    search: str = parameter(
        "auto",
        Choice("auto", "exact", "graph"),
        "search algorithm: exact, graph (HNSW for dense features; requires carya[ann]), or auto (graph for "
        f"{MIN_GRAPH_ITEMS:,} or more items with only dense features, otherwise exact)",
    )
    connectivity: int = parameter(
        16, Integer(2, 512), "HNSW: maximum number of links per node; doubled at the lowest level"
    )
    ef_construction: int = parameter(128, Integer(1), "HNSW: number of candidates for the links of a new node")
    ef_search: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "HNSW: number of candidates kept during a search; None means twice the number of neighbors",
    )

    # Phase 3: ranking.
    ranker: str | None = parameter(
        "linear", Choice("linear", None), "ranker for the suggested labels; None ranks by similarity or share of votes"
    )
    similarity_weight: float | str | None = parameter(
        None,
        Either(Real(0, open_low=True), Choice("learned", None)),
        "weight of the similarity relative to the ranker: with over=labels, scores are multiplied by "
        "exp(-similarity_weight · (1 - cosine)); with over=rows, by the share of votes raised to this power; learned "
        "selects the weight on a held-out tenth of the rows, which doubles the training time; None means learned with "
        "over=labels and 0.5 with over=rows",
    )
    loss: str = parameter("squared-hinge", Choice("squared-hinge", "hinge", "logistic"), "loss function")
    C: float | str = parameter(
        AUTO,
        Either(Choice(AUTO), Real(0, open_low=True)),
        "inverse regularization strength; auto selects a value suited to the loss (1 for squared-hinge)",
    )
    positive_weight: float = parameter(1.0, Real(0, open_low=True), "factor by which C is multiplied for positive rows")
    negative_weight: float = parameter(1.0, Real(0, open_low=True), "factor by which C is multiplied for negative rows")
    bias: float = parameter(1.0, Real(0), "value of the constant feature; 0 disables the bias")
    tol: float = parameter(
        0.005,
        Real(0),
        "stopping tolerance: a label has converged when a pass improves its objective by at most this fraction",
    )
    max_iter: int = parameter(20, Integer(1), "maximum number of passes over the rows of a label")
    threshold: float = parameter(0.1, Real(0), "threshold below which weights of sparse features are dropped")
    max_weights: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "maximum number of weights of sparse features per label; the largest are kept",
    )
    weight_dtype: str = parameter(
        "int8",
        WEIGHT_DTYPE,
        "data type of stored weights: float32 (exact), float16 (half the size) or int8 (a quarter of the size)",
    )
    transform: str = parameter(
        AUTO,
        Either(Choice(AUTO), Parsed(Transform.from_name, TRANSFORM_NAMES)),
        "transform of the ranker's raw score; auto means l3-hinge, or sigmoid for the logistic loss",
    )

    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "number of threads; -1 means all cores")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "random seed; results do not depend on n_jobs")
    verbose: bool = parameter(False, Choice(True, False), "show progress on standard error")

    def fit(
        self,
        X: FeaturesLike,
        Y: LabelsLike | None = None,
        *,
        label_names: LabelNames | None = None,
        sample_weight: ArrayLike | None = None,
        label_features: FeaturesLike | None = None,
        calibrate: bool | int = False,
    ) -> Self:
        """Index labels or rows, and train a ranker for every label.

        Parameters
        ----------
        X : sparse matrix, array_like or DataFrame of shape (n, d), a pair (sparse, dense), or Matrices
            Rows are scaled to unit norm, because neighbors are searched by cosine similarity.
        Y : sparse matrix, array_like or DataFrame of shape (n, labels), or the labels of each row
            As in :meth:`XRLinear.fit`.
        label_names : list of str, optional
            The label names, one per column of Y.
        sample_weight : array_like of shape (n,), optional
            Weights of the rows in the label centroids and in the rankers, as in :meth:`XRLinear.fit`. Requires
            ``over="labels"``.
        label_features : like X, of shape (labels, d), optional
            For ``representation="lf"``: the vector of each label in the feature space of X.
        calibrate : bool or int
            Whether to learn probabilities (:meth:`predict_proba`). For each of 3 folds, a model trained on the
            other folds ranks the rows of this fold; the final model is trained on all rows. An integer is the number
            of folds.
        """
        self.check_parameters()
        return self._fit_labeled(
            TrainingData.of(X, Y, label_names=label_names, sample_weight=sample_weight, label_features=label_features),
            calibrate=calibrate,
        )

    def fit_data(self, data: TrainingData) -> Self:
        """Train on validated data."""
        self.check_parameters()
        label_vectors = self._check_label_vectors(data)
        if data.sample_weight is not None and self.over == "rows":
            raise InputError("sample_weight requires over='labels'; with over='rows', it does not apply to votes.")
        if data.sample_weight is not None and self.ranker is None and label_vectors is not None:
            raise InputError("sample_weight is not used by representation='lf' with ranker=None. Omit it.")
        with show_progress(self.verbose) as progress:
            trainer = self._trainer(progress)
            features, labels = normalize(data.features), data.labels.with_values(1)
            self.set_fitted(trainer.train(features, labels, label_vectors, data.sample_weight))
        self.set_feature_names(data.feature_names)
        return self

    def check_parameters(self) -> None:
        """Raise ParameterError for the first invalid parameter or combination."""
        super().check_parameters()
        if self.over == "rows" and self.representation != "pifa":
            raise ParameterError("representation='lf' requires over='labels'.")
        multiplies_votes = self.over == "rows" and self.ranker is not None
        if multiplies_votes and not Transform.from_name(self.effective_transform).is_multiplicative:
            raise ParameterError(
                "over='rows' multiplies scores by votes and requires transform='sigmoid' or 'l<p>-hinge', got "
                f"transform={self.transform!r}."
            )

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if search='graph' and usearch is not installed."""
        if self.search == "graph":
            require_usearch()

    def _score_pairs(self, state: NeighborRanker, queries: Features, pairs: Csr) -> NDArray[np.float32]:
        if not state.scores_any_label:
            raise InputError("predict_selected requires over='labels'; over='rows' scores only labels with votes.")
        return state.score_pairs(queries, pairs, threads=_core.thread_count(self.n_jobs))

    def _copy_with_transform(self, state: NeighborRanker, transform: str | Sequence[str]) -> Self:
        if state.trained.ranker is None:
            raise InputError("The transform cannot be changed, because ranker=None does not use one.")
        model = self.clone(transform=transform)
        model.check_parameters()
        model.set_fitted(state.trained.with_transform(model.effective_transform))
        model.set_feature_names(self._feature_names())
        return model

    def _copy_with_labels(self, state: NeighborRanker, labels: NDArray[np.int32]) -> Self:
        model = self.clone(C=self.effective_C, transform=self.effective_transform)
        model.set_fitted(state.trained.subset(labels, threads=_core.thread_count(self.n_jobs)))
        model.set_feature_names(self._feature_names())
        return model

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        resolved = {"C": self.effective_C, "transform": self.effective_transform}
        trained, parameters = self._check_fitted().trained, self.get_params() | resolved
        if weight_dtype is not None:
            trained = trained.with_weight_dtype(weight_dtype, threads=_core.thread_count(self.n_jobs))
            parameters |= {"weight_dtype": weight_dtype}
        return self._with_feature_names(pack(trained, parameters))

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore a model from an opened folder; called by :func:`carya.load`."""
        trained = unpack(saved)
        with consistent_parts():
            model = cls.from_saved_parameters(saved.parameters)
            if (model.over == "rows") != (trained.labels is not None):
                raise InputError(f"over={model.over!r} does not match the saved index.")
            model.set_fitted(trained)
            model._restore_feature_names(saved)
            return model

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that are not neighbors; true only with over='labels'."""
        return self._state.scores_any_label if self.__sklearn_is_fitted__() else self.over == "labels"

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` requires `label_features`."""
        return self.representation == "lf"

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` accepts `label_features`."""
        return self.needs_label_features

    def __getstate__(self) -> dict[str, Any]:
        # Pickling is used for copies and for scikit-learn's worker processes. To store a model, use `save`: unlike
        # pickles, saved models are safe to open.
        state = dict(self.__dict__)
        if "_state" in state:
            state["_state"] = self.to_saved()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_state" in state:
            self.set_fitted(unpack(state["_state"]))

    @property
    def effective_C(self) -> float:  # noqa: N802 - named like the parameter
        """The value of C, or the value selected by ``C="auto"``."""
        return auto_C(str(self.loss)) if isinstance(self.C, str) else self.C

    @property
    def effective_transform(self) -> str:
        """The transform, or the one selected by ``transform="auto"``."""
        if self.transform != AUTO:
            return self.transform
        return "sigmoid" if self.loss == "logistic" else "l3-hinge"

    def set_fitted(self, trained: TrainedNeighbors) -> None:
        """Set the fitted state."""
        self.similarity_weight_ = trained.similarity_weight
        self.transform_ = None if trained.ranker is None else trained.ranker.transform.name
        self.C_ = self.effective_C
        # assigned last, because other threads may be ranking
        self._state = NeighborRanker(trained, n_neighbors=self._count())

    def _count(self) -> int:
        return int(_DEFAULT_NEIGHBORS[self.over] if self.n_neighbors is None else self.n_neighbors)

    def _trainer(self, progress: Progress) -> NeighborTrainer:
        return read_settings(
            NeighborTrainer,
            self,
            n_neighbors=self._count(),
            transform=self.effective_transform,
            solver=read_settings(
                LinearSolver,
                self,
                C=self.effective_C,
                penalty=XRLinear.penalty,
                threshold_by=XRLinear.threshold_by,
                use_target_costs=False,
            ),
            threads=_core.thread_count(self.n_jobs),
            progress=progress,
        )

    def _check_label_vectors(self, data: TrainingData) -> Features | None:
        if self.representation != "lf":
            if data.label_features is not None:
                raise InputError(
                    "label_features is not used by representation='pifa'. Omit it, or use representation='lf'."
                )
            return None
        if data.label_features is None:
            raise InputError("representation='lf' requires label features. Pass label_features to fit.")
        return normalize(validation.check_label_features(data.label_features, data.labels.cols, data.features.widths))

    def _rank_queries(self, state: NeighborRanker, queries: Features, options: RankOptions) -> Rankings:
        if options.labels is None or state.scores_any_label:
            return super()._rank_queries(state, queries, options)
        all_labels = options._replace(top_k=state.n_labels, labels=None)
        complete = self._search(state, queries, all_labels, max_candidates=state.n_labels)
        return filter_rankings(complete, options.labels, top_k=options.top_k)

    def _rank_batch(self, state: NeighborRanker, queries: Features, options: RankOptions) -> Rankings:
        return self._search(state, queries, options, max_candidates=int(self.max_candidates))

    def _search(
        self, state: NeighborRanker, queries: Features, options: RankOptions, *, max_candidates: int
    ) -> Rankings:
        query = NeighborQuery(
            top_k=options.top_k,
            n_neighbors=self._count() if options.beam_width is None else options.beam_width,
            max_candidates=max_candidates,
            sharpness=to_python_scalar(self.sharpness),
            ef_search=to_python_scalar(self.ef_search),
            min_score=options.min_score,
        )
        with show_progress(self.verbose) as progress, progress.stage("rank") as report:
            return state.predict(queries, query, threads=_core.thread_count(self.n_jobs), report=report)
