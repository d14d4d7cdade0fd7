"""Divide training into tasks whose results are stored in a folder."""
