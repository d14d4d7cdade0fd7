"""Phase 3, ranking: one linear classifier a node, trained on the rows that matching hands over."""

from carya.ranking.linear import LinearRanker, Problem

__all__ = ["LinearRanker", "Problem"]
