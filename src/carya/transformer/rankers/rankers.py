"""The rankers of a transformer model, all of them native: its heads on the encoder's vectors, a linear ranker on TF-IDF
and vectors side by side, one on TF-IDF alone, votes of texts with near vectors, and labels whose own texts have near
vectors. What they find is mixed as dev texts say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core, metrics
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.errors import InputError
from carya.models.ensemble.combine import combine_rankings, ranking_of
from carya.models.ensemble.weights import best_weights
from carya.models.neighbors.model import NearestNeighbours
from carya.models.xr_linear.model import XRLinear
from carya.transformer.rankers.mixture import Mixture, Said, crossed, keyed, pool_of
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import Learned
from carya.trees.transforms import Transform

#: The rankers by name.
NAMES = ("head", "concatenated", "linear", "neighbours", "label_texts")
#: What a ranker is.
Model = XRLinear | NearestNeighbours
_SHARPNESS = 7.0  # of the votes of neighbours; chosen on dev texts of debian-deps and tibkat-en
_POOL = 50  # labels that each ranker suggests
_CANDIDATES = 30  # of each ranker, if a network mixes them
_FEW_TEXTS, _MANY_TEXTS = 500, 20_000  # fewer are too few to learn a mixture from, more teach nothing new
_BLOCK = 8192  # texts whose candidates are in memory at once


@dataclass(frozen=True, eq=False)
class Inputs:
    """What rankers see of some texts: TF-IDF and vectors; side by side with TF-IDF, vectors have length `weight`."""

    sparse: sp.csr_array
    vectors: NDArray[np.float32]
    weight: float

    def of(self, name: str) -> Any:
        """What the ranker of that name takes."""
        if name == "concatenated":
            return self.sparse, self.vectors * np.float32(self.weight)
        return self.sparse if name == "linear" else self.vectors

    @property
    def rows(self) -> int:
        """How many texts."""
        return len(self.vectors)

    def take(self, rows: slice | NDArray[np.int64]) -> Inputs:
        """Of some texts."""
        return replace(self, sparse=self.sparse[rows], vectors=self.vectors[rows])


@dataclass(frozen=True, eq=False)
class Rankers:
    """Rankers and how much each counts.

    Attributes
    ----------
    models : dict of str to model
    weights : dict of str to float
        Of the same names; they add up to 1.
    mixture : Mixture or None
        What mixes them instead of a sum with these weights.
    """

    models: Mapping[str, Model]
    weights: Mapping[str, float]
    mixture: Mixture | None = None

    @property
    def n_labels(self) -> int:
        """How many labels they rank."""
        return int(next(iter(self.models.values())).n_labels_)

    def predict(
        self, inputs: Inputs, *, top_k: int, beam_width: int | None = None, using: str | None = None, threads: int
    ) -> sp.csr_array:
        """Scores of the best labels of every text, by all rankers together or by one."""
        if using is not None:
            if using not in self.models:
                raise InputError(f"using must be one of {', '.join(map(repr, self.models))} or None, got {using!r}")
            return self._ask(using, inputs, top_k, beam_width)
        if inputs.rows == 0:
            return sp.csr_array((0, self.n_labels), dtype=np.float32)
        if self.mixture is not None:
            parts = []
            for first in range(0, inputs.rows, _BLOCK):
                block = inputs.take(slice(first, first + _BLOCK))
                said = self.said(
                    block, [self._ask(name, block, max(top_k, _CANDIDATES), beam_width) for name in self.models]
                )
                parts.append(self.mixture.rank(said, top_k=top_k))
            return sp.csr_array(sp.vstack(parts, format="csr")) if len(parts) > 1 else parts[0]
        names = [name for name in self.models if self.weights[name] > 0]
        if len(names) == 1:
            return self._ask(names[0], inputs, top_k, beam_width)
        found = [ranking_of(self._ask(name, inputs, max(top_k, _POOL), beam_width)) for name in names]
        weights = np.array([self.weights[name] for name in names], np.float32)
        indptr, labels, scores = combine_rankings(found, combine="mean", weights=weights, top_k=top_k, threads=threads)
        return sp.csr_array((scores, labels, indptr), shape=(indptr.size - 1, self.n_labels))

    def said(self, inputs: Inputs, found: Sequence[sp.csr_array]) -> Said:
        """What every ranker says of all that they found."""
        pool = pool_of(found)
        wanted = pool.matrix().to_scipy()
        scores = {}
        for (name, model), own in zip(self.models.items(), found, strict=True):
            if isinstance(model, XRLinear):
                scores[name] = model.predict_selected(inputs.of(name), wanted).data
            else:  # what nobody near votes for has no votes
                scores[name] = pool.lookup(*keyed(own))
        return Said(pool, scores)

    def _ask(self, name: str, inputs: Inputs, top_k: int, beam_width: int | None) -> sp.csr_array:
        about = {} if name == "neighbours" else {"beam_width": beam_width}
        return self.models[name].predict(inputs.of(name), top_k=top_k, **about)


def mixed(
    models: Mapping[str, Model],
    inputs: Inputs,
    truth: sp.csr_array,
    frequency: NDArray[np.float32],
    *,
    how: str,
    seed: int,
    threads: int,
) -> tuple[Rankers, dict[str, dict[str, float]]]:
    """Rankers mixed as ranks texts best that they were not trained on, and how good each and the mixture is.

    Parameters
    ----------
    frequency : array
        As :class:`Mixture` has it.
    how : {"auto", "learned", "weights"}
        A network that is learned, or weights; auto is what ranks texts better that it was not learned from. Weights
        too if the texts have nothing to learn from.
    """
    found = {name: model.predict(inputs.of(name), top_k=_POOL) for name, model in models.items()}
    summed = _summed(models)
    weights = best_weights([ranking_of(found[name]) for name in summed], truth, combine="mean", threads=threads)
    by_name = dict.fromkeys(models, 0.0) | dict(zip(summed, (weights / weights.sum()).tolist(), strict=True))
    rankers = Rankers(models, by_name)
    reports = {name: report(truth, one) for name, one in found.items()}
    reports["mixed"] = report(truth, rankers.predict(inputs, top_k=5, threads=threads))
    if how == "weights" or (how == "auto" and truth.shape[0] < _FEW_TEXTS):
        return rankers, reports
    some = np.sort(np.random.default_rng([seed, 3]).permutation(truth.shape[0])[:_MANY_TEXTS])
    said = rankers.said(inputs.take(some), [_best(one, _CANDIDATES)[some] for one in found.values()])
    relevant = said.relevant(truth[some])
    try:
        tried = report(truth[some], crossed(said, relevant, frequency, seed))
        mixture = Mixture.learned(said, relevant, frequency, seed)
    except InputError:  # nothing right was found for them: there is nothing to learn
        return rankers, reports
    if how == "auto":
        summed_up = report(truth[some], rankers.predict(inputs.take(some), top_k=5, threads=threads))
        if sum(tried.values()) <= sum(summed_up.values()):
            return rankers, reports
    return replace(rankers, mixture=mixture), reports | {"mixed": tried}


def _summed(models: Mapping[str, Model]) -> list[str]:
    """Rankers that have a weight: all but the texts of labels, of which the head has its part already."""
    return [name for name in models if name != "label_texts"]


def _best(found: sp.csr_array, count: int) -> sp.csr_array:
    """The first of every row, which are the best."""
    sizes = np.diff(found.indptr)
    kept = np.arange(found.indices.size) - np.repeat(found.indptr[:-1], sizes) < count
    indptr = np.concatenate([[0], np.cumsum(np.minimum(sizes, count))])
    return sp.csr_array((found.data[kept], found.indices[kept], indptr), shape=found.shape)


def alike(models: Mapping[str, Model]) -> Rankers:
    """Rankers that count equally, when no texts can tell."""
    summed = _summed(models)
    return Rankers(models, dict.fromkeys(models, 0.0) | dict.fromkeys(summed, 1 / len(summed)))


def by_neighbours(vectors: NDArray[np.float32], labels: Csr, *, neighbours: int, n_jobs: int) -> NearestNeighbours:
    """Votes of the texts with the nearest vectors for their labels."""
    votes = NearestNeighbours(
        over="rows", ranker=None, search="exact", neighbours=neighbours, sharpness=_SHARPNESS, n_jobs=n_jobs
    )
    return votes.fit(vectors, labels.to_scipy())


def head_ranker(
    weights: list[tuple[NDArray[np.float32], NDArray[np.float32]]],
    tree: LabelTree,
    *,
    transform: str,
    beam_width: int,
    n_jobs: int,
) -> XRLinear:
    """Heads as a model of their own.

    Parameters
    ----------
    weights : for each level of the tree the weights, nodes x width, and the biases
    """
    layers = []
    for level, (dense, offsets) in enumerate(weights, 1):
        order, chunks = tree.children(level)
        nothing = Csr.of(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), order.size)
        layers.append(
            Layer(
                weights=Weights.pack(nothing, chunks, "float32"),
                dense=np.ascontiguousarray(dense[order]),
                offsets=np.ascontiguousarray(offsets[order]),
                chunks=chunks,
                order=order,
                transform=Transform.named(transform),
            )
        )
    learned = Learned(tree, layers, (0, weights[-1][0].shape[1]), 0.0)
    return XRLinear.from_learned(
        learned, transform=transform, precision="float32", beam_width=beam_width, n_jobs=n_jobs
    )


def report(truth: sp.csr_array, S: sp.csr_array) -> dict[str, float]:
    """P@1, P@3 and P@5."""
    return {name: value for name, value in metrics.report(truth, S, k=(1, 3, 5)).items() if name.startswith("P@")}


def threads_of(n_jobs: int) -> int:
    """How many threads that is."""
    return _core.thread_count(n_jobs)
