"""Rerankers whose input is the text and the label name of each candidate."""
