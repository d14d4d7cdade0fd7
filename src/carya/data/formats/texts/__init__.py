"""Formats that contain texts, one module per format."""
