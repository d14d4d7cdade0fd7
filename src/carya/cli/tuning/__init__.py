"""`carya tune`."""
