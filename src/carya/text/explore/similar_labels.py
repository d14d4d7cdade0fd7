"""Labels that are like a label: those that weigh its strongest words as it does.

To compare weights with those of every label would mean to unpack the model. So the ranker itself is asked, with a text
of the label's strongest words, which labels may be near; only their weights, and only of those words, are compared.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from carya.models.xr_linear.model import XRLinear

_WORDS = 96
_CANDIDATES = 48
_BEAM = 32


def nearest(model: XRLinear, label: int, weights: NDArray[np.float32], most: int) -> list[tuple[int, float]]:
    """Labels and the cosine of their weights with the label's, over its strongest words; nearest first.

    Parameters
    ----------
    weights : ndarray of shape (features,)
        Of all features at the label; where it has several leaves, their mean.
    """
    strongest = np.argsort(-np.abs(weights), kind="stable")[:_WORDS]
    words = np.sort(strongest[weights[strongest] != 0]).astype(np.int32)
    mine = weights[words].astype(np.float64)
    for_it = mine > 0
    if not for_it.any():
        return []
    query = (mine[for_it] / np.linalg.norm(mine[for_it])).astype(np.float32)
    found, _ = model.rank_sparse(words[for_it], query, top_k=_CANDIDATES, beam_width=max(_BEAM, model.beam_width))
    layer = model.layers_[-1]
    alike = []
    for other in found.tolist():
        if other != label:
            at = [layer.weights_at(words, int(layer.positions[leaf])) for leaf in model.tree_.leaves(other)]
            theirs = np.mean(at, axis=0, dtype=np.float64)
            length = np.linalg.norm(theirs) * np.linalg.norm(mine)
            if length > 0:
                alike.append((other, float(mine @ theirs / length)))
    return sorted((one for one in alike if one[1] > 0), key=lambda one: (-one[1], one[0]))[:most]
