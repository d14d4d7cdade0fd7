"""Compute label representations (section 2.1 of the paper), the vectors that are clustered to build a tree.

Every function returns :class:`~carya.core.matrices.Features` with one row per label.
"""

from __future__ import annotations

import numbers

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.errors import InputError, ParameterError

#: Default numbers of dimensions of the spectral embedding and the label-graph embedding.
SPECTRAL_DIMENSIONS, GRAPH_DIMENSIONS = 24, 64
#: Maximum number of entries per label vector if a fraction of the squared norm is kept; limits the memory usage.
_MAX_ENTRIES = 512
#: Maximum number of rows per label in :func:`pifa_group`. More rows take longer but hardly change the clusters.
_MAX_ROWS = 128


def pii(labels: Csr) -> Features:
    """Compute positive instance indices (PII): for each label, the indicator vector of its rows, scaled to unit norm.

    Parameters
    ----------
    labels : Csr of shape (rows, labels)
    """
    positives = labels.transpose()
    return normalize(Features.of(positives, name="The label representation"))


def pifa(
    features: Features, labels: Csr, *, keep: float | None = None, threads: int = 1, report: Report = None
) -> Features:
    """Compute positive instance feature aggregation (PIFA): for each label, the sum of its rows, scaled to unit norm.

    Parameters
    ----------
    features : Features
    labels : Csr of shape (rows, labels)
        A value is the weight of the row in the sum for the label.
    keep : int or float, optional
        How many sparse entries to keep per label, largest first: an integer is the maximum number of entries; a float
        below 1 is the fraction of the squared norm for which the kept entries account. The vector of a label that
        occurs in thousands of rows contains most features of the data set; the small entries contribute little to
        clustering but account for most of the computation.
    """
    return aggregate(features, _positives(features, labels, threads), keep=keep, threads=threads, report=report)


def aggregate(
    features: Features,
    positives: Csr,
    *,
    keep: float | None,
    for_group: bool = False,
    threads: int = 1,
    report: Report = None,
) -> Features:
    """Return the sum of the rows of each label, scaled to unit norm, for a range of labels.

    Parameters
    ----------
    features : Features
    positives : Csr of shape (labels in the range, rows)
    keep : int or float, optional
        See :func:`pifa`.
    for_group : bool
        Whether to return the vectors that :func:`pifa_group` computes, with unsorted columns. The rounding of the
        similarities depends on the order of the columns.
    """
    max_rows = _MAX_ROWS if for_group else 0
    sparse, dense = _core.aggregate_positives(
        features.native, positives.native, *_limits(keep), max_rows, not for_group, max(threads, 1), report
    )
    return Features.of(Csr.of_triple(sparse, features.sparse.cols), dense, "The label representation")


def sampled_rows(positives: Csr) -> NDArray[np.int64]:
    """Return the number of rows that :func:`pifa_group` uses for each label."""
    return np.minimum(np.diff(positives.indptr), _MAX_ROWS)


def pifa_group(
    features: Features, labels: Csr, *, keep: float | None = None, threads: int = 1, report: Report = None
) -> _core.LabelGroup:
    """Compute PIFA for clustering as :func:`pifa` does, but use only a sample of the rows of each frequent label."""
    positives = _positives(features, labels, threads)
    return _core.group_positives(features.native, positives.native, *_limits(keep), _MAX_ROWS, max(threads, 1), report)


def _limits(keep: float | None) -> tuple[float, int]:
    """Return the fraction of the squared norm and the maximum number of entries to keep; 0 means no limit."""
    if keep is None:
        return 0.0, 0
    return (0.0, int(keep)) if isinstance(keep, numbers.Integral) else (float(keep), _MAX_ENTRIES)


def _positives(features: Features, labels: Csr, threads: int) -> Csr:
    """Return the transposed label matrix, in which row l contains the training rows of label l."""
    if labels.rows != features.rows:
        raise InputError(
            f"features and labels must have the same number of rows, got {features.rows} and {labels.rows}."
        )
    return labels.transpose(threads)


