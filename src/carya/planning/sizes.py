"""The sizes of a data set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataSizes:
    """The sizes of a data set, from which the costs of training are estimated.

    Attributes
    ----------
    rows, features, labels : int
        The numbers of training rows, of sparse features and of labels.
    features_per_row, labels_per_row : float
        Mean numbers of nonzeros per row.
    dense_features : int
        The number of dense features.

    Examples
    --------
    >>> DataSizes(490_449, 135_909, 670_091, 76, 5.5).label_entries
    2697469.5
    """

    rows: int
    features: int
    labels: int
    features_per_row: float
    labels_per_row: float
    dense_features: int = 0

    @property
    def feature_entries(self) -> float:
        """The number of nonzeros of X."""
        return self.rows * self.features_per_row

    @property
    def label_entries(self) -> float:
        """The number of nonzeros of Y."""
        return self.rows * self.labels_per_row
