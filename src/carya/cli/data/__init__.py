"""The `carya data` commands."""
