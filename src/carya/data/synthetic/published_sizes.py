"""The sizes of the six published data sets of the paper, and worlds of those sizes.

The sets themselves are not ours to give away; worlds of the same shape show what time, memory and file sizes they cost.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace

from carya.data.synthetic.topic_model import TopicWorld
from carya.errors import ParameterError


@dataclass(frozen=True)
class Shape:
    """The size of a data set.

    Attributes
    ----------
    n_train, n_test, n_features, n_labels : int
    labels_per_row : float
        On average.
    features_per_row : float
        On average, different ones.
    exponent, head : float
        The label of rank r occurs in proportion to ``(r + head) ** -exponent``.
    signal : float
        The share of words that speak for a label of the row.

    Examples
    --------
    >>> SHAPES["eurlex-4k"].n_labels
    3956
    """

    name: str
    n_train: int
    n_test: int
    n_features: int
    n_labels: int
    labels_per_row: float
    features_per_row: float
    exponent: float
    head: float
    signal: float


# Rows, features, labels and labels a row: the table of data statistics in the paper. The rest is not there. Features a
# row are rounded. The laws are chosen, not measured: few labels are common, even the rarest should have a row or two.
# The signal puts P@1 of XR-Linear, at scales of a few percent, in the region of what the paper reports.
SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("eurlex-4k", 15_449, 3_865, 186_104, 3_956, 5.30, 240, 1.0, 10, 0.055),
        Shape("wiki10-31k", 14_146, 6_616, 101_938, 30_938, 18.64, 670, 1.0, 1.5, 0.03),
        Shape("amazoncat-13k", 1_186_239, 306_782, 203_882, 13_330, 5.04, 71, 1.0, 1, 0.12),
        Shape("wiki-500k", 1_779_881, 769_421, 2_381_304, 501_070, 4.75, 190, 0.8, 0, 0.03),
        Shape("amazon-670k", 490_449, 153_025, 135_909, 670_091, 5.45, 76, 0.6, 5, 0.2),
        Shape("amazon-3m", 1_717_899, 742_507, 337_067, 2_812_281, 36.04, 49, 0.9, 200, 0.55),
    )
}


def scaled(like: str, scale: float = 1.0) -> Shape:
    """The shape of a published set with its rows, features and labels multiplied by a number.

    Labels and features a row stay, as far as there are enough of them.

    Examples
    --------
    >>> scaled("amazon-3m", 0.01).n_labels
    28123
    """
    if like not in SHAPES:
        near = difflib.get_close_matches(like, SHAPES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ParameterError(f"like is {like!r}; it must be one of {', '.join(SHAPES)}{hint}")
    if not (math.isfinite(scale) and 0 < scale <= 10):
        raise ParameterError(f"scale is {scale}; it must be more than 0 and at most 10")
    shape = SHAPES[like]
    n_features = max(200, round(shape.n_features * scale))
    n_labels = max(20, round(shape.n_labels * scale))
    return replace(
        shape,
        n_train=max(20, round(shape.n_train * scale)),
        n_test=max(5, round(shape.n_test * scale)),
        n_features=n_features,
        n_labels=n_labels,
        labels_per_row=min(shape.labels_per_row, n_labels / 8),
        features_per_row=min(shape.features_per_row, n_features / 8),
    )


def synthesise(like: str, scale: float = 1.0, seed: int = 0) -> TopicWorld:
    """A generated world of the size of a published set; its rows are made when they are asked for.

    Parameters
    ----------
    like : str
        One of :data:`SHAPES`.
    scale : float
        Multiplies rows, features and labels.
    seed : int
        Another seed, another world.

    Examples
    --------
    >>> world = synthesise("eurlex-4k", 0.02)
    >>> X, Y = world.matrices("train")
    >>> X.shape, Y.shape
    ((309, 3722), (309, 79))
    """
    shape = scaled(like, scale)
    if not isinstance(seed, int) or seed < 0:
        raise ParameterError(f"seed is {seed!r}; it must be a whole number of at least 0")
    return TopicWorld(
        shape.n_train,
        shape.n_test,
        shape.n_features,
        shape.n_labels,
        labels_per_row=shape.labels_per_row,
        features_per_row=shape.features_per_row,
        exponent=shape.exponent,
        head=shape.head,
        signal=shape.signal,
        seed=seed,
    )
