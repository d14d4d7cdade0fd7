"""Models for feature matrices: the three phases combined, one folder per model kind."""
