"""Trained label trees: structure, layers, and beam search."""
