"""Hard negatives (paper, section 2.3.1): on which rows the children of each cluster are trained.

A label is trained on the rows of its shortlisted clusters. Three sources say which clusters those are, and any of them
can be joined:

* ``teacher`` (TFN): the clusters of the row's own labels, known beforehand;
* ``matcher`` (MAN): the clusters that the layers above predict for the row, as they will when the model is used;
* ``given``: the clusters of labels that the user lists for the row.

``both`` is teacher and matcher. Near the root, where there are no more clusters than the beam is wide, the matcher
would bring every row to every cluster; joined with another source it is left out there.
"""

from __future__ import annotations

from dataclasses import dataclass

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.errors import ParameterError

_SOURCES = ("teacher", "matcher", "given")
#: What names may be, for messages.
NAMES = "'teacher', 'matcher', 'both', 'given', or several joined by '+'"


@dataclass(frozen=True)
class Negatives:
    """A set of sources.

    >>> "matcher" in Negatives.named("both")
    True
    >>> "matcher" in Negatives.named("teacher+given")
    False
    """

    sources: frozenset[str]

    @classmethod
    def named(cls, name: str) -> Negatives:
        """The sources of a name such as ``"teacher"``, ``"both"`` or ``"teacher+given"``."""
        sources = frozenset(name.replace("both", "teacher+matcher").split("+"))
        if not sources <= frozenset(_SOURCES):
            raise ParameterError(f"there are no negatives {name!r}; they must be {NAMES}")
        return cls(sources)

    def __contains__(self, source: str) -> bool:
        return source in self.sources


def union(shortlists: list[Csr]) -> Csr:
    """The union of some shortlists, all rows x clusters."""
    joined = shortlists[0].with_values(1)
    for matrix in shortlists[1:]:
        joined = Csr.of_scipy(sp.csr_array(joined.to_scipy() + matrix.with_values(1).to_scipy()))
    return joined
