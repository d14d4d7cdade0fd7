"""A small neural ranker over pair features: one hidden layer, trained on whole rankings at once, in plain NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import Parameterised, parameter
from carya.core.rules import Choice, Integer, Real
from carya.errors import InputError, NotFittedError
from carya.ranking.pairs import Pairs

_ARRAYS = ("centre", "scale", "hidden", "hidden_bias", "output")
_CLIP = 4.0  # standard deviations; a value further out says no more
_DECAYS = (0.9, 0.999)
_SMALL = 1e-8


@dataclass(eq=False, repr=False, kw_only=True)
class NeuralRanker(Parameterised):
    """A network of one hidden layer that learns which candidates of a query should share the probability.

    For scores s = v·relu(W x + b) and relevances r of a query's candidates it minimises the cross entropy between
    r / Σr and softmax(s) (ListNet, Cao et al. 2007) with Adam; the step falls to 0 along a cosine.

    Examples
    --------
    >>> import numpy as np
    >>> from carya.ranking import NeuralRanker, Pairs
    >>> rng = np.random.default_rng(0)
    >>> pairs = Pairs.of(rng.random((600, 2)), ["distance", "noise"], np.arange(0, 601, 6))
    >>> near = (np.abs(pairs.column("distance") - 0.5) < 0.1).astype(np.float32)
    >>> scores = NeuralRanker(passes=40).fit(pairs, near).score(pairs)
    >>> bool(scores[near == 1].mean() > scores[near == 0].mean() + 1)
    True
    """

    name: ClassVar[str] = "neural"

    width: int = parameter(32, Integer(1), "the units of the hidden layer")
    passes: int = parameter(20, Integer(1), "how often training sees each query")
    batch: int = parameter(64, Integer(1), "queries in a step")
    learning_rate: float = parameter(0.005, Real(0, above=True), "the size of the first steps")
    decay: float = parameter(1e-4, Real(0), "the weight of squared weights in what is minimised")
    standardise: bool = parameter(True, Choice(True, False), "bring features to mean 0 and deviation 1 first")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "same seed, same ranker")

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Train the network; `relevance` is at least 0 for each pair, usually 0 or 1."""
        self.check_parameters()
        targets = np.asarray(relevance, np.float32)
        if targets.shape != (len(pairs),):
            raise InputError(f"relevance has the shape {targets.shape}, there are {len(pairs)} pairs")
        if not (np.isfinite(targets) & (targets >= 0)).all():
            raise InputError("relevance must be finite and at least 0")
        if not targets.any():
            raise InputError("no pair is relevant: there is nothing to learn")
        self._set_learned(self._train(pairs, targets), pairs.names)
        return self

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """What the network says of each pair."""
        weights = self._ready()
        if pairs.names != self.names_:
            raise InputError(f"the ranker was trained on {', '.join(self.names_)}; got {', '.join(pairs.names)}")
        # In 64 bits, so that a pair has the same score however many are scored with it: kernels add in other orders.
        wide = {name: array.astype(np.float64) for name, array in weights.items()}
        hidden = _inputs(pairs.values, weights).astype(np.float64) @ wide["hidden"] + wide["hidden_bias"]
        return np.asarray(np.maximum(hidden, 0) @ wide["output"], np.float32)

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Parameters, and the weights."""
        return {"parameters": self.get_params(), "names": list(self.names_)}, dict(self._ready())

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The ranker that was kept."""
        ranker = cls(**parameters["parameters"])
        ranker.check_parameters()
        names = tuple(str(name) for name in parameters["names"])
        width, units = len(names), int(ranker.width)
        shapes = dict(zip(_ARRAYS, [(width,), (width,), (width, units), (units,), (units,)], strict=True))
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise InputError("the arrays of the ranker are not those of its network")
        if any(array.dtype != np.float32 or not np.isfinite(array).all() for array in arrays.values()):
            raise InputError("the weights of the ranker must be finite float32 numbers")
        ranker._set_learned(dict(arrays), names)
        return ranker

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")

    def _set_learned(self, weights: dict[str, NDArray[np.float32]], names: tuple[str, ...]) -> None:
        self.names_ = names
        self.weights_ = weights

    def _ready(self) -> dict[str, NDArray[np.float32]]:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this NeuralRanker is not fitted yet: call fit first")
        return self.weights_

    def _train(self, pairs: Pairs, targets: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        rng = np.random.default_rng(self.seed)
        width, units = pairs.values.shape[1], int(self.width)
        # In double precision: a column is added up entry by entry.
        centre = pairs.values.mean(axis=0, dtype=np.float64) if self.standardise else np.zeros(width)
        spread = pairs.values.std(axis=0, dtype=np.float64) if self.standardise else np.ones(width)
        weights = {
            "centre": centre.astype(np.float32),
            "scale": (1 / np.where(spread > _SMALL, spread, 1)).astype(np.float32),
            "hidden": (rng.standard_normal((width, units)) * np.sqrt(2 / width)).astype(np.float32),
            "hidden_bias": np.zeros(units, np.float32),
            "output": (rng.standard_normal(units) / np.sqrt(units)).astype(np.float32),
        }
        sums = np.add.reduceat(np.append(targets, 0), pairs.offsets[:-1]) if len(pairs) else np.zeros(0)
        useful = np.flatnonzero((np.diff(pairs.offsets) > 1) & (sums > 0))  # others say nothing of an order
        if not useful.size:
            raise InputError("no query has several candidates of which one is relevant: there is nothing to learn")
        steps = int(self.passes) * -(-useful.size // int(self.batch))
        moments = {name: (np.zeros_like(weights[name]), np.zeros_like(weights[name])) for name in _ARRAYS[2:]}
        step = 0
        for _ in range(int(self.passes)):
            order = rng.permutation(useful)
            for begin in range(0, order.size, int(self.batch)):
                chosen = np.sort(order[begin : begin + int(self.batch)])
                gradients = _gradients(weights, *_batch(pairs, targets, chosen))
                rate = self.learning_rate * 0.5 * (1 + np.cos(np.pi * step / steps))
                step += 1
                for name, gradient in gradients.items():
                    _adam(weights[name], moments[name], gradient + self.decay * weights[name], rate, step)
        return weights


def _inputs(values: NDArray[np.float32], weights: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.asarray(np.clip((values - weights["centre"]) * weights["scale"], -_CLIP, _CLIP), np.float32)


def _batch(
    pairs: Pairs, targets: NDArray[np.float32], chosen: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """The values and targets of some queries' pairs, and where each query's begin."""
    begins, lengths = pairs.offsets[chosen], np.diff(pairs.offsets)[chosen]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    at = np.repeat(begins - starts[:-1], lengths) + np.arange(starts[-1])
    return pairs.values[at], targets[at], starts


def _gradients(
    weights: dict[str, NDArray[np.float32]],
    values: NDArray[np.float32],
    targets: NDArray[np.float32],
    starts: NDArray[np.int64],
) -> dict[str, NDArray[np.float32]]:
    """Of the mean cross entropy of the queries of a batch; ∂/∂s is softmax(s) - r / Σr."""
    inputs = _inputs(values, weights)
    hidden = np.maximum(inputs @ weights["hidden"] + weights["hidden_bias"], 0)
    scores = hidden @ weights["output"]
    lengths, begins = np.diff(starts), starts[:-1]
    raised = np.exp(scores - np.repeat(np.maximum.reduceat(scores, begins), lengths))
    shares = raised / np.repeat(np.add.reduceat(raised, begins), lengths)
    wanted = targets / np.repeat(np.add.reduceat(targets, begins), lengths)
    slope = ((shares - wanted) / len(begins)).astype(np.float32)
    back = (slope[:, None] * weights["output"]) * (hidden > 0)
    return {"hidden": inputs.T @ back, "hidden_bias": back.sum(axis=0), "output": hidden.T @ slope}


def _adam(
    weight: NDArray[np.float32],
    moment: tuple[NDArray[np.float32], NDArray[np.float32]],
    gradient: NDArray[np.float32],
    rate: float,
    step: int,
) -> None:
    """One step of Adam (Kingma and Ba 2015), in place."""
    mean, square = moment
    mean += (1 - _DECAYS[0]) * (gradient - mean)
    square += (1 - _DECAYS[1]) * (gradient**2 - square)
    ahead = mean / (1 - _DECAYS[0] ** step)
    weight -= np.float32(rate) * ahead / (np.sqrt(square / (1 - _DECAYS[1] ** step)) + np.float32(_SMALL))
