"""Phase 1, semantic label indexing: from labels and features to a label tree."""

from carya.indexing.clustering import cluster, random_tree
from carya.indexing.indexer import Indexer
from carya.indexing.representations import concatenate, graph, pifa, pifa_with_features, pii, spectral

__all__ = ["Indexer", "cluster", "concatenate", "graph", "pifa", "pifa_with_features", "pii", "random_tree", "spectral"]
