"""Batch jobs: files of texts that are ranked in the background."""
