"""Search for labels with similar weights.

Comparing the weights of all labels would require unpacking the whole model. Instead, labels are ranked for a
query that consists of the strongest terms of the given label. Only the highest-ranking labels are compared with the
given label, by their weights for these terms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from carya.models.xr_linear.model import XRLinear

_N_TERMS = 96
_N_CANDIDATES = 48
_MIN_BEAM_WIDTH = 32


def find_similar_labels(
    model: XRLinear, label: int, weights: NDArray[np.float32], limit: int
) -> list[tuple[int, float]]:
    """Return similar labels and their similarities, most similar first.

    The similarity is the cosine similarity of the weights for the label's strongest terms. Labels with a similarity of
    0 or less are omitted.

    Parameters
    ----------
    weights : ndarray of shape (n_features,)
        The weights of the label, averaged over its leaves if it has more than one.
    """
    strongest = np.argsort(-np.abs(weights), kind="stable")[:_N_TERMS]
    features = np.sort(strongest[weights[strongest] != 0]).astype(np.int32)
    own = weights[features].astype(np.float64)
    positive = own > 0
    if not positive.any():
        return []
    query = (own[positive] / np.linalg.norm(own[positive])).astype(np.float32)
    candidates, _ = model.rank_sparse(
        features[positive], query, top_k=_N_CANDIDATES, beam_width=max(_MIN_BEAM_WIDTH, model.beam_width)
    )
    layer = model.layers_[-1]
    similarities = []
    for other in candidates.tolist():
        if other != label:
            leaves = [layer.weights_at(features, int(layer.positions[leaf])) for leaf in model.tree_.leaves(other)]
            theirs = np.mean(leaves, axis=0, dtype=np.float64)
            length = np.linalg.norm(theirs) * np.linalg.norm(own)
            if length > 0:
                similarities.append((other, float(own @ theirs / length)))
    similar = [pair for pair in similarities if pair[1] > 0]
    return sorted(similar, key=lambda pair: (-pair[1], pair[0]))[:limit]
