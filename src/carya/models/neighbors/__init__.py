"""Nearest neighbors as the matcher, with linear rankers."""
