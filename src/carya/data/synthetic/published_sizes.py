"""Sizes of the six published data sets used in the paper, and synthetic data with these sizes.

The published data cannot be redistributed. Synthetic data of the same size results in similar training times, memory
requirements and file sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from carya.core.parameters import did_you_mean
from carya.data.synthetic.topic_model import TopicModel
from carya.errors import ParameterError


@dataclass(frozen=True)
class DatasetSize:
    """The size of a data set.

    Attributes
    ----------
    name : str
    n_train, n_test, n_features, n_labels : int
    labels_per_row, features_per_row : float
        Mean numbers of distinct labels and features per row.
    exponent, offset : float
        The frequency of the label of rank r is proportional to ``(r + offset) ** -exponent``.
    signal : float
        The share of words that indicate a label of the row.

    Examples
    --------
    >>> PUBLISHED_SIZES["eurlex-4k"].n_labels
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
    offset: float
    signal: float


# The numbers of rows, features, labels and labels per row are from the table of data statistics in the paper; the other
# values are not in the paper. Features per row are rounded. The power-law parameters are not measured; they are chosen
# so that few labels are common and even the rarest labels occur in one or two rows. The signal is chosen so that, for
# data sets scaled to a few percent of the original size, P@1 of XR-Linear is close to the value in the paper.
PUBLISHED_SIZES: dict[str, DatasetSize] = {
    size.name: size
    for size in (
        DatasetSize("eurlex-4k", 15_449, 3_865, 186_104, 3_956, 5.30, 240, 1.0, 10, 0.055),
        DatasetSize("wiki10-31k", 14_146, 6_616, 101_938, 30_938, 18.64, 670, 1.0, 1.5, 0.03),
        DatasetSize("amazoncat-13k", 1_186_239, 306_782, 203_882, 13_330, 5.04, 71, 1.0, 1, 0.12),
        DatasetSize("wiki-500k", 1_779_881, 769_421, 2_381_304, 501_070, 4.75, 190, 0.8, 0, 0.03),
        DatasetSize("amazon-670k", 490_449, 153_025, 135_909, 670_091, 5.45, 76, 0.6, 5, 0.2),
        DatasetSize("amazon-3m", 1_717_899, 742_507, 337_067, 2_812_281, 36.04, 49, 0.9, 200, 0.55),
    )
}


def scaled_size(like: str, scale: float = 1.0) -> DatasetSize:
    """Return the size of a published data set, with its numbers of rows, features and labels multiplied by `scale`.

    The numbers of labels and features per row are reduced only if the scaled data set has too few labels or features.

    Examples
    --------
    >>> scaled_size("amazon-3m", 0.01).n_labels
    28123
    """
    if like not in PUBLISHED_SIZES:
        raise ParameterError(
            f"like must be one of {', '.join(PUBLISHED_SIZES)}, got {like!r}.{did_you_mean(like, PUBLISHED_SIZES)}"
        )
    if not (math.isfinite(scale) and 0 < scale <= 10):
        raise ParameterError(f"scale must be > 0 and <= 10, got {scale}.")
    size = PUBLISHED_SIZES[like]
    n_features = max(200, round(size.n_features * scale))
    n_labels = max(20, round(size.n_labels * scale))
    return replace(
        size,
        n_train=max(20, round(size.n_train * scale)),
        n_test=max(5, round(size.n_test * scale)),
        n_features=n_features,
        n_labels=n_labels,
        labels_per_row=min(size.labels_per_row, n_labels / 8),
        features_per_row=min(size.features_per_row, n_features / 8),
    )


def synthesize(like: str, scale: float = 1.0, seed: int = 0) -> TopicModel:
    """Return a generator of synthetic data with the dimensions of a published data set; rows are generated on demand.

    Parameters
    ----------
    like : str
        A key of :data:`PUBLISHED_SIZES`, such as ``"eurlex-4k"``.
    scale : float
        The factor by which the numbers of rows, features and labels are multiplied.
    seed : int
        The same seed gives the same data.

    Examples
    --------
    >>> model = synthesize("eurlex-4k", 0.02)
    >>> X, Y = model.matrices("train")
    >>> X.shape, Y.shape
    ((309, 3722), (309, 79))
    """
    size = scaled_size(like, scale)
    if not isinstance(seed, int) or seed < 0:
        raise ParameterError(f"seed must be an integer >= 0, got {seed!r}.")
    return TopicModel(
        size.n_train,
        size.n_test,
        size.n_features,
        size.n_labels,
        labels_per_row=size.labels_per_row,
        features_per_row=size.features_per_row,
        exponent=size.exponent,
        offset=size.offset,
        signal=size.signal,
        seed=seed,
    )
