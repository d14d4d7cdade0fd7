"""Data sets: generated worlds whose right answers are known, and real ones from a Debian package index."""

from carya.data.published import synthesise
from carya.data.synth import World, generate, make_world

__all__ = ["World", "generate", "make_world", "synthesise"]
