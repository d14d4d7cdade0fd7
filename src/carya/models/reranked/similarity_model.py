"""Rows compared with rows: a model whose labels are given vectors, and whose scores are inner products with them.

What a linear ranker does with weights that were learned, the same search does with weights that are given: with
training rows it finds nearest neighbours, with the centre of each label's rows the nearest labels. It is exact.
"""

from __future__ import annotations

import numpy as np

from carya.core.matrices import Features
from carya.models.xr_linear.model import XRLinear
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import Learned
from carya.trees.transforms import Transform

_PRECISION = "float16"


def similarity(vectors: Features, *, n_jobs: int = 1, threads: int = 1) -> XRLinear:
    """A model that scores label l of a query x with x · vectors[l].

    Examples
    --------
    >>> import carya
    >>> X, _ = carya.data.make_world(100, 10, seed=0)
    >>> nearest = similarity(carya.core.validation.features(X)).predict(X, top_k=1)
    >>> nearest.indices[:3].tolist()        # of every row, itself
    [0, 1, 2]
    """
    count = vectors.rows
    chunks = np.array([0, count], np.int64)
    layer = Layer(
        weights=Weights.pack(vectors.sparse.transpose(), chunks, _PRECISION, threads=threads),
        dense=vectors.dense,
        offsets=np.zeros(count, np.float32),
        chunks=chunks,
        order=np.arange(count, dtype=np.int32),
        transform=Transform.named("noop"),
    )
    learned = Learned(LabelTree.flat(count), [layer], vectors.widths, vectors.sparse.values.size / max(count, 1))
    settings = {"max_depth": 1, "transform": "noop", "precision": _PRECISION, "n_jobs": n_jobs}
    return XRLinear.from_learned(learned, **settings)
