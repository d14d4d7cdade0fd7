"""Label representations (paper, section 2.1): what two labels must have in common to be close.

Every function gives :class:`~carya.core.matrices.Features` with one row a label, ready to be clustered.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.errors import InputError, ParameterError


def pii(labels: Csr) -> Features:
    """Positive instance indices: each label by the rows it occurs in, scaled to length 1.

    Parameters
    ----------
    labels : Csr, rows x labels
    """
    positives = labels.transpose()
    return unit(Features.of(positives, name="the label representation"))


def pifa(
    features: Features, labels: Csr, *, keep: int | None = None, threads: int = 1, report: Report = None
) -> Features:
    """Positive instance feature aggregation: the sum of the features of a label's rows, scaled to length 1.

    Parameters
    ----------
    features : Features, n rows
    labels : Csr, n rows x labels; values weigh the rows
    keep : int, optional
        Keep only so many sparse entries of each label, the largest. A label that occurs in thousands of rows has
        most features of the data set; clustering hardly needs its small ones, and they are most of the work.
    """
    if labels.rows != features.rows:
        raise InputError(f"the features have {features.rows} rows, the labels {labels.rows}")
    positives = labels.transpose()
    sparse, dense = _core.aggregate_positives(features.native, positives.native, keep or 0, max(threads, 1), report)
    return Features.of(Csr.of_triple(sparse, features.sparse.cols), dense, "the label representation")


def pifa_with_features(aggregated: Features, own: Features, alpha: ArrayLike) -> Features:
    """PIFA joined with features of the labels themselves: (1 - α) own + α PIFA, for labels in the features' space.

    Both are taken with length 1, so that α says how much each counts.

    Parameters
    ----------
    aggregated : Features
        The PIFA representation.
    own : Features
        Features of the labels, with the same columns.
    alpha : float, or array_like of shape (labels,)
        The weight of PIFA, for all labels or one by one.
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
        raise ParameterError(f"alpha must be a number between 0 and 1, or {aggregated.rows} of them, one a label")
    if aggregated.widths != own.widths or aggregated.rows != own.rows:
        raise InputError(
            f"label_features have {own.rows} rows, {own.widths[0]} sparse and {own.widths[1]} dense columns; "
            f"to be joined with PIFA they must have {aggregated.rows}, {aggregated.widths[0]} and "
            f"{aggregated.widths[1]}, as X"
        )
    own = unit(own)
    both = np.broadcast_to(weight, (aggregated.rows,))
    sparse = _scaled(own.sparse, 1 - both) + _scaled(aggregated.sparse, both)
    dense = (1 - both)[:, None] * own.dense + both[:, None] * aggregated.dense
    return Features.of(Csr.of_scipy(sp.csr_array(sparse)), dense.astype(np.float32), "the label representation")


def concatenate(first: Features, second: Features) -> Features:
    """Two representations side by side."""
    if first.rows != second.rows:
        raise InputError(f"label_features have {second.rows} rows, there are {first.rows} labels")
    sparse = sp.hstack([first.sparse.to_scipy(), second.sparse.to_scipy()], format="csr")
    dense = np.ascontiguousarray(np.hstack([first.dense, second.dense]))
    return Features.of(Csr.of_scipy(sp.csr_array(sparse)), dense, "the label representation")


def spectral(labels: Csr, *, dimensions: int = 24, seed: int = 0) -> Features:
    """Spectral co-clustering of rows and labels (Dhillon 2001).

    With degrees D₁ of the rows and D₂ of the labels, label l gets row l of D₂^-½ [v₂ … v_k+1], where v are the right
    singular vectors of D₁^-½ Y D₂^-½ after the first.

    Parameters
    ----------
    labels : Csr, rows x labels
    dimensions : int
        k, the number of singular vectors kept, if there are as many.
    """
    from scipy.sparse.linalg import svds

    matrix = labels.to_scipy().astype(np.float64)
    dimensions = min(dimensions, min(matrix.shape) - 2)
    if dimensions < 1:
        raise ParameterError(
            f"spectral representations need at least 3 rows and labels, there are {matrix.shape[0]} and "
            f"{matrix.shape[1]}"
        )
    by_row, by_label = (_inverse_root(np.asarray(matrix.sum(axis=axis), np.float64).ravel()) for axis in (1, 0))
    scaled = sp.diags_array(by_row) @ matrix @ sp.diags_array(by_label)
    start = np.random.default_rng(seed).standard_normal(min(scaled.shape))
    _, strength, vectors = svds(scaled, k=dimensions + 1, v0=start, which="LM")
    best_first = np.argsort(-strength, kind="stable")
    chosen = _with_settled_signs(vectors[best_first][1:])
    dense = np.ascontiguousarray((by_label[:, None] * chosen.T).astype(np.float32))
    return Features.of(Csr.empty(labels.cols), dense, "the label representation")


