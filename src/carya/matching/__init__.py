"""Phase 2, machine-learned matching: select the clusters for each row, and thus the training rows of each label."""

from carya.matching.negatives import Negatives, check_shortlist, union_shortlists
from carya.matching.overlapping_clusters import add_leaves, restrict_targets
from carya.matching.targets import RelevanceCosts, level_targets

__all__ = [
    "Negatives",
    "RelevanceCosts",
    "add_leaves",
    "check_shortlist",
    "level_targets",
    "restrict_targets",
    "union_shortlists",
]
