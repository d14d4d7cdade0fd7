"""Formats that contain feature and label matrices, one file per format."""
