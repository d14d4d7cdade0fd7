"""Diagnostics: per-label precision and recall, and differences between training data and new data."""
