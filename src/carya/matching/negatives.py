"""Select the training rows for the children of each cluster, including hard negatives (section 2.3.1 of the paper).

A label is trained on the rows that have its cluster in their shortlist. There are three sources of shortlists:

* ``teacher`` (TFN): the clusters of the row's own labels;
* ``matcher`` (MAN): the clusters that the layers above predict for the row, as at inference time;
* ``given``: the clusters of the labels in the row's shortlist, which is passed to `fit`.

``both`` combines teacher and matcher. At levels near the root where the number of clusters does not exceed the beam
width, the matcher would shortlist every cluster for every row; at these levels, it is ignored if it is combined with
another source.
"""

from __future__ import annotations

from dataclasses import dataclass

from carya.core.matrices import Csr
from carya.errors import ParameterError

_SOURCES = ("teacher", "matcher", "given")
#: The valid names, for error messages.
NEGATIVES_NAMES = "'teacher', 'matcher', 'both', 'given', or a combination joined with '+'"


@dataclass(frozen=True)
class Negatives:
    """Set of sources of negatives.

    >>> "matcher" in Negatives.from_name("both")
    True
    >>> "matcher" in Negatives.from_name("teacher+given")
    False
    """

    sources: frozenset[str]

    @classmethod
    def from_name(cls, name: str) -> Negatives:
        """Parse a name such as ``"teacher"``, ``"both"`` or ``"teacher+given"``."""
        sources = frozenset(name.replace("both", "teacher+matcher").split("+"))
        if not sources <= frozenset(_SOURCES):
            raise ParameterError(f"Unknown negatives {name!r}. Use {NEGATIVES_NAMES}.")
        return cls(sources)

    def __contains__(self, source: str) -> bool:
        return source in self.sources


def union_shortlists(shortlists: list[Csr], *, threads: int = 1) -> Csr:
    """Return the union of shortlists, each of shape (rows, clusters)."""
    union = shortlists[0]
    for shortlist in shortlists[1:]:
        union = union.unite(shortlist, threads)
    return union
