"""Text encoders, which convert texts to embeddings without padding."""