def graph(links: Csr, *, dimensions: int = 64, seed: int = 0) -> Features:
    """Labels by their places in a graph of labels: the smoothest vectors over it, those of its Laplacian.

    With links A made symmetric and degrees D, label l gets row l of D^-½ [λ₂ v₂ … λ_k+1 v_k+1], where v are the
    eigenvectors of D^-½ A D^-½ = 1 - Laplacian with the largest eigenvalues λ after the first (Belkin and Niyogi 2003,
    scaled as in diffusion maps). A label without links gets zeros.

    Parameters
    ----------
    links : Csr, labels x labels
        How strongly labels are linked; values must not be negative.
    dimensions : int
        k, the number of vectors kept, if there are as many.
    """
    from scipy.sparse.linalg import eigsh

    if links.rows != links.cols:
        raise InputError(f"label_graph is {links.rows} x {links.cols}, it must have as many rows as columns: labels")
    if links.values.size and links.values.min() < 0:
        raise InputError("label_graph has a negative value: links must be 0 or more")
    given = links.to_scipy().astype(np.float64)
    matrix = sp.csr_array(given + given.T)
    matrix.setdiag(0)
    dimensions = min(dimensions, links.rows - 2)
    if dimensions < 1:
        raise ParameterError(f"representations by a graph need at least 3 labels, there are {links.rows}")
    by_label = _inverse_root(np.asarray(matrix.sum(axis=1), np.float64).ravel())
    scaled = sp.diags_array(by_label) @ matrix @ sp.diags_array(by_label)
    start = np.random.default_rng(seed).standard_normal(links.rows)
    values, vectors = eigsh(scaled, k=dimensions + 1, v0=start, which="LA")
    best_first = np.argsort(-values, kind="stable")[1:]
    chosen = _with_settled_signs(vectors.T[best_first]) * np.maximum(values[best_first], 0)[:, None]
    dense = np.ascontiguousarray((by_label[:, None] * chosen.T).astype(np.float32))
    return Features.of(Csr.empty(links.rows), dense, "the label representation")


def occurring_together(labels: Csr) -> Csr:
    """The graph of labels that are of the same rows; a link is as strong as the number of rows."""
    Y = labels.with_values(1).to_scipy()
    together = sp.csr_array(Y.T @ Y)
    together.setdiag(0)
    together.eliminate_zeros()
    together.sort_indices()
    return Csr.of_scipy(together)


def _with_settled_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """A singular vector is known up to its sign: settle it, so that the same data give the same tree."""
    largest = np.abs(vectors).argmax(axis=1)
    settled: NDArray[np.float64] = vectors * np.sign(vectors[np.arange(len(vectors)), largest])[:, None]
    return settled


def unit(representation: Features) -> Features:
    """The same with rows of length 1, as spherical clustering compares by angle; rows of zeros stay."""
    sparse, dense = representation.sparse, representation.dense
    squares = np.add.reduceat(np.append(sparse.values.astype(np.float64) ** 2, 0), sparse.indptr[:-1])
    squares[np.diff(sparse.indptr) == 0] = 0
    squares += (dense.astype(np.float64) ** 2).sum(axis=1)
    by = _inverse_root(squares)
    scaled = np.ascontiguousarray((dense * by[:, None]).astype(np.float32))
    return Features.of(Csr.of_scipy(_scaled(sparse, by)), scaled, "the label representation")


def _inverse_root(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1e-300)), 0.0)


def _scaled(matrix: Csr, by: NDArray[np.float64]) -> sp.csr_array:
    out = matrix.to_scipy()
    out.data = (out.data * np.repeat(by, np.diff(matrix.indptr))).astype(np.float32)
    return out
