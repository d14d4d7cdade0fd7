"""Formats that contain texts, one file per format."""
