"""Formats that contain feature and label matrices, one module per format."""
