"""Convert Python objects to texts, labels and features; no other module handles types from other libraries."""
