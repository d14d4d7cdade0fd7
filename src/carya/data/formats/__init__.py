"""Data formats: `detection` recognizes a format, `texts/` and `matrices/` hold one file per format."""
