"""Two-stage models: candidate generation followed by reranking."""
