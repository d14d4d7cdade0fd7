"""Synthetic data with known structure, also in the sizes of published data sets."""
