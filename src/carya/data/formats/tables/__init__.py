"""Formats whose records have columns or keys, one module per format."""
