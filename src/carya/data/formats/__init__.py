"""Data formats: declared in `registry`, recognized by `detection`, implemented in `texts`, `tables` and `matrices`."""
