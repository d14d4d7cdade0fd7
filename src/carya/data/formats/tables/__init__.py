"""Formats of records with columns or keys, one file per format."""
