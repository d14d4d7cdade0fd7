"""Generated data with known structure, in the sizes of published data sets."""
