"""The commands that convert texts to matrices: `carya vectorize` and `carya encode`."""
