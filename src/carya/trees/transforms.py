"""Score transforms: how the score of a node is combined with the score of its parent."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from carya.errors import ParameterError

#: The valid transform names, as listed in error messages.
TRANSFORM_NAMES = (
    "'noop', 'sigmoid', 'log-sigmoid', 'l<p>-hinge' or 'log-l<p>-hinge', where <p> is a number between 0 and 1000"
)
_MAX_POWER = 1000
_HINGE = re.compile(r"(log-)?l(\d+(?:\.\d+)?)-hinge")


@dataclass(frozen=True)
class Transform:
    """Function σ(g, h) that combines the raw score h of a node with the score g of its parent.

    ======================  ==========================  =================
    name                    transformed score s         combined score
    ======================  ==========================  =================
    ``noop``                h                           h
    ``sigmoid``             1 / (1 + exp(-h))           g · s
    ``l3-hinge``, any p     exp(-max(0, 1 - h)^p)       g · s
    ``log-sigmoid``         log of the sigmoid          g + s
    ``log-l3-hinge``        log of the hinge            g + s
    ======================  ==========================  =================

    >>> Transform.from_name("l3-hinge")
    Transform(kind='hinge', power=3.0)
    >>> Transform.from_name("log-l2.5-hinge").name
    'log-l2.5-hinge'
    """

    kind: str
    power: float = 1.0

    @classmethod
    def from_name(cls, name: str) -> Transform:
        """Return the transform with a given name."""
        if name in ("noop", "sigmoid", "log-sigmoid"):
            return cls(name.replace("-", "_"))
        match = _HINGE.fullmatch(name)
        if match is None or not 0 < float(match[2]) < _MAX_POWER:
            raise ParameterError(f"Unknown transform {name!r}. Use {TRANSFORM_NAMES}.")
        return cls("log_hinge" if match[1] else "hinge", float(match[2]))

    @property
    def is_multiplicative(self) -> bool:
        """Whether scores are between 0 and 1 and are multiplied along a path."""
        return self.kind in ("sigmoid", "hinge")

    @property
    def name(self) -> str:
        """The name, in the format accepted by :meth:`from_name`."""
        if "hinge" in self.kind:
            power = np.format_float_positional(self.power, trim="-")
            return f"{'log-' if self.kind.startswith('log') else ''}l{power}-hinge"
        return self.kind.replace("_", "-")
