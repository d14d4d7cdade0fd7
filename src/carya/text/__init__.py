"""Texts: from words to features, and from features to the names of labels."""
