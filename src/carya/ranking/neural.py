"""Neural reranker with one hidden layer and a listwise loss, implemented in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import Fitted, Parameterized, parameter
from carya.core.rules import Choice, Integer, Real
from carya.errors import InputError
from carya.fork_safety import ForkSafeLock
from carya.ranking.pairs import Pairs

_ARRAYS = ("mean", "scale", "hidden", "hidden_bias", "output")
_CLIP = 4.0  # in standard deviations
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


_blas_lock = ForkSafeLock()


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Make BLAS single-threaded, because the rounding of its products depends on the number of threads.

    The number of threads is a process-wide setting, so only one thread at a time may change it.
    """
    from threadpoolctl import threadpool_limits

    with _blas_lock, threadpool_limits(limits=1, user_api="blas"):
        yield


class _NeuralState(NamedTuple):
    weights: dict[str, NDArray[np.float32]]
    names: tuple[str, ...]


@dataclass(eq=False, repr=False, kw_only=True)
class NeuralRanker(Fitted[_NeuralState], Parameterized):
    """Neural network with one hidden layer that predicts a probability distribution over the candidates of a query.

    For scores s = v·relu(W x + b) and relevances r of a query's candidates, training minimizes the cross-entropy
    between r / Σr and softmax(s) (ListNet, Cao et al. 2007), using Adam with cosine learning-rate decay.

    Examples
    --------
    >>> import numpy as np
    >>> from carya.ranking import NeuralRanker, Pairs
    >>> rng = np.random.default_rng(0)
    >>> pairs = Pairs.of(rng.random((600, 2)), ["distance", "noise"], np.arange(0, 601, 6))
    >>> near = (np.abs(pairs.column("distance") - 0.5) < 0.1).astype(np.float32)
    >>> scores = NeuralRanker(epochs=40).fit(pairs, near).score(pairs)
    >>> bool(scores[near == 1].mean() > scores[near == 0].mean() + 1)
    True
    """

    name: ClassVar[str] = "neural"

    hidden_units: int = parameter(32, Integer(1), "number of hidden units")
    epochs: int = parameter(20, Integer(1), "number of passes over the queries")
    batch_size: int = parameter(64, Integer(1), "number of queries per step")
    learning_rate: float = parameter(0.005, Real(0, open_low=True), "initial learning rate")
    weight_decay: float = parameter(1e-4, Real(0), "L2 penalty")
    standardize: bool = parameter(True, Choice(True, False), "standardize features to zero mean and unit variance")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "random seed")

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Train the network; `relevance` contains one non-negative number per pair, usually 0 or 1."""
        self.check_parameters()
        targets = pairs.check_relevance(relevance)
        with _one_blas_thread():
            self.set_fitted(self._train(pairs, targets), pairs.names)
        return self

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """Return the output of the network for each pair."""
        weights, names = self._check_fitted()
        pairs.check_names(names)
        # Use float64, because BLAS uses different kernels for different batch sizes, and their rounding differs.
        wide = {name: array.astype(np.float64) for name, array in weights.items()}
        hidden = _inputs(pairs.values, weights).astype(np.float64) @ wide["hidden"] + wide["hidden_bias"]
        return np.asarray(np.maximum(hidden, 0) @ wide["output"], np.float32)

    @property
    def names_(self) -> tuple[str, ...]:
        """The feature names."""
        return self._check_fitted().names

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the parameters and the weights."""
        weights, names = self._check_fitted()
        return {"parameters": self.get_params(), "names": list(names)}, dict(weights)

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Restore a saved ranker."""
        ranker = cls.from_saved_parameters(parameters["parameters"])
        names = tuple(str(name) for name in parameters["names"])
        width, units = len(names), int(ranker.hidden_units)
        shapes = dict(zip(_ARRAYS, [(width,), (width,), (width, units), (units,), (units,)], strict=True))
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise InputError("The arrays of the ranker do not match the shape of its network.")
        if any(array.dtype != np.float32 or not np.isfinite(array).all() for array in arrays.values()):
            raise InputError("The weights of the ranker must be finite float32 values.")
        ranker.set_fitted(dict(arrays), names)
        return ranker

    def set_fitted(self, weights: dict[str, NDArray[np.float32]], names: tuple[str, ...]) -> None:
        """Set the fitted state."""
        self._state = _NeuralState(weights, names)

    def _train(self, pairs: Pairs, targets: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        rng = np.random.default_rng(self.seed)
        width, units = pairs.values.shape[1], int(self.hidden_units)
        # Computed in float64 because columns are summed sequentially, which accumulates rounding errors.
        mean = pairs.values.mean(axis=0, dtype=np.float64) if self.standardize else np.zeros(width)
        spread = pairs.values.std(axis=0, dtype=np.float64) if self.standardize else np.ones(width)
        weights = {
            "mean": mean.astype(np.float32),
            "scale": (1 / np.where(spread > _EPSILON, spread, 1)).astype(np.float32),
            "hidden": (rng.standard_normal((width, units)) * np.sqrt(2 / width)).astype(np.float32),
            "hidden_bias": np.zeros(units, np.float32),
            "output": (rng.standard_normal(units) / np.sqrt(units)).astype(np.float32),
        }
        sums = np.add.reduceat(np.append(targets, 0), pairs.offsets[:-1]) if len(pairs) else np.zeros(0)
        # Other queries provide no ranking information.
        useful = np.flatnonzero((np.diff(pairs.offsets) > 1) & (sums > 0))
        if not useful.size:
            raise InputError(
                "The ranker cannot be trained: no query has two or more candidates of which at least one is relevant."
            )
        steps = int(self.epochs) * -(-useful.size // int(self.batch_size))
        moments = {name: (np.zeros_like(weights[name]), np.zeros_like(weights[name])) for name in _ARRAYS[2:]}
        step = 0
        for _ in range(int(self.epochs)):
            order = rng.permutation(useful)
            for begin in range(0, order.size, int(self.batch_size)):
                selected = np.sort(order[begin : begin + int(self.batch_size)])
                gradients = _gradients(weights, *_batch(pairs, targets, selected))
                rate = self.learning_rate * 0.5 * (1 + np.cos(np.pi * step / steps))
                step += 1
                for name, gradient in gradients.items():
                    _adam(weights[name], moments[name], gradient + self.weight_decay * weights[name], rate, step)
        return weights


def _inputs(values: NDArray[np.float32], weights: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.asarray(np.clip((values - weights["mean"]) * weights["scale"], -_CLIP, _CLIP), np.float32)


def _batch(
    pairs: Pairs, targets: NDArray[np.float32], selected: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Return the values and targets of the pairs of the selected queries, and the offsets of the queries."""
    begins, lengths = pairs.offsets[selected], np.diff(pairs.offsets)[selected]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.repeat(begins - starts[:-1], lengths) + np.arange(starts[-1])
    return pairs.values[rows], targets[rows], starts


