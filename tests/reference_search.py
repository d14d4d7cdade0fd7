"""Reference beam search in float64, used to check the results of the native search in float32.

Both searches order nodes by the same quantity: the log score if all layers have hinge transforms, which is the default,
and the score otherwise. The reference also computes a bound on the rounding error of each native score. The order of
two nodes is certain if their scores differ by more than the sum of their error bounds, or if their scores are exactly
equal, in which case the node with the lower index comes first. The native search may keep a different beam only if the
order of a kept node and a pruned node is uncertain. In this case, the reference tries all beams that are possible
within the error bounds, and no others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from carya import XRLinear
from carya.trees.transforms import Transform

#: Unit roundoff of float32: the maximum relative error of one operation.
ROUNDOFF = 2.0**-24
#: Bound on the relative error (about 10^-6) of the exponential function in native/kernels/simd.hpp.
EXP_ERROR = 2e-6
#: Smallest result of the exponential function in simd.hpp, which clamps its argument to at least -80.
MIN_EXP = math.exp(-80)
#: Smallest normal float32 number; smaller products lose relative precision.
MIN_NORMAL = 2.0**-126
NEAR_ONE = 1 - 2.0**-20  # above this score, only log scores can represent small differences
#: Sums of multiples of 1/16 below 2^20 have at most 24 significant bits, so float32 computes them exactly.
_DYADIC, _MAX_EXACT = 16.0, 2.0**20
#: Maximum number of beams to try if rounding errors make the beam ambiguous.
_MAX_BEAMS = 2000


class AmbiguityError(Exception):
    """Raised if rounding errors allow so many different beams that not all of them can be tried."""


@dataclass(frozen=True)
class NodeScore:
    """The score by which the native search orders nodes.

    Attributes
    ----------
    node : int
    score : float
        The log score if all transforms are hinge transforms, otherwise the score.
    error : float
        A bound on the rounding error of the native score; 0 if all intermediate results are exact in float32.
    steps : tuple
        The operations that produce the score; native scores with equal steps are bit-identical.
    """

    node: int
    score: float
    error: float
    steps: tuple[object, ...]

    def precedes(self, other: NodeScore) -> bool:
        """Return whether this node certainly precedes another node, whatever the rounding errors are."""
        if self.steps == other.steps or (self.score == other.score and self.error == other.error == 0):
            return self.node < other.node
        return self.score - self.error > other.score + other.error


class ReferenceSearch:
    """Pure-Python beam search over the layers of a fitted model."""

    def __init__(self, model: XRLinear) -> None:
        self.tree, self.layers = model.tree_, model.layers_
        self.weights = [layer.matrix().toarray().astype(np.float64) for layer in model.layers_]
        self.in_logs = all(layer.transform.kind == "hinge" for layer in model.layers_)

    def rank(self, x: np.ndarray, *, top_k: int, beam_width: int) -> list[tuple[int, float]]:
        """Return the `top_k` best (label, score) pairs by descending score; equal scores are sorted by label."""
        if not x.any():
            return []
        labels = next(self._last_levels(x, beam_width))
        labels.sort(key=lambda label: (-label.score, label.node))
        return [(label.node, self._shown(label.score)) for label in labels[:top_k]]

    def score(self, x: np.ndarray, label: int) -> float:
        """Return the score of a label, whether or not it is in the beam; if it has several leaves, the best score."""
        return max(self._shown(self._path(x, leaf).score) for leaf in self.tree.leaves(label))

    def check(self, x: np.ndarray, ranking: Sequence[tuple[int, float]], *, top_k: int, beam_width: int) -> None:
        """Raise AssertionError if rounding errors cannot explain how a native ranking differs from the reference."""
        if not x.any():
            assert not ranking, f"a query without features must return no labels, got {ranking}"
            return
        reasons = []
        for labels in self._last_levels(x, beam_width):
            reason = self._difference(labels, ranking, top_k)
            if reason is None:
                return
            reasons.append(reason)
        raise AssertionError(f"top_k={top_k}, beam_width={beam_width}, {len(reasons)} possible beams: {reasons[0]}")

    def _difference(self, labels: Sequence[NodeScore], ranking: Sequence[tuple[int, float]], top_k: int) -> str | None:
        """Describe how a ranking differs from the candidates at the last level; return None if it does not."""
        reference = {label.node: label for label in labels}
        ranked = [label for label, _ in ranking]
        if len(ranking) != min(top_k, len(labels)) or len(set(ranked)) != len(ranked):
            return f"{len(ranking)} labels ranked, {len(labels)} candidates"
        if not set(ranked) <= reference.keys():
            return f"labels {sorted(set(ranked) - reference.keys())} are not in the beam"
        for label, score in ranking:
            expected, error = self._shown(reference[label].score), self._shown_error(reference[label])
            if abs(score - expected) > error:
                return f"label {label} has score {score!r}, expected {expected!r} ± {error:.2g}"
        for first, second in itertools.combinations(ranked, 2):
            if reference[second].precedes(reference[first]):
                return f"label {first} is ranked before {second}"
        for label in reference.keys() - set(ranked):
            if ranked and any(reference[label].precedes(reference[other]) for other in ranked):
                return f"label {label} is missing"
        return None

    def _shown(self, score: float) -> float:
        return math.exp(score) if self.in_logs else score

    def _shown_error(self, node: NodeScore) -> float:
        if not self.in_logs:
            return node.error + 2 * ROUNDOFF * abs(node.score)
        return math.exp(node.score) * (math.expm1(min(node.error, 80)) + EXP_ERROR) + MIN_EXP

    def _last_levels(self, x: np.ndarray, beam_width: int) -> Iterator[list[NodeScore]]:
        """Yield the scored labels at the last level for each possible beam, up to _MAX_BEAMS."""
        raw = [self._raw_scores(x, level) for level in range(self.tree.depth)]
        beams = 0

        def descend(level: int, beam: Sequence[NodeScore] | None) -> Iterator[list[NodeScore]]:
            nonlocal beams
            candidates = self._children(level, beam, *raw[level])
            if level == self.tree.depth - 1:
                beams += 1
                if beams > _MAX_BEAMS:
                    raise AmbiguityError
                yield self._to_labels(candidates)
                return
            for kept in _possible_cuts(candidates, beam_width):
                yield from descend(level + 1, kept)

        yield from descend(0, None)

    def _children(
        self, level: int, beam: Sequence[NodeScore] | None, scores: np.ndarray, errors: np.ndarray
    ) -> list[NodeScore]:
        transform, parents = self.layers[level].transform, self.tree.parents[level]
        above = {0: None} if beam is None else {node.node: node for node in beam}
        return [
            _combine(transform, above[parent], node, float(scores[node]), float(errors[node]), self.in_logs)
            for node, parent in enumerate(parents.tolist())
            if parent in above
        ]

    def _to_labels(self, leaves: list[NodeScore]) -> list[NodeScore]:
        """Merge the leaves of each label; its score is that of its best leaf."""
        if self.tree.leaf_labels is None:
            return leaves
        labels: dict[int, NodeScore] = {}
        for leaf in leaves:
            label = int(self.tree.leaf_labels[leaf.node])
            other = labels.get(label)
            better = leaf if other is None or leaf.score > other.score else other
            error = max(leaf.error, 0 if other is None else other.error)
            labels[label] = NodeScore(label, better.score, error, better.steps)
        return list(labels.values())

    def _path(self, x: np.ndarray, leaf: int) -> NodeScore:
        node: NodeScore | None = None
        for level, layer in enumerate(self.layers):
            number = int(self.tree.clusters(level + 1)[leaf])
            scores, errors = self._raw_scores(x, level)
            node = _combine(layer.transform, node, number, float(scores[number]), float(errors[number]), self.in_logs)
        assert node is not None
        return node

    def _raw_scores(self, x: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the raw score h of each node at a level, and a bound on its float32 rounding error."""
        terms = np.append(x, 1.0)[:, None] * self.weights[level]
        magnitudes = np.abs(terms).sum(axis=0)
        operations = np.count_nonzero(x) + 2  # one per term, one for the scale of int8 weights and one for the bias
        errors = operations * ROUNDOFF * magnitudes
        if self.layers[level].weights.dtype != "int8":
            exact = (magnitudes < _MAX_EXACT) & (terms * _DYADIC == np.round(terms * _DYADIC)).all(axis=0)
            errors = np.where(exact, 0.0, errors)
        return terms.sum(axis=0), errors


