"""Score transforms: how the score of a node is combined with the score of its parent."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from carya.errors import ParameterError

#: What names of transforms may be, for messages.
NAMES = "'noop', 'sigmoid', 'log-sigmoid', 'l<p>-hinge' or 'log-l<p>-hinge' with a number between 0 and 1000 for <p>"


_MOST_POWER = 1000


_HINGE = re.compile(r"(log-)?l(\d+(?:\.\d+)?)-hinge")


@dataclass(frozen=True)
class Transform:
    """σ(g, h): how a raw score h joins the score g of its parent.

    ======================  ==========================  =================
    name                    own score s                 joined
    ======================  ==========================  =================
    ``noop``                h                           h
    ``sigmoid``             1 / (1 + exp(-h))           g · s
    ``l3-hinge``, any p     exp(-max(0, 1 - h)^p)       g · s
    ``log-sigmoid``         log of the sigmoid          g + s
    ``log-l3-hinge``        log of the hinge form       g + s
    ======================  ==========================  =================

    >>> Transform.named("l3-hinge")
    Transform(kind='hinge', power=3.0)
    >>> Transform.named("log-l2.5-hinge").name
    'log-l2.5-hinge'
    """

    kind: str
    power: float = 1.0

    @classmethod
    def named(cls, name: str) -> Transform:
        """The transform of that name."""
        if name in ("noop", "sigmoid", "log-sigmoid"):
            return cls(name.replace("-", "_"))
        match = _HINGE.fullmatch(name)
        if match is None or not 0 < float(match[2]) < _MOST_POWER:
            raise ParameterError(f"there is no transform {name!r}; it must be {NAMES}")
        return cls("log_hinge" if match[1] else "hinge", float(match[2]))

    @property
    def multiplies(self) -> bool:
        """Whether scores lie between 0 and 1 and are multiplied along a path."""
        return self.kind in ("sigmoid", "hinge")

    @property
    def name(self) -> str:
        """The name it is known by."""
        if "hinge" in self.kind:
            power = np.format_float_positional(self.power, trim="-")
            return f"{'log-' if self.kind.startswith('log') else ''}l{power}-hinge"
        return self.kind.replace("_", "-")
