"""Shared infrastructure: parameters, input validation, matrices, storage and progress."""
