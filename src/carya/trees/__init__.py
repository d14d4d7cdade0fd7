"""A trained label tree: its structure, its layers, and beam search over them."""
