"""XR-Linear (paper, section 3): the three phases applied recursively, with linear rankers at every level."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterised, parameter
from carya.core.progress import Progress
from carya.core.rules import Choice, Either, Instance, Integer, Parsed, PerLayer, Real, per_layer, plain
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError, ModelFormatError, ParameterError
from carya.indexing import Indexer
from carya.indexing.indexer import REPRESENTATIONS
from carya.matching import Costs, Negatives
from carya.matching.negatives import NAMES as NEGATIVES
from carya.models.base import Rankings, Verbs
from carya.models.xr_linear.explanation import Explanation, explain
from carya.models.xr_linear.serialize import pack, unpack
from carya.models.xr_linear.training import Training, fit_together, overlapping_layers
from carya.ranking import LinearRanker
from carya.trees.beam_search import Searcher
from carya.trees.label_tree import LabelTree
from carya.trees.layer import PRECISIONS
from carya.trees.layouts import choose
from carya.trees.trained_tree import Learned
from carya.trees.transforms import NAMES as TRANSFORMS
from carya.trees.transforms import Transform


@dataclass(eq=False, repr=False, kw_only=True)
class XRLinear(Verbs[tuple[Learned, Searcher]], Parameterised):
    """A recursive linear ranker: trains in seconds, ranks in microseconds.

    Examples
    --------
    >>> import carya
    >>> from carya.data import make_world
    >>> X, Y = make_world(n_rows=500, n_labels=60, seed=1)
    >>> model = carya.XRLinear(max_leaf=10).fit(X, Y)
    >>> S = model.predict(X, top_k=3)                # rows x labels, each row sorted best first
    >>> labels, scores = model.rank(X[[0]], top_k=3) # one query
    >>> bool(carya.metrics.precision(Y, S, k=1) > 0.8)
    True
    """

    names_elsewhere: ClassVar[Mapping[str, str]] = {
        "nr_splits": "branching",
        "max_leaf_size": "max_leaf",
        "beamsize": "beam_width",
        "beam_size": "beam_width",
        "only_topk": "top_k, in predict",
        "threads": "n_jobs",
        "random_state": "seed",
        "negative_sampling_scheme": "negatives",
        "post_processor": "transform",
        "max_nonzeros_per_label": "max_weights",
        "solver_type": "loss",
        "Cp": "positive_cost",
        "Cn": "negative_cost",
        "eps": "tolerance",
        "rel_mode": "relevance",
        "rel_norm": "relevance_norm",
    }

    # Phase 1: the label tree.
    branching: int = parameter(32, Integer(2), "B, the most children of a cluster")
    max_leaf: int = parameter(100, Integer(1), "the most labels in a last cluster")
    max_depth: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "the most layers; 1 is one-versus-rest, 2 one level of clusters"
    )
    representation: str = parameter(
        "pifa",
        Choice(*REPRESENTATIONS),
        "what labels are clustered by: pifa, the features of their rows; pii, the rows; lf, label_features given to "
        "fit; pifa+lf, a weighted sum of both; pifa-concat-lf, both side by side; graph, their places in label_graph "
        "given to fit, or in that of labels of the same rows; pifa-concat-graph, both; spectral, co-clustering of rows "
        "and labels",
    )
    alpha: float | ArrayLike = parameter(
        0.5,
        Either(Real(0, most=1), Instance((list, tuple, np.ndarray), "one for each label")),
        "the weight of pifa in pifa+lf, between 0 and 1",
    )
    index_features: int | None = parameter(
        384,
        Either(Integer(1), Choice(None)),
        "how many features represent a label when clustering, the largest; None is all",
    )
    clustering: str = parameter("spherical", Choice("spherical", "kmeans", "random"), "how the tree is made")
    balanced: bool = parameter(True, Choice(True, False), "clusters of equal size")
    bisect: bool = parameter(True, Choice(True, False), "reach B clusters by splits in two, not with B centres at once")
    tree: LabelTree | None = parameter(
        None, Either(Instance(LabelTree, "a LabelTree"), Choice(None)), "a tree of your own, instead of all above"
    )

    copies: int = parameter(
        1,
        Integer(1),
        "in how many clusters a label may lie; from 2 on, labels are also put where the matcher brings their rows",
    )

    # Phase 2: matching.
    negatives: str | Sequence[str] = parameter(
        ("teacher", "both"),
        PerLayer(Parsed(Negatives.named, NEGATIVES)),
        "which rows a label is trained on besides its own: teacher, those of its siblings' labels; matcher, those the "
        "layers above bring to its cluster; both; given, those of the labels in fit's shortlist",
    )
    beam_width: int = parameter(10, Integer(1), "b, the nodes kept at each level of the search")
    training_beam: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "the beam of the matcher in training: with fewer clusters a row is a negative of fewer labels, which takes "
        "less time; None is beam_width",
    )

    # Phase 3: ranking.
    loss: str = parameter("squared-hinge", Choice("squared-hinge", "hinge", "logistic"), "the loss of the rankers")
    penalty: str = parameter(
        "l2",
        Choice("l2", "l1"),
        "what keeps weights small: l2, their squares; l1, their sizes, which leaves few that are not 0 and wants a "
        "higher cost; not with the plain hinge",
    )
    cost: float = parameter(1.0, Real(0, above=True), "C, the weight of the loss against regularisation")
    positive_cost: float = parameter(1.0, Real(0, above=True), "a factor of C for positives")
    negative_cost: float = parameter(1.0, Real(0, above=True), "a factor of C for negatives")
    relevance: str = parameter(
        "none",
        Choice("none", "induce", "leaf"),
        "what the values of Y say: none, nothing; induce, the cost of each positive, summed up the tree; leaf, the "
        "cost of each positive in the last layer",
    )
    relevance_norm: str = parameter(
        "none",
        Choice("none", "l1", "l2", "max"),
        "how the costs of a row are scaled at every level that has them: by nothing, their sum, length or largest",
    )
    bias: float = parameter(1.0, Real(0), "the value of a constant feature; 0 is none")
    tolerance: float = parameter(
        0.005, Real(0), "a label is solved when a pass over its rows gains less than this share of all gained so far"
    )
    max_passes: int = parameter(20, Integer(1), "the most passes over a label's rows")
    threshold: float = parameter(0.1, Real(0), "smaller weights of sparse features are dropped")
    threshold_by: str = parameter(
        "weight",
        Choice("weight", "effect"),
        "what is compared with the threshold: weight, a weight as it is; effect, what it does to a score, the weight "
        "times the size of its feature's values, the usual size being 1. Common words keep fewer weights, which makes "
        "long texts faster, rare ones more: a higher threshold goes with it",
    )
    max_weights: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "the most weights of sparse features a label keeps, the largest"
    )
    precision: str = parameter(
        "int8",
        Choice(*PRECISIONS),
        "how weights are kept: float32 is exact, float16 takes half the bytes, int8 a quarter, with a scale a cluster",
    )
    transform: str | Sequence[str] = parameter(
        ("l3-hinge", "l4-hinge"),
        PerLayer(Parsed(Transform.named, TRANSFORMS)),
        "how scores join along a path of the tree",
    )

    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "threads; -1 is all cores")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "same seed, same model, whatever n_jobs")
    verbose: bool = parameter(False, Choice(True, False), "progress bars on standard error")

    def fit(
        self,
        X: FeaturesLike,
        Y: LabelsLike,
        *,
        label_features: FeaturesLike | None = None,
        label_graph: LabelsLike | None = None,
        shortlist: LabelsLike | None = None,
    ) -> Self:
        """Build the tree and train a ranker for every node.

        Parameters
        ----------
        X : sparse matrix or array_like of shape (n, d), or a pair (sparse, dense) of them
            Rows should be about as long as 1, as those of TF-IDF are: `cost` and `threshold` mean that. Rows without
            features are allowed; they train the bias only.
        Y : sparse matrix or array_like of shape (n, labels)
            Above 0 where a row has a label. Labels without rows are allowed; they rank behind all others.
        label_features : like X, of shape (labels, ...), optional
            For representations with ``lf``.
        label_graph : sparse matrix of shape (labels, labels), optional
            For representations with ``graph``: how strongly labels are linked, as by a thesaurus. Without it they are
            linked by the rows they have in common.
        shortlist : sparse matrix of shape (n, labels), optional
            For ``negatives`` with ``given``: the labels whose clusters each row is to be a negative of.
        """
        self.check_parameters()
        features, labels = validation.training_pair(X, Y)
        return self.fit_checked(
            features, labels, label_features=label_features, label_graph=label_graph, shortlist=shortlist
        )

    def fit_checked(
        self,
        features: Features,
        labels: Csr,
        *,
        label_features: FeaturesLike | None = None,
        label_graph: LabelsLike | None = None,
        shortlist: LabelsLike | None = None,
    ) -> Self:
        """The same with matrices that came through the door."""
        fit_together(
            [self], features, labels, label_features=label_features, label_graph=label_graph, shortlist=shortlist
        )
        return self

    def training(
        self,
        features: Features,
        labels: Csr,
        *,
        progress: Progress,
        label_features: FeaturesLike | None = None,
        label_graph: LabelsLike | None = None,
        shortlist: LabelsLike | None = None,
        shared: dict[object, Features] | None = None,
    ) -> Training[Learned]:
        """The steps of training, which needs a solver; what :func:`fit_together` goes through.

        `shared` holds what trees on these rows and labels share.
        """
        threads = _core.thread_count(self.n_jobs)
        given = self._given(shortlist, labels)
        inner = per_layer(self.transform, 2, "transform")[0] if self.copies > 1 else "sigmoid"
        if not Transform.named(inner).multiplies:
            raise ParameterError(
                f"copies={self.copies} goes with inner transforms 'sigmoid' and 'l<p>-hinge', whose scores say how "
                f"sure the matcher is; got transform={self.transform!r}"
            )
        tree = self._index(features, labels, label_features, label_graph, threads, progress, shared)
        tree, layers = yield from overlapping_layers(
            features,
            labels,
            tree,
            copies=self.copies,
            costs=Costs(self.relevance, self.relevance_norm),
            negatives=[Negatives.named(name) for name in per_layer(self.negatives, tree.depth, "negatives")],
            given=given,
            transforms=[Transform.named(name) for name in per_layer(self.transform, tree.depth, "transform")],
            beam_width=self.beam_in_training,
            seed=plain(self.seed),
            threads=threads,
            progress=progress,
        )
        return Learned(tree, layers, features.widths, features.sparse.values.size / features.rows)

    def _answer(self, queries: Features, top_k: int, beam_width: int | None, min_score: float | None) -> Rankings:
        _, searcher = self._ready()
        with self._progress() as progress, progress.stage("rank") as report:
            return searcher.predict(
                queries,
                top_k=validation.positive_int(top_k, "top_k"),
                beam_width=self._beam(beam_width),
                min_score=validation.least_score(min_score),
                threads=_core.thread_count(self.n_jobs),
                report=report,
            )

    def rank(
        self, x: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The `top_k` best labels of one query and their scores, best first.

        Any number of threads may ask at once; it takes tens of microseconds.

        Parameters
        ----------
        x : one row of what `fit` took; it may have one dimension
        """
        learned, searcher = self._ready()
        count, width, least = (
            validation.positive_int(top_k, "top_k"),
            self._beam(beam_width),
            validation.least_score(min_score),
        )
        arrays = validation.query_at_a_glance(x, learned.widths)
        answer = None if arrays is None else searcher.rank(*arrays, top_k=count, beam_width=width, min_score=least)
        if answer is None:  # not in the form it should have: find out whether it can be brought into it
            arrays = validation.query(x, learned.widths)
            answer = searcher.rank(*arrays, top_k=count, beam_width=width, min_score=least)
        assert answer is not None  # what passed the door is a query
        return answer

    def _answer_one(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        dense: NDArray[np.float32],
        top_k: int,
        beam_width: int | None,
        min_score: float | None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        learned, searcher = self._ready()
        answer = searcher.rank(
            features,
            values,
            dense,
            top_k=validation.positive_int(top_k, "top_k"),
            beam_width=self._beam(beam_width),
            min_score=validation.least_score(min_score),
        )
        if answer is None:
            raise InputError(f"features must ascend below {learned.widths[0]}, values be finite")
        return answer

    def predict_selected(self, X: FeaturesLike, candidates: LabelsLike) -> sp.csr_array:
        """The scores of given (row, label) pairs only, whether the search would have reached them or not.

        Parameters
        ----------
        candidates : sparse matrix or array_like of shape (n, labels)
            Which pairs: the entries of a sparse matrix whatever their values, what is not 0 in an array. The result has
            the same entries.
        """
        learned, searcher = self._ready()
        queries = validation.features_like(X, learned.widths)
        wanted = validation.candidates(candidates, queries.rows, learned.tree.n_labels)
        scores = searcher.selected(queries, wanted, threads=_core.thread_count(self.n_jobs))
        return sp.csr_array((scores, wanted.indices, wanted.indptr), shape=(wanted.rows, wanted.cols))

    def explain(self, x: FeaturesLike, label: int) -> Explanation:
        """Why a label has its score for one query: what every feature adds at every level, exactly.

        Parameters
        ----------
        x : one row of what `fit` took
        label : int

        Examples
        --------
        >>> import math, carya
        >>> X, Y = carya.data.make_world(300, 30, seed=0)
        >>> model = carya.XRLinear(max_leaf=10).fit(X, Y)
        >>> labels, scores = model.rank(X[[0]], top_k=1)
        >>> why = model.explain(X[[0]], labels[0])
        >>> math.isclose(math.exp(why.base + why.shares.sum()), why.score)
        True
        >>> math.isclose(why.score, scores[0], rel_tol=1e-4)
        True
        """
        learned, _ = self._ready()
        if not isinstance(label, (int, np.integer)) or not 0 <= label < learned.tree.n_labels:
            raise InputError(f"label must be an integer between 0 and {learned.tree.n_labels - 1}, got {label!r}")
        return explain(learned, *validation.query(x, learned.widths), int(label))

    def to_saved(self, *, precision: str | None = None) -> storage.Saved:
        """What :meth:`save` writes."""
        model = self if precision is None else self.with_precision(precision)
        return pack(model._ready()[0], model._parameters_to_keep())

    def with_precision(self, precision: str) -> Self:
        """The same model with its weights kept otherwise: fewer bits are smaller and a little less exact.

        Parameters
        ----------
        precision : {"float32", "float16", "int8"}
        """
        if precision not in PRECISIONS:
            raise ParameterError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, got {precision!r}")
        learned, _ = self._ready()
        learned = learned.with_precision(precision, threads=_core.thread_count(self.n_jobs))
        return self.from_learned(learned, **(self._parameters_to_keep() | {"precision": precision}))

    def _parameters_to_keep(self) -> dict[str, Any]:
        return {name: value for name, value in self.get_params().items() if name != "tree"}

    @classmethod
    def from_saved(cls, saved: storage.Saved) -> Self:
        """The model in an opened folder; what :func:`carya.load` calls."""
        learned, parameters = unpack(saved)
        try:
            return cls.from_learned(learned, **parameters)
        except ModelFormatError:
            raise
        except (TypeError, ValueError) as error:
            raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None

    @classmethod
    def from_learned(cls, learned: Learned, **parameters: Any) -> Self:
        """A model of layers that were trained elsewhere."""
        model = cls(**parameters)
        model.check_parameters()
        model._set_learned(learned)
        return model

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` fails without label_features: whether labels are clustered by them."""
        return "lf" in str(self.representation) and self.tree is None

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` takes label_features."""
        return self.needs_label_features

    def search(self) -> Searcher:
        """What searches; for models made of several."""
        return self._ready()[1]

    def _set_learned(self, learned: Learned) -> None:
        choices = [
            choose(layer, beam_width=self.beam_width, query_features=learned.row_features) for layer in learned.layers
        ]
        searcher = Searcher(learned.layers, [choice.layout for choice in choices], learned.tree.leaf_labels)
        self.layouts_ = choices
        self.tree_ = learned.tree
        self.n_labels_ = learned.tree.n_labels
        self.layers_ = list(learned.layers)
        self.widths_ = learned.widths
        self.n_features_in_ = sum(learned.widths)
        self._fitted = (learned, searcher)  # last, in one step: other threads may be asking

    def __getstate__(self) -> dict[str, Any]:
        # For copies and for scikit-learn's worker processes; models are kept with save, which needs no trust to open.
        state = dict(self.__dict__)
        if "_fitted" in state:
            state["_fitted"] = (state["_fitted"][0], None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_fitted" in state:
            self._set_learned(state["_fitted"][0])

    def _beam(self, beam_width: int | None) -> int:
        return validation.positive_int(self.beam_width if beam_width is None else beam_width, "beam_width")

    def _index(
        self,
        features: Features,
        labels: Csr,
        label_features: FeaturesLike | None,
        label_graph: LabelsLike | None,
        threads: int,
        progress: Progress,
        shared: dict[object, Features] | None,
    ) -> LabelTree:
        if self.tree is not None:
            for name, given in (("label_features", label_features), ("label_graph", label_graph)):
                if given is not None:
                    raise InputError(f"{name} is given but tree is too: it would not be used")
            if self.tree.n_labels != labels.cols:
                raise InputError(f"the tree has {self.tree.n_labels} labels, Y has {labels.cols}")
            return self.tree
        indexer = Indexer(**{field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(Indexer)})
        weighted = labels if self.relevance != "none" else labels.with_values(1)
        return indexer.build(
            features,
            weighted,
            label_features,
            label_graph=label_graph,
            threads=threads,
            progress=progress,
            shared=shared,
        )

    def _given(self, shortlist: LabelsLike | None, labels: Csr) -> Csr | None:
        """The user's shortlist; asked for and missing, or given and not asked for, is an error."""
        names = self.negatives if isinstance(self.negatives, str) else "+".join(self.negatives)
        if shortlist is None:
            if "given" in names:
                raise InputError(f"negatives={self.negatives!r} needs a shortlist in fit")
            return None
        if "given" not in names:
            raise InputError(f"a shortlist is given but negatives={self.negatives!r} does not use it")
        given = validation.labels(shortlist, "shortlist")
        if (given.rows, given.cols) != (labels.rows, labels.cols):
            raise InputError(
                f"shortlist is {given.rows} x {given.cols}, it must be {labels.rows} x {labels.cols} as Y is"
            )
        return given

    @property
    def beam_in_training(self) -> int:
        """How many clusters the matcher brings a row to in training."""
        return int(self.beam_width if self.training_beam is None else self.training_beam)

    def rankers(self) -> LinearRanker:
        """The settings of the rankers; trees with equal ones can be trained together."""
        if self.penalty == "l1" and self.loss == "hinge":
            raise ParameterError("penalty='l1' goes with loss='squared-hinge' or 'logistic', not with 'hinge'")
        shared = {field.name for field in dataclasses.fields(LinearRanker)} - {"own_costs"}
        return LinearRanker(own_costs=self.relevance != "none", **{name: plain(getattr(self, name)) for name in shared})
