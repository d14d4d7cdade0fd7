"""Phase 1, semantic label indexing: build a label tree from features and labels."""

from carya.indexing.clustering import cluster, random_tree
from carya.indexing.indexer import Indexer, RepresentationCache
from carya.indexing.representations import concatenate, graph, pifa, pifa_with_features, pii, spectral

__all__ = [
    "Indexer",
    "RepresentationCache",
    "cluster",
    "concatenate",
    "graph",
    "pifa",
    "pifa_with_features",
    "pii",
    "random_tree",
    "spectral",
]
