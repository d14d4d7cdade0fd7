"""Nearest neighbours as the matcher: near labels (Slice), or the labels of near rows (AnnexML), ranked linearly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterised, parameter
from carya.core.rules import Choice, Either, Integer, Parsed, Real, plain
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError, ModelFormatError, ParameterError
from carya.indexing.representations import unit
from carya.models.base import Rankings, Verbs
from carya.models.neighbors.search import NeighbourSearch, Parts, Question
from carya.models.neighbors.serialize import pack, unpack
from carya.models.neighbors.training import FEW_ITEMS, NeighbourTrainer
from carya.models.xr_linear.model import XRLinear
from carya.ranking import LinearRanker
from carya.trees.layer import PRECISIONS
from carya.trees.transforms import NAMES as TRANSFORMS
from carya.trees.transforms import Transform

#: What is looked at where nothing else is said, chosen on held-out rows (docs/neighbours.md).
_NEIGHBOURS = {"labels": 100, "rows": 50}


@dataclass(eq=False, repr=False, kw_only=True)
class NearestNeighbours(Verbs[NeighbourSearch], Parameterised):
    """Ranks the labels that the nearest neighbours of a query suggest.

    Over labels, a label is where the rows that have it are (its centroid), and the labels nearest to the query are
    ranked. Over rows, the training rows nearest to the query vote for their labels. What is suggested is ranked by a
    linear ranker a label, trained on the rows it is suggested for.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(500, 60, seed=1)
    >>> model = carya.NearestNeighbours(neighbours=20).fit(X, Y)
    >>> S = model.predict(X, top_k=3)                # rows x labels, each row sorted best first
    >>> labels, scores = model.rank(X[[0]], top_k=3) # one query
    >>> bool(carya.metrics.precision(Y, S, k=1) > 0.8)
    True
    >>> by_vote = carya.NearestNeighbours(over="rows", neighbours=10, ranker=None).fit(X, Y)
    >>> bool(by_vote.score(X, Y) > 0.8)
    True
    """

    names_elsewhere: ClassVar[Mapping[str, str]] = {
        "n_neighbors": "neighbours",
        "k": "neighbours",
        "M": "connectivity",
        "ef_construction": "build_width",
        "efC": "build_width",
        "ef": "search_width",
        "efS": "search_width",
        "random_state": "seed",
        "threads": "n_jobs",
        "beam_width": "neighbours",
    }

    # Phases 1 and 2: what is near.
    over: str = parameter("labels", Choice("labels", "rows"), "what neighbours are: labels, or training rows that vote")
    neighbours: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        f"labels that are shortlisted, or rows that vote; None is {_NEIGHBOURS['labels']} labels or "
        f"{_NEIGHBOURS['rows']} rows",
    )
    sharpness: float | None = parameter(
        None,
        Either(Real(0, above=True), Choice(None)),
        "over rows: a neighbour's vote is exp(-sharpness · (1 - cosine)), so that the nearest count more; None is the "
        "cosine itself",
    )
    candidates: int = parameter(200, Integer(1), "over rows: the most labels that are ranked, those of the most votes")
    representation: str = parameter(
        "pifa", Choice("pifa", "lf"), "where labels are: pifa, amid their rows; lf, at the label_features given to fit"
    )
    index_features: int | None = parameter(
        384, Either(Integer(1), Choice(None)), "how many sparse features a label has in pifa, the largest; None is all"
    )
    search: str = parameter(
        "auto",
        Choice("auto", "exact", "graph"),
        f"how neighbours are found: exact; graph, for dense features, needs carya[ann]; auto is graph for dense "
        f"features of {FEW_ITEMS:,} items or more",
    )
    connectivity: int = parameter(16, Integer(2, 512), "links of a node of the graph; below, twice as many")
    build_width: int = parameter(128, Integer(1), "candidates for the links of a new node of the graph")
    search_width: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "candidates while the graph is walked; None is twice the neighbours"
    )

    # Phase 3: ranking.
    ranker: str | None = parameter(
        "linear", Choice("linear", None), "what ranks the suggestions; None leaves them in the order of similarity"
    )
    similarity: float | str | None = parameter(
        None,
        Either(Real(0, above=True), Choice("learned", None)),
        "how much similarity counts beside the ranker: over labels scores are multiplied with exp(-similarity · (1 - "
        "cosine)), over rows with the share of votes to that power; learned finds it on a tenth of the rows, and takes "
        "twice as long to train; None is learned over labels, 0.5 over rows",
    )
    loss: str = parameter("squared-hinge", Choice("squared-hinge", "hinge", "logistic"), "the loss of the rankers")
    cost: float = parameter(1.0, Real(0, above=True), "C, the weight of the loss against regularisation")
    positive_cost: float = parameter(1.0, Real(0, above=True), "a factor of C for positives")
    negative_cost: float = parameter(1.0, Real(0, above=True), "a factor of C for negatives")
    bias: float = parameter(1.0, Real(0), "the value of a constant feature; 0 is none")
    tolerance: float = parameter(
        0.005, Real(0), "a label is solved when a pass over its rows gains less than this share of all gained so far"
    )
    max_passes: int = parameter(20, Integer(1), "the most passes over a label's rows")
    threshold: float = parameter(0.1, Real(0), "smaller weights of sparse features are dropped")
    max_weights: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "the most weights of sparse features a label keeps, the largest"
    )
    precision: str = parameter(
        "int8", Choice(*PRECISIONS), "how sparse weights are kept: float32 is exact, float16 takes half, int8 a quarter"
    )
    transform: str = parameter("l3-hinge", Parsed(Transform.named, TRANSFORMS), "what becomes of a ranker's raw score")

    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "threads; -1 is all cores")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "same seed, same model, whatever n_jobs")
    verbose: bool = parameter(False, Choice(True, False), "progress bars on standard error")

    def fit(self, X: FeaturesLike, Y: LabelsLike, *, label_features: FeaturesLike | None = None) -> Self:
        """Index labels or rows, and train a ranker for every label.

        Parameters
        ----------
        X : sparse matrix or array_like of shape (n, d), or a pair (sparse, dense) of them
            Rows are scaled to length 1, as what is near is a matter of angles.
        Y : sparse matrix or array_like of shape (n, labels)
            Above 0 where a row has a label.
        label_features : like X, of shape (labels, d), optional
            For ``representation="lf"``: a point for each label in the space of X.
        """
        self.check_parameters()
        features, labels = validation.training_pair(X, Y)
        return self.fit_checked(features, labels, label_features=label_features)

    def fit_checked(self, features: Features, labels: Csr, *, label_features: FeaturesLike | None = None) -> Self:
        """The same with matrices that came through the door."""
        self.check_parameters()
        self._check_combination()
        threads = _core.thread_count(self.n_jobs)
        own = self._own_features(label_features, features.widths, labels.cols)
        with self._progress() as progress:
            parts = self._trainer().train(
                unit(features), labels.with_values(1), own, threads=threads, progress=progress
            )
        self._set_learned(parts)
        return self

    def predict_selected(self, X: FeaturesLike, candidates: LabelsLike) -> sp.csr_array:
        """The scores of given (row, label) pairs only, whether they are neighbours or not; not over rows.

        Parameters
        ----------
        candidates : sparse matrix or array_like of shape (n, labels)
            Which pairs: the entries of a sparse matrix whatever their values, what is not 0 in an array. The result has
            the same entries.
        """
        search = self._ready()
        if search.parts.labels is not None:
            raise InputError("over='rows' scores only what neighbours vote for: predict_selected needs over='labels'")
        queries = validation.features_like(X, search.parts.widths)
        wanted = validation.candidates(candidates, queries.rows, search.parts.n_labels)
        scores = search.selected(queries, wanted, threads=_core.thread_count(self.n_jobs))
        return sp.csr_array((scores, wanted.indices, wanted.indptr), shape=(wanted.rows, wanted.cols))

    def to_saved(self, *, precision: str | None = None) -> storage.Saved:
        """What :meth:`save` writes."""
        parts, parameters = self._ready().parts, self.get_params()
        if precision is not None:
            if precision not in PRECISIONS:
                raise ParameterError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, got {precision!r}")
            parts = parts.with_precision(precision, threads=_core.thread_count(self.n_jobs))
            parameters |= {"precision": precision}
        return pack(parts, parameters)

    @classmethod
    def from_saved(cls, saved: storage.Saved) -> Self:
        """The model in an opened folder; what :func:`carya.load` calls."""
        parts, parameters = unpack(saved)
        try:
            model = cls(**parameters)
            model.check_parameters()
            if (model.over == "rows") != (parts.labels is not None):
                raise InputError(f"over={model.over!r} is not what was saved")
            model._set_learned(parts)
        except ModelFormatError:
            raise
        except (TypeError, ValueError) as error:
            raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None
        return model

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` fails without label_features: whether labels are placed at them."""
        return self.representation == "lf"

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` takes label_features."""
        return self.needs_label_features

    def __getstate__(self) -> dict[str, Any]:
        # For copies and for scikit-learn's worker processes; models are kept with save, which needs no trust to open.
        state = dict(self.__dict__)
        if "_fitted" in state:
            state["_fitted"] = self.to_saved()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_fitted" in state:
            self._set_learned(unpack(state["_fitted"])[0])

    def _set_learned(self, parts: Parts) -> None:
        self.n_labels_ = parts.n_labels
        self.similarity_ = parts.similarity
        self.widths_ = parts.widths
        self.n_features_in_ = sum(parts.widths)
        self._fitted = NeighbourSearch(parts, neighbours=self._count())  # last: other threads may be asking

    def _count(self) -> int:
        return int(_NEIGHBOURS[self.over] if self.neighbours is None else self.neighbours)

    def _trainer(self) -> NeighbourTrainer:
        own = {field.name for field in dataclasses.fields(NeighbourTrainer)} - {"neighbours", "rankers"}
        shared = {field.name for field in dataclasses.fields(LinearRanker)} - {"own_costs"}
        # What is no parameter here is as XRLinear has it unless told otherwise.
        of_rankers = {name: plain(getattr(self if hasattr(self, name) else XRLinear, name)) for name in shared}
        rankers = LinearRanker(own_costs=False, **of_rankers)
        settings = {name: plain(getattr(self, name)) for name in own}
        return NeighbourTrainer(neighbours=self._count(), rankers=rankers, **settings)

    def _question(self, top_k: int, beam_width: int | None, min_score: float | None) -> Question:
        return Question(
            top_k=validation.positive_int(top_k, "top_k"),
            neighbours=self._count() if beam_width is None else validation.positive_int(beam_width, "beam_width"),
            candidates=int(self.candidates),
            sharpness=plain(self.sharpness),
            search_width=plain(self.search_width),
            min_score=validation.least_score(min_score),
        )

    def _check_combination(self) -> None:
        if self.over == "rows" and self.representation != "pifa":
            raise ParameterError("representation='lf' is for over='labels': rows are where they are")
        if self.over == "rows" and self.ranker is not None and not Transform.named(self.transform).multiplies:
            raise ParameterError(
                f"transform={self.transform!r} gives scores below 0, which votes cannot be multiplied with; with "
                "over='rows' it must be "
                "'sigmoid' or 'l<p>-hinge'"
            )

    def _own_features(
        self, label_features: FeaturesLike | None, widths: tuple[int, int], n_labels: int
    ) -> Features | None:
        if self.representation != "lf":
            if label_features is not None:
                raise InputError("label_features are given but representation is 'pifa': they would not be used")
            return None
        if label_features is None:
            raise InputError("representation='lf' needs label_features in fit")
        own = validation.features_like(label_features, widths, "label_features")
        if own.rows != n_labels:
            raise InputError(f"label_features has {own.rows} rows, there are {n_labels} labels")
        return unit(own)

    def _answer(self, queries: Features, top_k: int, beam_width: int | None, min_score: float | None) -> Rankings:
        question = self._question(top_k, beam_width, min_score)
        threads = _core.thread_count(self.n_jobs)
        with self._progress() as progress, progress.stage("rank") as report:
            return self._ready().predict(queries, question, threads=threads, report=report)