def _combine(
    transform: Transform, parent: NodeScore | None, node: int, h: float, raw_error: float, in_logs: bool
) -> NodeScore:
    """Return σ(g, h) and its error bound; the parent's score g is None for the children of the root."""
    # Native raw scores of two nodes can differ by rounding errors even if the reference computes the same value.
    step: object = (transform, h) if raw_error == 0 else (transform, h, node)
    if transform.kind == "noop":
        return NodeScore(node, h, raw_error, (step,))
    steps = (step,) if parent is None else (*parent.steps, step)
    if transform.is_multiplicative and not in_logs:
        factor, relative_error = _factor(transform, h, raw_error)
        g, parent_error = (1.0, 0.0) if parent is None else (parent.score, parent.error)
        error = parent_error * factor + (abs(g) + parent_error) * (factor * relative_error + 2 * MIN_EXP) + MIN_NORMAL
        return NodeScore(node, g * factor, error, steps)
    term, term_error = _log_term(transform, h, raw_error)
    g, parent_error = (0.0, 0.0) if parent is None else (parent.score, parent.error)
    total, error = g + term, parent_error + term_error
    if error > 0 or float(np.float32(total)) != total:
        error += ROUNDOFF * abs(total)
    return NodeScore(node, total, error, steps)


def _factor(transform: Transform, h: float, raw_error: float) -> tuple[float, float]:
    """Return the factor of a multiplicative transform and a bound on its relative error."""
    if transform.kind == "sigmoid":
        return 1 / (1 + math.exp(-h)), raw_error + EXP_ERROR + 4 * ROUNDOFF
    exponent, error = _log_term(transform, h, raw_error)
    return math.exp(exponent), math.expm1(min(error, 80)) + EXP_ERROR + 4 * ROUNDOFF


