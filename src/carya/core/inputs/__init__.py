"""Conversion of Python objects to texts, labels, features and weights: the only place that handles foreign types."""