def _gradients(
    weights: dict[str, NDArray[np.float32]],
    values: NDArray[np.float32],
    targets: NDArray[np.float32],
    starts: NDArray[np.int64],
) -> dict[str, NDArray[np.float32]]:
    """Return the gradients of the mean cross-entropy of a batch; ∂/∂s is softmax(s) - r / Σr."""
    inputs = _inputs(values, weights)
    hidden = np.maximum(inputs @ weights["hidden"] + weights["hidden_bias"], 0)
    scores = hidden @ weights["output"]
    lengths, begins = np.diff(starts), starts[:-1]
    exponentials = np.exp(scores - np.repeat(np.maximum.reduceat(scores, begins), lengths))
    softmax = exponentials / np.repeat(np.add.reduceat(exponentials, begins), lengths)
    goal = targets / np.repeat(np.add.reduceat(targets, begins), lengths)
    slope = ((softmax - goal) / len(begins)).astype(np.float32)
    hidden_slope = (slope[:, None] * weights["output"]) * (hidden > 0)
    return {"hidden": inputs.T @ hidden_slope, "hidden_bias": hidden_slope.sum(axis=0), "output": hidden.T @ slope}


def _adam(
    weight: NDArray[np.float32],
    moment: tuple[NDArray[np.float32], NDArray[np.float32]],
    gradient: NDArray[np.float32],
    rate: float,
    step: int,
) -> None:
    """Perform one Adam step (Kingma and Ba 2015) in place."""
    mean, square = moment
    mean += (1 - _BETAS[0]) * (gradient - mean)
    square += (1 - _BETAS[1]) * (gradient**2 - square)
    corrected = mean / (1 - _BETAS[0] ** step)
    weight -= np.float32(rate) * corrected / (np.sqrt(square / (1 - _BETAS[1] ** step)) + np.float32(_EPSILON))
