"""Candidate generation followed by a reranker."""
