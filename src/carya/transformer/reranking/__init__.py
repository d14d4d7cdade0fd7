"""Rerankers that read the text and the label name of each candidate."""
