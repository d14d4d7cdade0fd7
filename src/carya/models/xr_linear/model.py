"""XR-Linear (section 3 of the paper): the three phases applied recursively, with linear rankers at every level."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import validation
from carya.core.inputs.labels import LabelNames
from carya.core.matrices import Csr, Features
from carya.core.memory import SIZE_TEXT, parse_size
from carya.core.parameters import Parameterized, parameter, read_settings, to_python
from carya.core.progress import show_progress
from carya.core.rules import Choice, Either, Instance, Integer, Parsed, PerLayer, Real, expand_per_layer, to_sequence
from carya.core.storage import SavedModel, consistent_parts
from carya.core.validation import FeaturesLike, LabelsLike, QueryArrays
from carya.errors import InputError, ParameterError
from carya.indexing.indexer import REPRESENTATIONS
from carya.indexing.representations import GRAPH_DIMENSIONS, SPECTRAL_DIMENSIONS
from carya.matching.negatives import NEGATIVES_NAMES, Negatives
from carya.models.base import BaseModel, select_tree
from carya.models.interface import RankOptions
from carya.models.new_labels import NewLabels
from carya.models.restriction import check_label_subset
from carya.models.training_data import TrainingData
from carya.models.xr_linear.explanation import Explanation, explain
from carya.models.xr_linear.label_insertion import insert_labels
from carya.models.xr_linear.serialize import pack, unpack
from carya.models.xr_linear.training import train_trees
from carya.ranking import LinearSolver
from carya.ranking.auto_settings import AUTO, auto_C, auto_transform
from carya.ranking.tasks.engine import Engine
from carya.trees.beam_search import BeamSearcher, Rankings
from carya.trees.label_tree import LabelTree
from carya.trees.layer import WEIGHT_DTYPE
from carya.trees.layout_choice import choose_layout
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import TRANSFORM_NAMES, Transform

#: Parameters that are not saved: the tree is saved as arrays; the others depend on the machine.
_NOT_SAVED = ("tree", "checkpoint_dir", "memory")


class _XRLinearState(NamedTuple):
    trained: TrainedTree
    searcher: BeamSearcher

    @property
    def widths(self) -> tuple[int, int]:
        return self.trained.widths

    @property
    def n_labels(self) -> int:
        return self.trained.tree.n_labels


@dataclass(eq=False, repr=False, kw_only=True)
class XRLinear(BaseModel[_XRLinearState], Parameterized):
    """A recursive linear ranker over a label tree.

    It trains in seconds, ranks in microseconds, and is the recommended first choice.

    Examples
    --------
    >>> import carya
    >>> from carya.data import make_world
    >>> X, Y = make_world(n_rows=500, n_labels=60, seed=1)
    >>> model = carya.XRLinear(max_leaf_size=10).fit(X, Y)
    >>> S = model.predict(X, top_k=3)                # rows x labels, each row sorted best first
    >>> labels, scores = model.rank(X[[0]], top_k=3) # one query
    >>> bool(carya.metrics.precision(Y, S, k=1) > 0.8)
    True
    """

    foreign_names: ClassVar[Mapping[str, str]] = {
        "nr_splits": "branching",
        "beamsize": "beam_width",
        "beam_size": "beam_width",
        "only_topk": "top_k in predict",
        "threads": "n_jobs",
        "negative_sampling_scheme": "negatives",
        "post_processor": "transform",
        "max_nonzeros_per_label": "max_weights",
        "solver_type": "loss",
        "Cp": "positive_weight",
        "Cn": "negative_weight",
        "eps": "tol",
        "rel_mode": "relevance",
        "rel_norm": "relevance_norm",
        "cost": "C",
        "tolerance": "tol",
        "precision": "weight_dtype",
    }

    # Phase 1: the label tree.
    branching: int = parameter(32, Integer(2), "B, maximum number of children per cluster", group="tree")
    max_leaf_size: int = parameter(100, Integer(1), "maximum number of labels per leaf cluster", group="tree")
    max_depth: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "maximum number of layers; 1 means one-versus-rest, 2 a single level of clusters",
        group="tree",
    )
    representation: str = parameter(
        "pifa",
        Choice(*REPRESENTATIONS),
        "label vectors for clustering: pifa (mean features of the label's rows), pii (indicator vector of the label's "
        "rows), lf (label_features passed to fit), pifa+lf (weighted sum of pifa and lf), pifa-concat-lf "
        "(concatenation of pifa and lf), graph (embedding of the label_graph passed to fit or of the co-occurrence "
        "graph), pifa-concat-graph (concatenation of pifa and graph) or spectral (spectral embedding for co-clustering "
        "of rows and labels)",
        group="tree",
    )
    alpha: float | ArrayLike = parameter(
        0.5,
        Either(Real(0, 1), Instance((list, tuple, np.ndarray), "one number per label")),
        "weight of pifa in pifa+lf, between 0 and 1",
        group="tree",
    )
    index_features: float | None = parameter(
        384,
        Either(Integer(1), Real(0, 1, open_low=True), Choice(None)),
        "maximum number of features to keep per label vector for clustering, largest first; a value below 1 is the "
        "fraction of the squared norm to keep; None means all features, as in the paper's definition of PIFA",
        group="tree",
    )
    embedding_dimensions: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "number of dimensions of the spectral and graph label vectors; None means "
        f"{SPECTRAL_DIMENSIONS} for spectral and {GRAPH_DIMENSIONS} for graph",
        group="tree",
    )
    clustering: str = parameter(
        "spherical", Choice("spherical", "kmeans", "random"), "clustering algorithm", group="tree"
    )
    balanced: bool = parameter(True, Choice(True, False), "make clusters of equal size", group="tree")
    bisect: bool = parameter(
        True, Choice(True, False), "split clusters by repeated bisection instead of k-means with k = B", group="tree"
    )
    tree: LabelTree | None = parameter(
        None,
        Either(Instance(LabelTree, "a LabelTree"), Choice(None)),
        "a label tree to use instead of building one",
        group="tree",
    )
    clusters_per_label: int = parameter(
        1,
        Integer(1),
        "maximum number of clusters per label; with values above 1, labels are also added to the clusters that the "
        "matcher assigns to their rows",
        group="tree",
    )

    # Phase 2: matching.
    negatives: str | Sequence[str] = parameter(
        ("teacher", "both"),
        PerLayer(Parsed(Negatives.from_name, NEGATIVES_NAMES)),
        "rows on which the ranker of a label is trained in addition to the label's own rows: teacher (rows of sibling "
        "labels), matcher (rows that the layers above assign to the label's cluster), both, or given (rows for which "
        "the shortlist passed to fit contains a sibling)",
        group="negatives",
    )
    beam_width: int = parameter(10, Integer(1), "b, number of nodes kept per level during search", group="negatives")
    training_beam_width: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "beam width of the matcher during training; smaller values make training faster; None means beam_width",
        group="negatives",
    )

    # Phase 3: ranking.
    loss: str = parameter(
        "squared-hinge", Choice("squared-hinge", "hinge", "logistic"), "loss function", group="training"
    )
    penalty: str = parameter(
        "l2",
        Choice("l2", "l1"),
        "regularization penalty; l1 gives sparse weights, requires a larger C, and does not support loss=hinge",
        group="training",
    )
    C: float | str | Sequence[float] = parameter(
        AUTO,
        Either(Choice(AUTO), PerLayer(Real(0, open_low=True))),
        "inverse regularization strength; auto selects a value suited to the loss and the penalty (1 for the defaults)",
        group="training",
    )
    positive_weight: float = parameter(
        1.0, Real(0, open_low=True), "factor by which C is multiplied for positive rows", group="training"
    )
    negative_weight: float = parameter(
        1.0, Real(0, open_low=True), "factor by which C is multiplied for negative rows", group="training"
    )
    relevance: str = parameter(
        "none",
        Choice("none", "induce", "leaf"),
        "how the values of Y are used: none (ignored), induce (as costs of the positives; the cost of a cluster is the "
        "sum over its labels) or leaf (as costs of the positives in the last layer only)",
        group="training",
    )
    relevance_norm: str = parameter(
        "none",
        Choice("none", "l1", "l2", "max"),
        "norm by which the costs of each row are divided at every level",
        group="training",
    )
    tail_weight: float = parameter(
        0.0,
        Real(0),
        "exponent of the inverse label propensity; for positive rows, C is multiplied by the resulting factor; larger "
        "values favor rare labels, and 1 also improves precision on most data sets",
        group="training",
    )
    label_row_weight: float = parameter(
        0.0,
        Real(0),
        "weight of one additional training row per label, which contains the label's features; used if the "
        "label_features passed to fit have the same columns as X; 0 means no additional rows",
        group="training",
    )
    bias: float = parameter(1.0, Real(0), "value of the constant feature; 0 disables the bias", group="training")
    tol: float | Sequence[float] = parameter(
        0.005,
        PerLayer(Real(0)),
        "stopping tolerance: a label has converged when a pass improves its objective by at most this fraction",
        group="training",
    )
    max_iter: int | Sequence[int] = parameter(
        20, PerLayer(Integer(1)), "maximum number of passes over the rows of a label", group="training"
    )
    threshold: float | Sequence[float] = parameter(
        0.1, PerLayer(Real(0)), "threshold below which weights of sparse features are dropped", group="training"
    )
    threshold_by: str = parameter(
        "weight",
        Choice("weight", "effect"),
        "quantity compared with the threshold: weight (the absolute weight) or effect (the absolute weight times the "
        "typical magnitude of the feature's values; keeps fewer weights of common words, speeds up ranking of long "
        "texts, and requires a higher threshold)",
        group="training",
    )
    max_weights: int | Sequence[int | None] | None = parameter(
        None,
        PerLayer(Either(Integer(1), Choice(None))),
        "maximum number of weights of sparse features per label; the largest are kept",
        group="training",
    )
    weight_dtype: str = parameter(
        "int8",
        WEIGHT_DTYPE,
        "data type of stored weights: float32 (exact), float16 (half the size) or int8 (a quarter of the size, with "
        "one scale per cluster)",
        group="training",
    )
    transform: str | Sequence[str] = parameter(
        AUTO,
        Either(Choice(AUTO), PerLayer(Parsed(Transform.from_name, TRANSFORM_NAMES))),
        "how level scores are combined; auto selects transforms suited to the loss and the negatives",
        group="training",
    )

    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "number of threads; -1 means all cores")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "random seed; results do not depend on n_jobs", group="training")
    checkpoint_dir: str | None = parameter(
        None,
        Either(Instance((str,), "a path"), Choice(None)),
        "folder for the results of completed training steps; interrupted training resumes from them",
    )
    memory: str | None = parameter(
        None,
        Either(Parsed(parse_size, SIZE_TEXT), Choice(None)),
        "limit on the memory used by training, such as 8GB; large arrays are stored in temporary files",
    )
    verbose: bool = parameter(False, Choice(True, False), "show progress on standard error")

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
        engine: Engine | None = None,
        calibrate: bool | int = False,
    ) -> Self:
        """Build the label tree and train a ranker for every node.

        Parameters
        ----------
        X : sparse matrix, array_like, DataFrame or tensor of shape (n, d), a pair (sparse, dense), or Matrices
            Rows should have approximately unit norm, like TF-IDF rows, for which the defaults of `C` and `threshold`
            are chosen. Rows without features affect only the bias. Matrices, as returned by
            :func:`carya.data.open_data`, also contain Y.
        Y : sparse matrix, array_like or DataFrame of shape (n, labels), or the labels of each row
            In a matrix, positive entries mark the labels of a row; nested lists of numbers form a matrix. Otherwise, Y
            contains one label, or one list or set of labels, per row. Labels are strings, which the model stores in
            `labels_`, or class indices. Labels without rows are ranked last.
        label_names : list of str, optional
            The label names, one per column of Y, such as ``classes_`` of a MultiLabelBinarizer.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights of the rows. A weight multiplies `C` for its row and also applies to the label
            representations used for clustering. An integer weight has the same effect as repeating the row that many
            times; rows with weight 0 are removed.
        label_features : like X, of shape (labels, ...), optional
            Features of the labels, for representations with ``lf`` and, if they have the same columns as X,
            for `label_row_weight`.
        label_graph : sparse matrix of shape (labels, labels), optional
            Edge weights between labels, such as those of a thesaurus, for representations with ``graph``; the
            co-occurrence graph by default.
        shortlist : sparse matrix of shape (n, labels), optional
            For ``negatives`` with ``given``: for each row, the labels in whose clusters the row is used as a negative.
        engine : RayEngine, optional
            The engine that trains the layers on other machines; requires `checkpoint_dir`, a folder that all machines
            share.
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
                engine=engine,
            ),
            calibrate=calibrate,
        )

    def fit_data(self, data: TrainingData) -> Self:
        """Train on validated data."""
        self.check_parameters()
        (trained,) = train_trees([self], data)
        self.set_fitted(trained)
        self.set_feature_names(data.feature_names)
        return self

    def check_parameters(self) -> None:
        """Raise ParameterError for the first invalid parameter or combination."""
        super().check_parameters()
        if self.penalty == "l1" and self.loss == "hinge":
            raise ParameterError("penalty='l1' requires loss='squared-hinge' or loss='logistic', got loss='hinge'.")

    def _rank_batch(self, state: _XRLinearState, queries: Features, options: RankOptions) -> Rankings:
        with show_progress(self.verbose) as progress, progress.stage("rank") as report:
            return state.searcher.predict(
                queries,
                top_k=options.top_k,
                beam_width=self._beam_width(options),
                min_score=options.min_score,
                threads=_core.thread_count(self.n_jobs),
                report=report,
            )

    def rank(
        self,
        x: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the `top_k` best labels for one query and their scores, best first.

        Thread-safe; takes tens of microseconds.

        Parameters
        ----------
        x : one feature row, with one or two dimensions
        top_k, beam_width, min_score, transform, labels
            See :meth:`predict`.
        """
        if transform is not None or labels is not None:
            return super().rank(
                x, top_k=top_k, beam_width=beam_width, min_score=min_score, transform=transform, labels=labels
            )
        state = self._check_fitted()
        trained, searcher = state
        limits = (  # RankOptions would take another 0.4 microseconds
            validation.check_positive_int(top_k, "top_k"),
            validation.check_positive_int(self.beam_width if beam_width is None else beam_width, "beam_width"),
            validation.check_min_score(min_score),
        )
        query = validation.fast_query(x, trained.widths)
        ranking = None if query is None else searcher.rank(*query, *limits)
        if ranking is None:  # not in the expected format: convert it, or raise an error that states the reason
            ranking = searcher.rank(*self._check_query(state, x), *limits)
        assert ranking is not None  # a validated query is always accepted
        return ranking

    def _rank_one(
        self, state: _XRLinearState, query: QueryArrays, options: RankOptions
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        ranking = state.searcher.rank(*query, options.top_k, self._beam_width(options), options.min_score)
        if ranking is None:
            raise InputError(
                f"Feature indices must be in ascending order and < {state.widths[0]}, and values must be finite."
            )
        return ranking

    def _score_pairs(self, state: _XRLinearState, queries: Features, pairs: Csr) -> NDArray[np.float32]:
        return state.searcher.score_pairs(queries, pairs, threads=_core.thread_count(self.n_jobs))

    def _copy_with_transform(self, state: _XRLinearState, transform: str | Sequence[str]) -> Self:
        model = self.clone(transform=transform, tree=None)
        model.check_parameters()
        names = expand_per_layer(model.effective_transform, len(state.trained.layers), "transform")
        model.set_fitted(state.trained.with_transform(names))
        model.set_feature_names(self._feature_names())
        return model

    def _copy_with_labels(self, state: _XRLinearState, labels: NDArray[np.int32]) -> Self:
        trained = state.trained.subset(labels, threads=_core.thread_count(self.n_jobs))
        model = self.from_trained_tree(trained, **self._parameters_to_save())
        model.set_feature_names(self._feature_names())
        return model

    def _check_adds_labels(self) -> None:
        self._check_fitted()

    def _insert_labels(self, state: _XRLinearState, new: NewLabels) -> None:
        with show_progress(self.verbose) as progress:
            self.set_fitted(insert_labels(self, state.trained, new, progress))

    def remove_labels(self, labels: ArrayLike) -> Self:
        """Remove labels from the model without retraining; the weights of all other labels do not change.

        The remaining labels are renumbered in their original order. If the model is calibrated, its probabilities then
        depend only on scores.

        Parameters
        ----------
        labels : array_like of int or str
            The indices or names of the labels.
        """
        state = self._check_fitted()
        removed = check_label_subset(self._label_numbers(labels), state.n_labels)
        kept = np.setdiff1d(np.arange(state.n_labels, dtype=np.int32), removed)
        if not kept.size:
            raise InputError("labels contains all labels of the model. At least one must remain.")
        smaller = self.subset(kept)
        ids, calibration = smaller._label_ids, smaller._calibration
        self.set_fitted(smaller._check_fitted().trained)
        self.set_label_ids(ids)
        self.set_calibration(calibration, self._training_rows)
        return self

    def rename_labels(self, names: Mapping[str, str]) -> Self:
        """Rename labels without retraining.

        Parameters
        ----------
        names : mapping of str to str
            The new name of each label to rename.
        """
        ids = list(self.labels_)
        for label, name in names.items():
            if not isinstance(name, str):
                raise InputError(f"names must map labels to strings, but {label!r} is mapped to {name!r}.")
            ids[self._label_number(label)] = name
        duplicates = len(ids) - len(set(ids))
        if duplicates:
            raise InputError(f"{duplicates} of the new names are already the names of other labels. Use unique names.")
        self.set_label_ids(ids)
        return self

    def explain(self, x: FeaturesLike, label: int | str, *, tree: int | None = None) -> Explanation:
        """Explain the score of a label for one query: the exact contribution of every feature at every level.

        Parameters
        ----------
        x : one feature row
        label : int or str
            The index or the name of a label.
        tree : int, optional
            Accepted for compatibility with models that have several trees; must be 0 or None.

        Examples
        --------
        >>> import math, carya
        >>> X, Y = carya.data.make_world(300, 30, seed=0)
        >>> model = carya.XRLinear(max_leaf_size=10).fit(X, Y)
        >>> labels, scores = model.rank(X[[0]], top_k=1)
        >>> explanation = model.explain(X[[0]], labels[0])
        >>> math.isclose(math.exp(explanation.base + explanation.contributions.sum()), explanation.score)
        True
        >>> math.isclose(explanation.score, scores[0], rel_tol=1e-4)
        True
        """
        state = self._check_fitted()
        select_tree(type(self).__name__, (self,), tree, is_single=True)
        return explain(state.trained, *self._check_query(state, x), self._label_number(label))

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        trained, parameters = self._check_fitted().trained, self._parameters_to_save()
        if weight_dtype is not None:
            trained = trained.with_weight_dtype(weight_dtype, threads=_core.thread_count(self.n_jobs))
            parameters |= {"weight_dtype": weight_dtype}
        return self._with_feature_names(pack(trained, parameters))

    def with_weight_dtype(self, weight_dtype: str) -> Self:
        """Return a copy of the model with its weights stored in a different data type.

        Parameters
        ----------
        weight_dtype : {"float32", "float16", "int8"}
            Smaller types require less memory but reduce the accuracy of the scores slightly.
        """
        trained = self._check_fitted().trained.with_weight_dtype(weight_dtype, threads=_core.thread_count(self.n_jobs))
        model = self.from_trained_tree(trained, **(self._parameters_to_save() | {"weight_dtype": weight_dtype}))
        model.set_feature_names(self._feature_names())
        model.set_label_ids(self._label_ids)
        model.set_calibration(self._calibration, self._training_rows)
        return model

    def _parameters_to_save(self) -> dict[str, Any]:
        """Return the parameters to save, in which ``auto`` is replaced with the selected values."""
        resolved = {"C": self.effective_C, "transform": self.effective_transform}
        parameters = {
            name: resolved.get(name, value) for name, value in self.get_params().items() if name not in _NOT_SAVED
        }
        if self.embedding_dimensions is None:  # omitted, so that files remain identical to those of earlier versions
            del parameters["embedding_dimensions"]
        return parameters

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore a model from an opened folder; called by :func:`carya.load`."""
        trained = unpack(saved)
        with consistent_parts():
            model = cls.from_saved_parameters(saved.parameters)
            model.set_fitted(trained)
            model._restore_feature_names(saved)
            return model

    @classmethod
    def from_trained_tree(cls, trained: TrainedTree, **parameters: Any) -> Self:
        """Create a fitted model from layers that were trained separately."""
        model = cls(**parameters)
        model.check_parameters()
        model.set_fitted(trained)
        return model

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve."""
        return True

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` requires `label_features`."""
        return "lf" in str(self.representation) and self.tree is None

    @property
    def ranks_unseen_labels(self) -> bool:
        """Whether labels without training rows are ranked by their features."""
        return self.label_row_weight > 0

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` accepts `label_features`."""
        # The parameters may not have been checked yet.
        return self.needs_label_features or (
            isinstance(self.label_row_weight, numbers.Real) and self.label_row_weight > 0
        )

    @property
    def uses_label_graph(self) -> bool:
        """Whether `fit` accepts `label_graph`."""
        return "graph" in str(self.representation) and self.tree is None

    @property
    def uses_shortlist(self) -> bool:
        """Whether `fit` accepts `shortlist`."""
        return any("given" in name for name in to_sequence(self.negatives))

    @property
    def uses_tree(self) -> bool:
        """Whether the model can be trained with a tree passed to the enclosing model's `fit`."""
        return self.tree is None

    @property
    def uses_engine(self) -> bool:
        """Whether an engine can train the model on other machines; always true."""
        return True

    @property
    def trees_(self) -> tuple[Self, ...]:
        """The trees in the model: a tuple that contains only the model itself."""
        self._check_fitted()
        return (self,)

    @property
    def searcher(self) -> BeamSearcher:
        """The beam search over the fitted layers."""
        return self._check_fitted().searcher

    @property
    def effective_training_beam_width(self) -> int:
        """The beam width of the matcher during training."""
        return int(self.beam_width if self.training_beam_width is None else self.training_beam_width)

    @property
    def effective_C(self) -> float | Sequence[float]:  # noqa: N802 - named like the parameter
        """The value of C, or the value selected by ``C="auto"``."""
        return auto_C(str(self.loss), str(self.penalty)) if isinstance(self.C, str) else self.C

    @property
    def effective_transform(self) -> str | Sequence[str]:
        """The transform, or the pair selected by ``transform="auto"``."""
        if self.transform != AUTO:
            return self.transform
        last = Negatives.from_name(to_sequence(self.negatives)[-1])
        return auto_transform(str(self.loss), hard_negatives="matcher" in last or "given" in last)

    @property
    def effective_relevance(self) -> str:
        """The mode in which costs are used: `relevance`, or "induce" if costs result only from `tail_weight`."""
        return "induce" if self.relevance == "none" and self.tail_weight > 0 else str(self.relevance)

    def linear_solver(self) -> LinearSolver:
        """Return the solver with this model's settings; trees with equal solvers can be trained together."""
        has_costs = self.effective_relevance != "none"
        return read_settings(LinearSolver, self, C=to_python(self.effective_C), use_target_costs=has_costs)

    def set_fitted(self, trained: TrainedTree) -> None:
        """Set the fitted state."""
        choices = [
            choose_layout(layer, beam_width=self.beam_width, query_features=trained.row_features)
            for layer in trained.layers
        ]
        searcher = BeamSearcher(trained.layers, [choice.layout for choice in choices], trained.tree.leaf_labels)
        self.layouts_ = choices
        self.tree_ = trained.tree
        self.layers_ = list(trained.layers)
        self.transform_ = tuple(layer.transform.name for layer in trained.layers)
        self.C_ = self.effective_C
        # assigned last and atomically, because other threads may be ranking
        self._state = _XRLinearState(trained, searcher)

    def __getstate__(self) -> dict[str, Any]:
        # Pickling is used for copies and for scikit-learn's worker processes. To store a model, use `save`: unlike
        # pickles, saved models are safe to open.
        state = dict(self.__dict__)
        if "_state" in state:
            state["_state"] = state["_state"].trained
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_state" in state:
            self.set_fitted(state["_state"])

    def _beam_width(self, options: RankOptions) -> int:
        if options.beam_width is not None:
            return options.beam_width
        return validation.check_positive_int(self.beam_width, "beam_width")
