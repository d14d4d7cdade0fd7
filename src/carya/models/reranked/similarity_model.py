"""Create models that use given vectors as label weights, so that scores are inner products.

With training rows as vectors, the beam search retrieves the nearest rows; with label centroids, it retrieves the
nearest labels. The search is exact.
"""

from __future__ import annotations

from carya.core.matrices import Features
from carya.models.xr_linear.model import XRLinear
from carya.trees.label_tree import LabelTree
from carya.trees.layer import flat_layer
from carya.trees.trained_tree import TrainedTree

_WEIGHT_DTYPE = "float16"


def similarity_model(vectors: Features, *, n_jobs: int = 1, threads: int = 1) -> XRLinear:
    """Return a model that assigns the score x · vectors[l] to label l for a query x.

    Examples
    --------
    >>> import carya
    >>> X, _ = carya.data.make_world(100, 10, seed=0)
    >>> nearest = similarity_model(carya.core.validation.check_features(X)).predict(X, top_k=1)
    >>> nearest.indices[:3].tolist()        # the nearest row of each row is the row itself
    [0, 1, 2]
    """
    layer = flat_layer(vectors.sparse, vectors.dense, weight_dtype=_WEIGHT_DTYPE, threads=threads)
    row_features = vectors.sparse.values.size / max(vectors.rows, 1)
    trained = TrainedTree(LabelTree.flat(vectors.rows), [layer], vectors.widths, row_features)
    return XRLinear.from_trained_tree(trained, max_depth=1, transform="noop", weight_dtype=_WEIGHT_DTYPE, n_jobs=n_jobs)