def pifa_with_features(aggregated: Features, own: Features, alpha: ArrayLike) -> Features:
    """Combine PIFA with label features in the same space: (1 - α) · own + α · PIFA, where both have unit norm.

    Parameters
    ----------
    aggregated : Features
        The PIFA representation.
    own : Features
        The label features, with the same columns as `aggregated`.
    alpha : float, or array_like of shape (labels,)
        The weight of PIFA: one value for all labels, or one value per label.
    """
    try:
        weight = np.asarray(alpha, np.float64)
    except (TypeError, ValueError):
        weight = np.full(0, np.nan)
    if (
        weight.shape not in ((), (aggregated.rows,))
        or not np.isfinite(weight).all()
        or weight.min() < 0
        or weight.max() > 1
    ):
        raise ParameterError(
            f"alpha must be a number between 0 and 1, or a list of {aggregated.rows} such numbers, one per label, got "
            f"{alpha!r}."
        )
    if aggregated.widths != own.widths or aggregated.rows != own.rows:
        raise InputError(
            f"label_features must have {aggregated.rows} rows and, like X, {aggregated.widths[0]} sparse and "
            f"{aggregated.widths[1]} dense columns, got {own.rows} rows, {own.widths[0]} sparse and {own.widths[1]} "
            "dense columns."
        )
    own = normalize(own)
    weights = np.broadcast_to(weight, (aggregated.rows,))
    sparse = _scale_rows(own.sparse, 1 - weights) + _scale_rows(aggregated.sparse, weights)
    dense = (1 - weights)[:, None] * own.dense + weights[:, None] * aggregated.dense
    return Features.of(Csr.of_scipy(sp.csr_array(sparse)), dense.astype(np.float32), "The label representation")


def concatenate(first: Features, second: Features) -> Features:
    """Concatenate two representations."""
    if first.rows != second.rows:
        raise InputError(f"label_features must have one row per label ({first.rows}), got {second.rows} rows.")
    sparse = sp.hstack([first.sparse.to_scipy(), second.sparse.to_scipy()], format="csr")
    dense = np.ascontiguousarray(np.hstack([first.dense, second.dense]))
    return Features.of(Csr.of_scipy(sp.csr_array(sparse)), dense, "The label representation")


def spectral(labels: Csr, *, dimensions: int = SPECTRAL_DIMENSIONS, seed: int = 0) -> Features:
    """Compute the spectral embedding of labels used in co-clustering of rows and labels (Dhillon 2001).

    With row degrees D₁ and label degrees D₂, label l is represented by row l of D₂^-½ [v₂ … v_k+1], where v₂ … v_k+1
    are the leading right singular vectors of D₁^-½ Y D₂^-½ except the first.

    Parameters
    ----------
    labels : Csr of shape (rows, labels)
    dimensions : int
        k, the number of singular vectors; reduced if there are too few rows or labels.
    """
    from scipy.sparse.linalg import svds

    matrix = labels.to_scipy().astype(np.float64)
    dimensions = min(dimensions, min(matrix.shape) - 2)
    if dimensions < 1:
        raise ParameterError(
            f"representation='spectral' requires at least 3 rows and 3 labels, got {matrix.shape[0]} and "
            f"{matrix.shape[1]}."
        )
    by_row, by_label = (_inverse_root(np.asarray(matrix.sum(axis=axis), np.float64).ravel()) for axis in (1, 0))
    scaled = sp.diags_array(by_row) @ matrix @ sp.diags_array(by_label)
    start = np.random.default_rng(seed).standard_normal(min(scaled.shape))
    _, strength, vectors = svds(scaled, k=dimensions + 1, v0=start, which="LM")
    descending = np.argsort(-strength, kind="stable")
    chosen = _fix_signs(vectors[descending][1:])
    dense = np.ascontiguousarray((by_label[:, None] * chosen.T).astype(np.float32))
    return Features.of(Csr.empty(labels.cols), dense, "The label representation")


