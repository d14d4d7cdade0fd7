"""Losses of ranking nodes of a level: of all nodes, or of a shortlist, each summed over a text's nodes.

With h the raw score of a node and c > 0 the cost of missing it (1 unless training is cost-sensitive):

=================  ======================  =====================
name               the text has the node   the text has it not
=================  ======================  =====================
``squared-hinge``  c · max(0, 1 - h)²      max(0, 1 + h)²
``hinge``          c · max(0, 1 - h)       max(0, 1 + h)
``bce``            c · log(1 + exp(-h))    log(1 + exp(h))
=================  ======================  =====================

``softmax`` is the mean over the text's nodes, weighed by c, of the negative log of exp(h) over the sum of exp over all
nodes: nodes compete, and one cluster's score says nothing without the others'.
"""

from __future__ import annotations

import torch
from torch.nn.functional import logsigmoid, relu

#: How raw scores trained by each loss join along a path of the tree (:class:`carya.trees.layer.Transform`).
TRANSFORMS = {"squared-hinge": "l3-hinge", "hinge": "l3-hinge", "bce": "sigmoid", "softmax": "sigmoid"}


def row_losses(
    scores: torch.Tensor, costs: torch.Tensor, name: str, listed: torch.Tensor | None = None
) -> torch.Tensor:
    """The loss of each text, shape (texts,).

    Parameters
    ----------
    scores : tensor, shape (texts, nodes)
    costs : tensor, shape (texts, nodes)
        The cost of missing a node, 0 where the text has it not.
    listed : tensor of bool, optional
        Which nodes count; all if not given.
    """
    scores = scores.float()
    costs = costs.float()
    if name == "softmax":
        if listed is not None:
            scores = scores.masked_fill(~listed, -1e9)
            costs = costs * listed
        chosen = (costs * (scores - torch.logsumexp(scores, 1, keepdim=True))).sum(1)
        return -chosen / costs.sum(1).clamp(min=1e-6)
    has = costs > 0
    if name == "bce":
        each = torch.where(has, -costs * logsigmoid(scores), -logsigmoid(-scores))
    else:
        margin = relu(1 - torch.where(has, scores, -scores))
        each = torch.where(has, costs, 1.0) * (margin.square() if name == "squared-hinge" else margin)
    if listed is not None:
        each = each * listed
    return each.sum(1)
