"""Inspection of text rankers: search paths, clusters, labels, and comparisons of two rankers."""
