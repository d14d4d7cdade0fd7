"""Text models, which convert texts to features and rank named labels."""
