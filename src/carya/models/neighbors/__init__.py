"""Nearest-neighbor matching with linear rankers."""
