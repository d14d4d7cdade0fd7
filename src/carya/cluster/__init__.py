"""Train models and rank labels on several machines."""
