"""What training leaves behind, as native rankers: heads, and the likeness of labels' own texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from carya.models.xr_linear.model import XRLinear
from carya.transformer.inputs import LabelTexts
from carya.transformer.rankers.rankers import head_ranker
from carya.transformer.settings import TransformerParameters
from carya.transformer.training.heads import Heads
from carya.transformer.training.losses import TRANSFORMS
from carya.trees.label_tree import LabelTree


def likened_ranker(settings: TransformerParameters, about: LabelTexts, vectors: NDArray[np.float32]) -> XRLinear:
    """Labels ranked by the likeness of their texts; one without a text is like nothing."""
    dense = np.zeros((about.n_labels, vectors.shape[1]), np.float32)
    dense[about.columns] = vectors
    return head_ranker(
        [(dense, np.zeros(about.n_labels, np.float32))],
        LabelTree.flat(about.n_labels),
        transform="noop",
        beam_width=settings.head_beam,
        n_jobs=settings.n_jobs,
    )


def trained_head(
    settings: TransformerParameters,
    heads: Heads,
    tree: LabelTree,
    level: int,
    vectors: NDArray[np.float32],
    *,
    everything: bool,
) -> XRLinear:
    """The trained heads as a ranker: of one layer if all nodes were trained at once, else with the levels above."""
    chosen = [level] if everything else list(range(1, level + 1))
    shape = LabelTree.flat(tree.level_sizes[level]) if everything else LabelTree(tree.parents[:level])
    weights = [heads.level_weights(one) for one in chosen]
    if settings.objective == "softmax":  # a score means something against the others' only: take off what they come to
        some = vectors[:: max(1, len(vectors) // 512)]
        for at, (dense, offsets) in enumerate(weights):
            scores = some @ dense.T + offsets
            highest = scores.max(1, keepdims=True)
            weights[at] = (dense, offsets - float((highest[:, 0] + np.log(np.exp(scores - highest).sum(1))).mean()))
    return head_ranker(
        weights,
        shape,
        transform=TRANSFORMS[settings.objective],
        beam_width=settings.head_beam,
        n_jobs=settings.n_jobs,
    )
