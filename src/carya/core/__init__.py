"""Shared ground: parameters, input validation, matrices, storage and progress."""
