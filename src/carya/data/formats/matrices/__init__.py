"""Formats that hold feature and label matrices, one file per format."""
