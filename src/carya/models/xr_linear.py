"""XR-Linear (paper, section 3): the three phases applied recursively, with linear rankers at every level."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from carya import _core, checks, indexing, matching, metrics, store
from carya.checks import FeaturesLike, LabelsLike
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError
from carya.layer import NAMES as TRANSFORMS
from carya.layer import Layer, Transform
from carya.matching.negatives import NAMES as NEGATIVES
from carya.matrices import Csr, Features
from carya.params import Choice, Either, Instance, Integer, Parameterised, Parsed, PerLayer, Real, parameter, per_layer
from carya.progress import Bars, Progress
from carya.ranking import LinearRanker, Problem
from carya.search import Searcher
from carya.tree import LabelTree
from carya.version import __version__

KIND = "xr-linear"
_ARRAYS_PER_LAYER = 6


@dataclass(eq=False, repr=False, kw_only=True)
class XRLinear(Parameterised):
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

    # Phase 1: the label tree.
    branching: int = parameter(32, Integer(2), "B, the most children of a cluster")
    max_leaf: int = parameter(100, Integer(1), "the most labels in a last cluster")
    max_depth: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "the most layers; 1 is one-versus-rest, 2 one level of clusters"
    )
    representation: str = parameter(
        "pifa",
        Choice("pifa", "pii", "pifa+lf", "pifa-concat-lf", "lf", "spectral"),
        "what labels are clustered by: pifa, the features of their rows; pii, the rows; lf, label_features given to "
        "fit; pifa+lf, a weighted sum of both; pifa-concat-lf, both side by side; spectral, co-clustering of rows and labels",
    )
    alpha: float | ArrayLike = parameter(
        0.5,
        Either(Real(0), Instance((list, tuple, np.ndarray), "one for each label")),
        "the weight of pifa in pifa+lf, between 0 and 1",
    )
    index_features: int | None = parameter(
        256, Either(Integer(1), Choice(None)), "how many features represent a label when clustering, the largest; None is all"
    )
    clustering: str = parameter("spherical", Choice("spherical", "kmeans", "random"), "how the tree is made")
    balanced: bool = parameter(True, Choice(True, False), "clusters of equal size")
    bisect: bool = parameter(True, Choice(True, False), "reach B clusters by splits in two, not with B centres at once")
    tree: LabelTree | None = parameter(
        None, Either(Instance(LabelTree, "a LabelTree"), Choice(None)), "a tree of your own, instead of all above"
    )

    # Phase 2: matching.
    negatives: str | Sequence[str] = parameter(
        "teacher",
        PerLayer(Parsed(matching.Negatives.named, NEGATIVES)),
        "which rows a label is trained on besides its own: teacher, those of its siblings' labels; matcher, those the "
        "layers above bring to its cluster; both; given, those of the labels in fit's shortlist",
    )
    beam_width: int = parameter(10, Integer(1), "b, the nodes kept at each level of the search")

    # Phase 3: ranking.
    loss: str = parameter("squared-hinge", Choice("squared-hinge", "hinge", "logistic"), "the loss of the rankers")
    cost: float = parameter(1.0, Real(0, above=True), "C, the weight of the loss against regularisation")
    positive_cost: float = parameter(1.0, Real(0, above=True), "a factor of C for positives")
    negative_cost: float = parameter(1.0, Real(0, above=True), "a factor of C for negatives")
    costs: str = parameter(
        "none",
        Choice("none", "induce", "leaf"),
        "what the values of Y say: none, nothing; induce, the cost of each positive, summed up the tree; leaf, the "
        "cost of each positive in the last layer",
    )
    bias: float = parameter(1.0, Real(0), "the value of a constant feature; 0 is none")
    tolerance: float = parameter(
        0.03, Real(0), "a label is solved when a pass over its rows gains less than this share of all gained so far"
    )
    max_passes: int = parameter(20, Integer(1), "the most passes over a label's rows")
    threshold: float = parameter(0.1, Real(0), "smaller weights of sparse features are dropped")
    max_weights: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "the most weights of sparse features a label keeps, the largest"
    )
    transform: str | Sequence[str] = parameter(
        "l3-hinge", PerLayer(Parsed(Transform.named, TRANSFORMS)), "how scores join along a path of the tree"
    )

    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "threads; -1 is all cores")
    seed: int = parameter(0, Integer(0), "same seed, same model, whatever n_jobs")
    verbose: bool = parameter(False, Choice(True, False), "progress bars on standard error")

    def fit(
        self,
        X: FeaturesLike,
        Y: LabelsLike,
        *,
        label_features: FeaturesLike | None = None,
        shortlist: LabelsLike | None = None,
    ) -> Self:
        """Build the tree and train a ranker for every node.

        Parameters
        ----------
        X : sparse matrix or array_like of shape (n, d), or a pair (sparse, dense) of them
            Rows without features are allowed; they train the bias only.
        Y : sparse matrix or array_like of shape (n, labels)
            Above 0 where a row has a label. Labels without rows are allowed; they rank behind all others.
        label_features : like X, of shape (labels, ...), optional
            For representations with ``lf``.
        shortlist : sparse matrix of shape (n, labels), optional
            For ``negatives`` with ``given``: the labels whose clusters each row is to be a negative of.
        """
        self.check_parameters()
        features, labels = checks.training_pair(X, Y)
        threads = _core.thread_count(self.n_jobs)
        with Bars() if self.verbose else Progress() as progress:
            tree = self._index(features, labels, label_features, threads, progress)
            given = self._given(shortlist, labels)
            layers = self._train(features, labels, tree, given, threads, progress)
        self._set_learned(tree, layers, features.widths)
        return self

    def predict(
        self, X: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None
    ) -> sp.csr_array:
        """Scores of the `top_k` best labels of every row, rows x labels, each row sorted best first.

        Ties go to the lower label. Rows without features get no labels.
        """
        searcher = self._searcher()
        queries = checks.features_like(X, self.widths_)
        with Bars() if self.verbose else Progress() as progress, progress.stage("rank") as report:
            indptr, labels, scores = searcher.predict(
                queries,
                top_k=checks.positive_int(top_k, "top_k"),
                beam_width=self._beam(beam_width),
                threads=_core.thread_count(self.n_jobs),
                report=report,
            )
        return sp.csr_array((scores, labels, indptr), shape=(queries.rows, self.tree_.n_labels))

    def rank(
        self, x: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The `top_k` best labels of one query and their scores, best first.

        Parameters
        ----------
        x : one row of what `fit` took; an array may have one dimension
        """
        searcher = self._searcher()
        if isinstance(x, np.ndarray) and x.ndim == 1:
            x = x[None, :]
        query = checks.features_like(x, self.widths_, "x")
        if query.rows != 1:
            raise InputError(f"x has {query.rows} rows, rank takes one; use predict for many")
        return searcher.rank(query, top_k=checks.positive_int(top_k, "top_k"), beam_width=self._beam(beam_width))

    def predict_selected(self, X: FeaturesLike, candidates: LabelsLike) -> sp.csr_array:
        """The scores of given (row, label) pairs only, whether the search would have reached them or not.

        Parameters
        ----------
        candidates : sparse matrix or array_like of shape (n, labels)
            Which pairs; the values do not matter. The result has the same entries.
        """
        searcher = self._searcher()
        queries = checks.features_like(X, self.widths_)
        wanted = checks.features(candidates, "candidates").sparse if sp.issparse(candidates) else checks.labels(candidates, "candidates")
        if (wanted.rows, wanted.cols) != (queries.rows, self.tree_.n_labels):
            raise InputError(
                f"candidates is {wanted.rows} x {wanted.cols}, it must be {queries.rows} rows x "
                f"{self.tree_.n_labels} labels"
            )
        scores = searcher.selected(queries, wanted, threads=_core.thread_count(self.n_jobs))
        return sp.csr_array((scores, wanted.indices, wanted.indptr), shape=(wanted.rows, wanted.cols))

    def score(self, X: FeaturesLike, Y: LabelsLike) -> float:
        """P@1, what scikit-learn compares models by unless told otherwise."""
        return metrics.precision(Y, self.predict(X, top_k=1), k=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a folder, in one step: a reader sees the old model or the new one, never half of it."""
        self._searcher()
        parameters = {name: value for name, value in self.get_params().items() if name != "tree"}
        if not isinstance(self.alpha, (int, float)):
            parameters["alpha"] = np.asarray(self.alpha, np.float64).tolist()
        shape = {
            "sparse_features": self.widths_[0],
            "dense_features": self.widths_[1],
            "transforms": [layer.transform.name for layer in self.layers_],
        }
        arrays: dict[str, NDArray[Any]] = {}
        for level, (layer, parents) in enumerate(zip(self.layers_, self.tree_.parents, strict=True), 1):
            arrays |= {
                f"{level}.parents": parents,
                f"{level}.weights.indptr": layer.weights.indptr,
                f"{level}.weights.positions": layer.weights.indices,
                f"{level}.weights.values": layer.weights.values,
                f"{level}.dense": layer.dense,
                f"{level}.offsets": layer.offsets,
            }
        store.save(path, store.Saved(KIND, parameters, shape, arrays), version=__version__)

    @classmethod
    def from_saved(cls, saved: store.Saved) -> Self:
        """The model in an opened folder; what :func:`carya.load` calls."""
        try:
            lists_as_tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.parameters.items()}
            model = cls(**lists_as_tuples)
            widths = (int(saved.shape["sparse_features"]), int(saved.shape["dense_features"]))
            names = saved.shape["transforms"]
            tree = LabelTree([saved.arrays[f"{level}.parents"] for level in range(1, len(names) + 1)])
            layers = []
            for level, name in enumerate(names, 1):
                order, chunks = tree.children(level)
                weights, dense = f"{level}.weights", saved.arrays[f"{level}.dense"]
                if dense.shape != (order.size, widths[1]) or saved.arrays[f"{weights}.indptr"].size != widths[0] + 1:
                    raise InputError(f"layer {level} has weights of another shape")
                layers.append(
                    Layer(
                        weights=Csr.of(
                            saved.arrays[f"{weights}.indptr"],
                            saved.arrays[f"{weights}.positions"],
                            saved.arrays[f"{weights}.values"],
                            order.size,
                            f"the weights of layer {level}",
                        ),
                        dense=dense,
                        offsets=saved.arrays[f"{level}.offsets"],
                        chunks=chunks,
                        order=order,
                        transform=Transform.named(name),
                    )
                )
            if len(saved.arrays) != _ARRAYS_PER_LAYER * len(layers):
                raise InputError(f"{len(saved.arrays)} arrays are too many for {len(layers)} layers")
            model._set_learned(tree, layers, widths)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFormatError(f"the model's arrays do not fit together: {error}") from None
        return model

    @classmethod
    def from_layers(cls, tree: LabelTree, layers: Sequence[Layer], widths: tuple[int, int], **parameters: Any) -> Self:
        """A model made of layers trained elsewhere."""
        model = cls(tree=tree, **parameters)
        model._set_learned(tree, layers, widths)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "layers_")

    def _set_learned(self, tree: LabelTree, layers: Sequence[Layer], widths: tuple[int, int]) -> None:
        self.tree_ = tree
        self.layers_ = list(layers)
        self.widths_ = widths
        self.n_features_in_ = sum(widths)
        self._search = Searcher(self.layers_)

    def _searcher(self) -> Searcher:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._search

    def _beam(self, beam_width: int | None) -> int:
        return self.beam_width if beam_width is None else checks.positive_int(beam_width, "beam_width")

    def _index(
        self, features: Features, labels: Csr, label_features: FeaturesLike | None, threads: int, progress: Progress
    ) -> LabelTree:
        if self.tree is not None:
            if self.tree.n_labels != labels.cols:
                raise InputError(f"the tree has {self.tree.n_labels} labels, Y has {labels.cols}")
            return self.tree
        shape = {"branching": self.branching, "max_leaf": self.max_leaf, "max_depth": self.max_depth}
        if self.clustering == "random":
            return indexing.random_tree(labels.cols, seed=self.seed, **shape)
        if self.max_depth == 1 or labels.cols <= self.max_leaf:
            return LabelTree.flat(labels.cols)
        representation = self._represent(features, labels, label_features, threads, progress)
        with progress.stage("build the label tree") as report:
            return indexing.cluster(
                representation,
                spherical=self.clustering == "spherical",
                balanced=self.balanced,
                bisect=self.bisect,
                seed=self.seed,
                threads=threads,
                report=report,
                **shape,
            )

    def _represent(
        self, features: Features, labels: Csr, label_features: FeaturesLike | None, threads: int, progress: Progress
    ) -> Features:
        weighted = labels if self.costs != "none" else labels.with_values(1)
        own = None
        if self.representation in ("lf", "pifa+lf", "pifa-concat-lf"):
            if label_features is None:
                raise InputError(f"representation={self.representation!r} needs label_features in fit")
            own = checks.features(label_features, "label_features")
            if own.rows != labels.cols:
                raise InputError(f"label_features have {own.rows} rows, Y has {labels.cols} labels")
            if self.representation == "lf":
                return own
        elif label_features is not None:
            raise InputError(f"label_features are given but representation={self.representation!r} does not use them")
        if self.representation == "pii":
            return indexing.pii(weighted)
        if self.representation == "spectral":
            return indexing.spectral(weighted, seed=self.seed)
        with progress.stage("represent the labels") as report:
            aggregated = indexing.pifa(features, weighted, keep=self.index_features, threads=threads, report=report)
        if own is None:
            return aggregated
        if self.representation == "pifa-concat-lf":
            return indexing.concatenate(aggregated, own)
        return indexing.pifa_with_features(aggregated, own, self.alpha)

    def _given(self, shortlist: LabelsLike | None, labels: Csr) -> Csr | None:
        wants = self.negatives if isinstance(self.negatives, str) else "+".join(self.negatives)
        if shortlist is None:
            if "given" in wants:
                raise InputError(f"negatives={self.negatives!r} needs a shortlist in fit")
            return None
        if "given" not in wants:
            raise InputError(f"a shortlist is given but negatives={self.negatives!r} does not use it")
        given = checks.labels(shortlist, "shortlist")
        if (given.rows, given.cols) != (labels.rows, labels.cols):
            raise InputError(
                f"shortlist is {given.rows} x {given.cols}, it must be {labels.rows} x {labels.cols} as Y is"
            )
        return given

    def _train(
        self, features: Features, labels: Csr, tree: LabelTree, given: Csr | None, threads: int, progress: Progress
    ) -> list[Layer]:
        """Algorithm 2. Layers that need no prediction of those above them are trained together, as one pool of work."""
        negatives = [matching.Negatives.named(name) for name in per_layer(self.negatives, tree.depth, "negatives")]
        transforms = [Transform.named(name) for name in per_layer(self.transform, tree.depth, "transform")]
        targets = matching.level_targets(labels, tree, costs=self.costs)
        given_targets = None if given is None else matching.level_targets(given, tree)
        ranker = self._ranker()
        layers: list[Layer] = []
        pending: list[Problem] = []

        def train_pending() -> None:
            first, last = len(layers) + 1, len(layers) + len(pending)
            which = f"layer {first}" if first == last else f"layers {first}–{last}"
            with progress.stage(f"train {which} of {tree.depth}") as report:
                layers.extend(ranker.train(features, pending, threads=threads, report=report))
            pending.clear()

        for level in range(1, tree.depth + 1):
            shortlist = None
            if level > 1:
                sources = []
                if "teacher" in negatives[level - 1]:
                    sources.append(targets[level - 2])
                if "given" in negatives[level - 1] and given_targets is not None:
                    sources.append(given_targets[level - 2])
                if "matcher" in negatives[level - 1]:
                    train_pending() if pending else None
                    with progress.stage(f"match layer {level}") as report:
                        sources.append(
                            Searcher(layers).shortlist(
                                features, beam_width=self.beam_width, threads=threads, report=report
                            )
                        )
                shortlist = matching.shortlist(sources)
            order, chunks = tree.children(level)
            pending.append(Problem(level, targets[level - 1], shortlist, order, chunks, transforms[level - 1]))
        train_pending()
        return layers

    def _ranker(self) -> LinearRanker:
        if self.representation == "pifa+lf" and np.ndim(self.alpha) == 0 and float(self.alpha) > 1:  # type: ignore[arg-type]
            raise ParameterError(f"alpha must be between 0 and 1, got {self.alpha!r}")
        return LinearRanker(
            loss=self.loss,
            cost=self.cost,
            positive_cost=self.positive_cost,
            negative_cost=self.negative_cost,
            own_costs=self.costs != "none",
            bias=self.bias,
            tolerance=self.tolerance,
            max_passes=self.max_passes,
            threshold=self.threshold,
            max_weights=self.max_weights,
            seed=self.seed,
        )