def graph(edges: Csr, *, dimensions: int = GRAPH_DIMENSIONS, seed: int = 0) -> Features:
    """Compute Laplacian eigenmaps of a label graph: the smoothest functions on the graph.

    With symmetrized edge weights A and degrees D, label l is represented by row l of D^-½ [λ₂ v₂ … λ_k+1 v_k+1], where
    v₂ … v_k+1 are the eigenvectors of D^-½ A D^-½ = 1 - Laplacian with the largest eigenvalues λ, except the first
    (Belkin and Niyogi 2003, scaled as in diffusion maps). A label without edges is represented by a zero vector.

    Parameters
    ----------
    edges : Csr of shape (labels, labels)
        Non-negative edge weights.
    dimensions : int
        k, the number of eigenvectors; reduced if there are too few labels.
    """
    from scipy.sparse.linalg import eigsh

    if edges.rows != edges.cols:
        raise InputError(
            f"label_graph must be a square matrix with one row per label, got shape ({edges.rows}, {edges.cols})."
        )
    if edges.values.size and edges.values.min() < 0:
        raise InputError("label_graph has negative edge weights. All weights must be >= 0.")
    adjacency = edges.to_scipy().astype(np.float64)
    matrix = sp.csr_array(adjacency + adjacency.T)
    matrix.setdiag(0)
    dimensions = min(dimensions, edges.rows - 2)
    if dimensions < 1:
        raise ParameterError(f"Representations with a label graph require at least 3 labels, got {edges.rows}.")
    by_label = _inverse_root(np.asarray(matrix.sum(axis=1), np.float64).ravel())
    scaled = sp.diags_array(by_label) @ matrix @ sp.diags_array(by_label)
    start = np.random.default_rng(seed).standard_normal(edges.rows)
    values, vectors = eigsh(scaled, k=dimensions + 1, v0=start, which="LA")
    descending = np.argsort(-values, kind="stable")[1:]
    chosen = _fix_signs(vectors.T[descending]) * np.maximum(values[descending], 0)[:, None]
    dense = np.ascontiguousarray((by_label[:, None] * chosen.T).astype(np.float32))
    return Features.of(Csr.empty(edges.rows), dense, "The label representation")


def cooccurrence_graph(labels: Csr, sample_weight: NDArray[np.float32] | None = None) -> Csr:
    """Return the co-occurrence graph of the labels; the weight of an edge is the number of rows with both labels.

    With `sample_weight`, the weight of an edge is the sum of the weights of these rows.
    """
    ones = labels.with_values(1)
    weighted = ones if sample_weight is None else ones.scale_rows(sample_weight)
    together = sp.csr_array(ones.to_scipy().T @ weighted.to_scipy())
    together.setdiag(0)
    together.eliminate_zeros()
    together.sort_indices()
    return Csr.of_scipy(together)


def _fix_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fix the arbitrary signs of singular vectors so that the same data always produces the same tree."""
    largest = np.abs(vectors).argmax(axis=1)
    fixed: NDArray[np.float64] = vectors * np.sign(vectors[np.arange(len(vectors)), largest])[:, None]
    return fixed


def normalize(representation: Features) -> Features:
    """Scale every row to unit norm; zero rows remain unchanged."""
    sparse, dense = representation.sparse, representation.dense
    squares = np.add.reduceat(np.append(sparse.values.astype(np.float64) ** 2, 0), sparse.indptr[:-1])
    squares[np.diff(sparse.indptr) == 0] = 0
    squares += (dense.astype(np.float64) ** 2).sum(axis=1)
    scale = _inverse_root(squares)
    scaled = np.ascontiguousarray((dense * scale[:, None]).astype(np.float32))
    values = (sparse.values * np.repeat(scale, np.diff(sparse.indptr))).astype(np.float32)
    return Features.of(Csr.of(sparse.indptr, sparse.indices, values, sparse.cols), scaled, "The label representation")


def _inverse_root(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1e-300)), 0.0)


def _scale_rows(matrix: Csr, scale: NDArray[np.float64]) -> sp.csr_array:
    out = matrix.to_scipy()
    out.data = (out.data * np.repeat(scale, np.diff(matrix.indptr))).astype(np.float32)
    return out
