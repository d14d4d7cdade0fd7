"""Train models on several machines."""
