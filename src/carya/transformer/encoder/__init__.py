"""Text encoders, which convert texts to embeddings with little or no padding."""
