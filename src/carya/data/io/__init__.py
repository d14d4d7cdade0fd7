"""Reading and writing files: compression, matrices, atomic folders."""
