"""From a user's parameters to a label tree: which representation, which clustering."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from carya.core import validation
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError
from carya.indexing import clustering, representations
from carya.trees.label_tree import LabelTree

#: The representations, by name.
REPRESENTATIONS = ("pifa", "pii", "pifa+lf", "pifa-concat-lf", "lf", "graph", "pifa-concat-graph", "spectral")


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Phase 1 with its settings; :meth:`build` makes the tree. The parameters are those of :class:`carya.XRLinear`."""

    branching: int
    max_leaf: int
    max_depth: int | None
    representation: str
    alpha: float | ArrayLike
    index_features: int | None
    clustering: str
    balanced: bool
    bisect: bool
    seed: int

    def build(
        self,
        features: Features,
        labels: Csr,
        label_features: FeaturesLike | None,
        *,
        label_graph: LabelsLike | None = None,
        threads: int,
        progress: Progress,
        shared: dict[object, Features] | None = None,
    ) -> LabelTree:
        """The tree over the labels of some training rows.

        Parameters
        ----------
        features : Features, n rows
        labels : Csr, n rows x labels; values weigh the rows
        label_features : anything `checks.features` takes, one row a label, or None
        label_graph : anything `checks.labels` takes, labels x labels, or None
            How strongly labels are linked; None is by the rows they have in common.
        shared : dict, optional
            Representations of the same labels, for trees that differ in other things only.
        """
        own = self._own_features(label_features, labels.cols)
        links = self._links(label_graph, labels)
        if self.clustering == "random":
            return clustering.random_tree(
                labels.cols,
                branching=self.branching,
                max_leaf=self.max_leaf,
                max_depth=self.max_depth,
                seed=self.seed,
            )
        if self.max_depth == 1 or labels.cols <= self.max_leaf:
            return LabelTree.flat(labels.cols)
        key = self._representation_key()
        representation = None if shared is None else shared.get(key)
        if representation is None:
            representation = self._represent(features, labels, own, links, threads, progress)
            if shared is not None:
                shared[key] = representation
        with progress.stage("build the label tree") as report:
            return clustering.cluster(
                representation,
                branching=self.branching,
                max_leaf=self.max_leaf,
                max_depth=self.max_depth,
                spherical=self.clustering == "spherical",
                balanced=self.balanced,
                bisect=self.bisect,
                seed=self.seed,
                threads=threads,
                report=report,
            )

    def _representation_key(self) -> object:
        """What a representation depends on besides the data."""
        return (
            self.representation,
            self.index_features,
            np.asarray(self.alpha).tobytes() if "+lf" in self.representation else None,
            self.seed if self.representation == "spectral" or "graph" in self.representation else None,
            self.clustering == "spherical",
        )

    def _represent(
        self,
        features: Features,
        labels: Csr,
        own: Features | None,
        links: Csr | None,
        threads: int,
        progress: Progress,
    ) -> Features:
        with progress.stage("represent the labels") as report:
            if self.representation == "lf" and own is not None:
                representation = own
            elif self.representation == "pii":
                representation = representations.pii(labels)
            elif self.representation == "spectral":
                representation = representations.spectral(labels, seed=self.seed)
            elif self.representation == "graph" and links is not None:
                representation = representations.graph(links, seed=self.seed)
            else:
                representation = representations.pifa(
                    features, labels, keep=self.index_features, threads=threads, report=report
                )
                if self.representation == "pifa+lf" and own is not None:
                    representation = representations.pifa_with_features(representation, own, self.alpha)
                elif self.representation == "pifa-concat-lf" and own is not None:
                    representation = representations.concatenate(representation, own)
                elif self.representation == "pifa-concat-graph" and links is not None:
                    places = representations.unit(representations.graph(links, seed=self.seed))
                    representation = representations.concatenate(representation, places)
        if self.clustering == "spherical" and self.representation not in ("pifa", "pii"):
            representation = representations.unit(representation)
        return representation

    def _links(self, label_graph: LabelsLike | None, labels: Csr) -> Csr | None:
        """The graph of labels, if it is wanted; given and unwanted is an error."""
        if "graph" not in self.representation:
            if label_graph is not None:
                raise InputError(f"label_graph is given but representation={self.representation!r} does not use it")
            return None
        if label_graph is None:
            return representations.occurring_together(labels)
        links = validation.labels(label_graph, "label_graph")
        if links.rows != labels.cols:
            raise InputError(f"label_graph has {links.rows} rows, Y has {labels.cols} labels")
        return links

    def _own_features(self, label_features: FeaturesLike | None, n_labels: int) -> Features | None:
        """The labels' own features, if they are wanted; wanted and missing, or given and unwanted, is an error."""
        wanted = "lf" in self.representation.replace("-", "+").split("+")
        if label_features is None:
            if wanted:
                raise InputError(f"representation={self.representation!r} needs label_features in fit")
            return None
        if not wanted:
            raise InputError(f"label_features are given but representation={self.representation!r} does not use them")
        own = validation.features(label_features, "label_features")
        if own.rows != n_labels:
            raise InputError(f"label_features have {own.rows} rows, Y has {n_labels} labels")
        return own
