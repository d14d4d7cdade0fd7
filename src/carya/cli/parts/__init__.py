"""Commands for models that are split into parts."""
