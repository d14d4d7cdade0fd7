"""Inspect a text ranker: search paths, clusters, labels, and comparisons of two rankers."""
