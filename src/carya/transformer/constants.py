"""Names that parameters may have, known without PyTorch."""

from __future__ import annotations

#: The losses of heads; :mod:`carya.transformer.training.losses` says what each is.
LOSSES = ("bce", "squared-hinge", "hinge", "softmax")

#: Where in a text its vector is taken from.
POOLINGS = ("first", "mean", "last")
