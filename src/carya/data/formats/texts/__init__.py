"""Formats that hold texts and labels, one file per format."""