def _log_term(transform: Transform, h: float, raw_error: float) -> tuple[float, float]:
    """Return the logarithm of a transformed score and a bound on its absolute error."""
    if "sigmoid" in transform.kind:
        logarithm = -np.logaddexp(0.0, -h)
        return float(logarithm), raw_error + 4 * ROUNDOFF * (abs(float(logarithm)) + abs(h))
    power, shortfall = transform.power, max(0.0, 1.0 - h)
    term = -(shortfall**power)
    if raw_error == 0 and power in (1, 2, 3, 4) and float(np.float32(term)) == term:
        return term, 0.0
    largest = shortfall + raw_error + ROUNDOFF
    return term, largest**power - shortfall**power + 8 * ROUNDOFF * shortfall**power


def _possible_cuts(candidates: Sequence[NodeScore], count: int) -> Iterator[tuple[NodeScore, ...]]:
    """Yield each set of `count` candidates that can be the best within the error bounds, the most likely set first."""
    if len(candidates) <= count:
        yield tuple(candidates)
        return
    ordered = sorted(candidates, key=lambda candidate: (-candidate.score, candidate.node))
    numbers = range(len(ordered))
    before = [{other for other in numbers if ordered[other].precedes(ordered[number])} for number in numbers]
    after = [sum(number in predecessors for predecessors in before) for number in numbers]
    certain = [number for number in numbers if len(ordered) - 1 - after[number] < count]
    undecided = [number for number in numbers if len(before[number]) < count and number not in certain]
    free = count - len(certain)
    if math.comb(len(undecided), free) > _MAX_BEAMS:
        raise AmbiguityError
    for chosen in itertools.combinations(undecided, free):
        kept = {*certain, *chosen}
        if all(before[number] <= kept for number in chosen):
            yield tuple(ordered[number] for number in sorted(kept))
