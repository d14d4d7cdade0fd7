"""Data formats: declared in `registry`, detected by `detection`, implemented in `texts`, `tables` and `matrices`."""
