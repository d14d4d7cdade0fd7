"""Inspect text rankers: search paths, clusters, labels, and comparisons of two rankers."""
