"""Convert Python objects to texts, labels and features; only this package handles the types of other libraries."""
