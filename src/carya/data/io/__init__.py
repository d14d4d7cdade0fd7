"""Files: compressed text, matrices, and folders that are written atomically."""
