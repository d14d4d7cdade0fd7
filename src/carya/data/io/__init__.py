"""File input and output: compressed text, matrices, and atomically written folders."""
