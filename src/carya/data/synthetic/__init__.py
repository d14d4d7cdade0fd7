"""Synthetic data with known structure, optionally with the sizes of published data sets."""
