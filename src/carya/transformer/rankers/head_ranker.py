"""Convert trained heads and the embeddings of label texts to native rankers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr
from carya.models.xr_linear.model import XRLinear
from carya.transformer.inputs import LabelTexts
from carya.transformer.settings import TransformerSettings
from carya.transformer.training.heads import Heads
from carya.transformer.training.losses import RELATIVE_LOSSES, TRANSFORMS
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

#: The weights of the nodes at a level, of shape (nodes, width), and their biases.
LevelWeights = tuple[NDArray[np.float32], NDArray[np.float32]]

_MAX_SAMPLE = 512  # approximate number of texts from which the partition function is estimated


def label_text_ranker(
    settings: TransformerSettings, label_texts: LabelTexts, embeddings: NDArray[np.float32]
) -> XRLinear:
    """Return a ranker that scores labels by the cosine similarity between text and label text.

    Labels without a text have a score of 0.
    """
    dense = np.zeros((label_texts.n_labels, embeddings.shape[1]), np.float32)
    dense[label_texts.labels] = embeddings
    biases = np.zeros(label_texts.n_labels, np.float32)
    return _dense_ranker(settings, LabelTree.flat(label_texts.n_labels), [(dense, biases)], "noop")


def head_ranker(
    settings: TransformerSettings,
    heads: Heads,
    tree: LabelTree,
    level: int,
    embeddings: NDArray[np.float32],
    *,
    flat: bool,
) -> XRLinear:
    """Return a ranker for the nodes at a level, with the weights of the trained heads.

    Parameters
    ----------
    embeddings : ndarray of float32
        The embeddings of the training texts.
    flat : bool
        Whether the head of this level was trained on all nodes and ranks them without the other heads. Otherwise, the
        heads of the levels above select its shortlist.
    """
    levels = [level] if flat else list(range(1, level + 1))
    subtree = LabelTree.flat(tree.level_sizes[level]) if flat else LabelTree(tree.parents[:level])
    weights = [heads.level_weights(number) for number in levels]
    if settings.head_loss in RELATIVE_LOSSES:
        weights = _normalize_softmax(weights, embeddings)
    return _dense_ranker(settings, subtree, weights, TRANSFORMS[settings.head_loss])


def _normalize_softmax(weights: list[LevelWeights], embeddings: NDArray[np.float32]) -> list[LevelWeights]:
    """Subtract the mean log partition function from the biases.

    The raw score of a node from a softmax head is meaningful only relative to the scores of the other nodes. After this
    step, the sigmoid of the score approximates the softmax.
    """
    sample = embeddings[:: max(1, len(embeddings) // _MAX_SAMPLE)]
    normalized = []
    for dense, biases in weights:
        scores = sample @ dense.T + biases
        highest = scores.max(1, keepdims=True)
        log_partition = highest[:, 0] + np.log(np.exp(scores - highest).sum(1))
        normalized.append((dense, biases - float(log_partition.mean())))
    return normalized


def _dense_ranker(
    settings: TransformerSettings, tree: LabelTree, weights: list[LevelWeights], transform: str
) -> XRLinear:
    """Return an XR-Linear model with the given (weights, biases) pairs for dense features, one pair per tree level."""
    layers = []
    for level, (dense, biases) in enumerate(weights, 1):
        order, chunks = tree.children(level)
        no_weights = Csr.of(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), order.size)
        layers.append(
            Layer(
                weights=Weights.pack(no_weights, chunks, "float32"),
                dense=np.ascontiguousarray(dense[order]),
                biases=np.ascontiguousarray(biases[order]),
                chunks=chunks,
                order=order,
                transform=Transform.from_name(transform),
            )
        )
    trained = TrainedTree(tree, layers, (0, weights[-1][0].shape[1]), 0.0)
    return XRLinear.from_trained_tree(
        trained,
        transform=transform,
        weight_dtype="float32",
        beam_width=settings.head_beam_width,
        n_jobs=settings.n_jobs,
    )
