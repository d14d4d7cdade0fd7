"""Encoders: from texts to vectors, without padding."""
