"""Build a label tree with the label representation and the clustering selected by the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import validation
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress, Report
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError
from carya.indexing import clustering, representations
from carya.indexing.representations import GRAPH_DIMENSIONS, SPECTRAL_DIMENSIONS
from carya.trees.label_tree import LabelTree

#: Label representations of the same data, keyed by the settings on which they depend.
RepresentationCache = dict[object, _core.LabelGroup]
#: The names of the label representations.
REPRESENTATIONS = ("pifa", "pii", "pifa+lf", "pifa-concat-lf", "lf", "graph", "pifa-concat-graph", "spectral")


class Aggregator(Protocol):
    """Function that computes the PIFA representation in several processes, with the same results as a single one."""

    def __call__(self, labels: Csr, *, keep: float | None, for_group: bool, report: Report) -> Features:
        """Return one row per label; for the parameters, see :func:`representations.aggregate`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Builder of label trees; its attributes are the :class:`carya.XRLinear` parameters of the same name."""

    branching: int
    max_leaf_size: int
    max_depth: int | None
    representation: str
    alpha: float | ArrayLike
    index_features: float | None
    clustering: str
    balanced: bool
    bisect: bool
    seed: int
    embedding_dimensions: int | None = None

    def build(
        self,
        features: Features,
        labels: Csr,
        label_features: FeaturesLike | None = None,
        *,
        label_graph: LabelsLike | None = None,
        sample_weight: NDArray[np.float32] | None = None,
        threads: int,
        progress: Progress,
        cache: RepresentationCache | None = None,
        aggregator: Aggregator | None = None,
    ) -> LabelTree:
        """Build a label tree from the training data.

        Parameters
        ----------
        features : Features
            The features of the training rows.
        labels : Csr of shape (rows, labels)
            The labels of the training rows; a value is the weight of the row in the representation of the label.
        label_features : features with one row per label, optional
        label_graph : matrix of shape (labels, labels), optional
            Edge weights between labels; by default, co-occurrence counts.
        sample_weight : ndarray of float32, shape (rows,), optional
            Positive weights of the rows. An integer weight has the same effect on the label representations as
            repeating the row that many times.
        cache : dict, optional
            Label representations of the same data, shared by trees with the same representation settings.
        aggregator : Aggregator, optional
            The function that computes the PIFA representation; by default, it is computed by `threads` threads.
        """
        own_features = self._check_label_features(label_features, labels.cols)
        edges = self._check_label_graph(label_graph, labels, sample_weight)
        labels = self._weight_rows(labels, sample_weight)
        if self.clustering == "random":
            return clustering.random_tree(
                labels.cols,
                branching=self.branching,
                max_leaf_size=self.max_leaf_size,
                max_depth=self.max_depth,
                seed=self.seed,
            )
        if self.max_depth == 1 or labels.cols <= self.max_leaf_size:
            return LabelTree.flat(labels.cols)
        key = self._representation_key()
        group = None if cache is None else cache.get(key)
        if group is None:
            group = self._group(features, labels, own_features, edges, threads, progress, aggregator)
            if cache is not None:
                cache[key] = group
        with progress.stage("build label tree") as report:
            return clustering.cluster(
                group,
                branching=self.branching,
                max_leaf_size=self.max_leaf_size,
                max_depth=self.max_depth,
                spherical=self.clustering == "spherical",
                balanced=self.balanced,
                bisect=self.bisect,
                seed=self.seed,
                threads=threads,
                report=report,
            )

    def _representation_key(self) -> object:
        """Return the settings on which the representation depends, as a cache key."""
        return (
            self.representation,
            self.index_features,
            np.asarray(self.alpha).tobytes() if "+lf" in self.representation else None,
            self.seed if self.representation == "spectral" or "graph" in self.representation else None,
            self.clustering == "spherical",
            self.embedding_dimensions,
        )

    def _group(
        self,
        features: Features,
        labels: Csr,
        own_features: Features | None,
        edges: Csr | None,
        threads: int,
        progress: Progress,
        aggregator: Aggregator | None,
    ) -> _core.LabelGroup:
        with progress.stage("represent labels") as report:
            if self.representation == "pifa":  # compute the vectors in the form used by the clustering
                keep = self.index_features
                if aggregator is None:
                    return representations.pifa_group(features, labels, keep=keep, threads=threads, report=report)
                vectors = aggregator(labels, keep=keep, for_group=True, report=report)
                return _core.LabelGroup(vectors.native, threads)
            representation = self._represent(features, labels, own_features, edges, threads, report, aggregator)
            return _core.LabelGroup(representation.native, threads)

    def represent(
        self,
        features: Features,
        labels: Csr,
        label_features: FeaturesLike | None = None,
        *,
        label_graph: LabelsLike | None = None,
        sample_weight: NDArray[np.float32] | None = None,
        threads: int,
    ) -> Features:
        """Return the label representations, with one row per label. See :meth:`build` for the parameters."""
        own_features = self._check_label_features(label_features, labels.cols)
        edges = self._check_label_graph(label_graph, labels, sample_weight)
        return self._represent(features, self._weight_rows(labels, sample_weight), own_features, edges, threads, None)

    def _weight_rows(self, labels: Csr, sample_weight: NDArray[np.float32] | None) -> Csr:
        if sample_weight is None:
            return labels
        # An inner product of two PII vectors applies the weight of each row twice, so the square root is used.
        return labels.scale_rows(np.sqrt(sample_weight) if self.representation == "pii" else sample_weight)

    def _represent(
        self,
        features: Features,
        labels: Csr,
        own_features: Features | None,
        edges: Csr | None,
        threads: int,
        report: Report,
        aggregator: Aggregator | None = None,
    ) -> Features:
        if self.representation == "lf" and own_features is not None:
            representation = own_features
        elif self.representation == "pii":
            return representations.pii(labels)
        elif self.representation == "spectral":
            dimensions = self.embedding_dimensions or SPECTRAL_DIMENSIONS
            representation = representations.spectral(labels, dimensions=dimensions, seed=self.seed)
        elif self.representation == "graph" and edges is not None:
            representation = self._embed(edges)
        else:
            keep = self.index_features
            if aggregator is None:
                representation = representations.pifa(features, labels, keep=keep, threads=threads, report=report)
            else:
                representation = aggregator(labels, keep=keep, for_group=False, report=report)
            if self.representation == "pifa+lf" and own_features is not None:
                representation = representations.pifa_with_features(representation, own_features, self.alpha)
            elif self.representation == "pifa-concat-lf" and own_features is not None:
                representation = representations.concatenate(representation, own_features)
            elif self.representation == "pifa-concat-graph" and edges is not None:
                embedding = representations.normalize(self._embed(edges))
                representation = representations.concatenate(representation, embedding)
        return representations.normalize(representation) if self.clustering == "spherical" else representation

    def _embed(self, edges: Csr) -> Features:
        dimensions = self.embedding_dimensions or GRAPH_DIMENSIONS
        return representations.graph(edges, dimensions=dimensions, seed=self.seed)

    def _check_label_graph(
        self, label_graph: LabelsLike | None, labels: Csr, sample_weight: NDArray[np.float32] | None
    ) -> Csr | None:
        """Return the label graph if the representation uses one; raise InputError if it is given but not used."""
        if "graph" not in self.representation:
            if label_graph is not None:
                raise InputError(
                    f"label_graph is not used by representation={self.representation!r}. Omit it, or use a "
                    "representation with 'graph' in its name."
                )
            return None
        if label_graph is None:
            return representations.cooccurrence_graph(labels, sample_weight)
        edges = validation.check_labels(label_graph, "label_graph")
        if edges.rows != labels.cols:
            raise InputError(f"label_graph must have one row per label ({labels.cols}), got {edges.rows} rows.")
        return edges

    def _check_label_features(self, label_features: FeaturesLike | None, n_labels: int) -> Features | None:
        """Return the label features if the representation uses them; raise InputError if they are missing or unused."""
        used = "lf" in self.representation.replace("-", "+").split("+")
        if label_features is None:
            if used:
                raise InputError(
                    f"representation={self.representation!r} requires label features. Pass label_features to fit."
                )
            return None
        if not used:
            raise InputError(
                f"label_features is not used by representation={self.representation!r}. Omit it, or use a "
                "representation with 'lf' in its name."
            )
        return validation.check_label_features(label_features, n_labels)
