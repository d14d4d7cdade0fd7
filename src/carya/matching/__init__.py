"""Phase 2, machine-learned matching: which clusters, and so which rows, each label is trained on."""

from carya.matching.negatives import Negatives, union
from carya.matching.overlapping_clusters import overlap, within
from carya.matching.targets import Costs, level_targets

__all__ = ["Costs", "Negatives", "level_targets", "overlap", "union", "within"]
