"""Loss functions for ranking the nodes at a tree level, summed over the nodes scored for a text.

Let h be the raw score of a node, and c > 0 the cost of missing it (1 unless training is cost-sensitive):

=================  ======================  =====================
loss               positive node           negative node
=================  ======================  =====================
``squared-hinge``  c · max(0, 1 - h)²      max(0, 1 + h)²
``hinge``          c · max(0, 1 - h)       max(0, 1 + h)
``bce``            c · log(1 + exp(-h))    log(1 + exp(h))
=================  ======================  =====================

``softmax`` is the cross-entropy between the normalized costs of the positive nodes and the softmax of all scores.
``decoupled-softmax`` (DEXML, Gupta et al. 2024) is the same, except that the softmax of a positive node is taken over
this node and the negative nodes, so the positive nodes of a text do not compete with each other. The scores of heads
trained with these losses are meaningful only relative to each other.
"""

from __future__ import annotations

import torch
from torch.nn.functional import logsigmoid, relu, softplus

#: The :class:`carya.trees.transforms.Transform` applied to the scores of heads trained with each loss.
TRANSFORMS = {
    "squared-hinge": "l3-hinge",
    "hinge": "l3-hinge",
    "bce": "sigmoid",
    "softmax": "sigmoid",
    "decoupled-softmax": "sigmoid",
}
#: The losses in which the score of a node is compared with the scores of other nodes.
RELATIVE_LOSSES = ("softmax", "decoupled-softmax")

_LOW_SCORE = -1e9


def row_losses(
    scores: torch.Tensor, costs: torch.Tensor, loss: str, included: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the loss of each text as a tensor of shape (texts,).

    Parameters
    ----------
    scores : tensor of shape (texts, nodes)
    costs : tensor of shape (texts, nodes)
        The cost of missing each positive node; 0 for negative nodes.
    loss : {"bce", "squared-hinge", "hinge", "softmax", "decoupled-softmax"}
    included : bool tensor of shape (texts, nodes), optional
        The nodes to include in the loss; all nodes by default.
    """
    scores = scores.float()
    costs = costs.float()
    if loss in RELATIVE_LOSSES:
        if included is not None:
            scores = scores.masked_fill(~included, _LOW_SCORE)
            costs = costs * included
        if loss == "softmax":
            losses = torch.logsumexp(scores, 1, keepdim=True) - scores
        else:
            negatives = torch.logsumexp(scores.masked_fill(costs > 0, _LOW_SCORE), 1, keepdim=True)
            losses = softplus(negatives - scores)
        return (costs * losses).sum(1) / costs.sum(1).clamp(min=1e-6)
    positive = costs > 0
    if loss == "bce":
        losses = torch.where(positive, -costs * logsigmoid(scores), -logsigmoid(-scores))
    else:
        margins = relu(1 - torch.where(positive, scores, -scores))
        losses = torch.where(positive, costs, 1.0) * (margins.square() if loss == "squared-hinge" else margins)
    if included is not None:
        losses = losses * included
    return losses.sum(1)
