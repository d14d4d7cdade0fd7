"""Data sets: generated worlds whose right answers are known."""

from carya.data.synth import World, generate, make_world

__all__ = ["World", "generate", "make_world"]
