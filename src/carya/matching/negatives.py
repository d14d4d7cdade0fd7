"""Select the training rows for the children of each cluster, including hard negatives (section 2.3.1 of the paper).

The ranker of a label is trained on the rows whose shortlists contain the label's cluster. There are three sources of
shortlists:

* ``teacher`` (TFN): the clusters of the row's own labels;
* ``matcher`` (MAN): the clusters that the layers above predict for the row, as at inference time;
* ``given``: the clusters of the labels in the row's shortlist, which is passed to `fit`.

``both`` combines teacher and matcher. :meth:`Negatives.sources_at` returns the sources that apply at a level: the
matcher is not used near the root if another source is available.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from carya.core import validation
from carya.core.matrices import Csr
from carya.core.rules import expand_per_layer
from carya.core.validation import LabelsLike
from carya.errors import InputError, ParameterError

_SOURCES = ("teacher", "matcher", "given")
#: The valid names, as listed in error messages.
NEGATIVES_NAMES = "'teacher', 'matcher', 'both', 'given', or a combination joined with '+'"


@dataclass(frozen=True)
class Negatives:
    """The sources from which the negatives of a layer are selected.

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

    @classmethod
    def per_layer(cls, names: str | Sequence[str], depth: int) -> list[Negatives]:
        """Parse the parameter `negatives` for a tree with `depth` layers; see :func:`expand_per_layer`.

        >>> [sorted(layer.sources) for layer in Negatives.per_layer(("teacher", "both"), 3)]
        [['teacher'], ['teacher'], ['matcher', 'teacher']]
        """
        return [cls.from_name(name) for name in expand_per_layer(names, depth, "negatives")]

    def sources_at(self, level: int, *, n_clusters: int, beam_width: int) -> frozenset[str]:
        """Return the sources from which the training rows of a layer are selected.

        The rankers of the root's children are trained on all rows, so no source is needed. If the beam contains every
        cluster, the matcher would make every row a negative of every node. In this case, it is omitted if there are
        other sources, which gives better results.

        Parameters
        ----------
        level : int
            The level of the nodes whose rankers are trained.
        n_clusters : int
            The number of clusters at the level above.
        beam_width : int
            The beam width of the matcher during training.

        Examples
        --------
        >>> both = Negatives.from_name("both")
        >>> sorted(both.sources_at(2, n_clusters=8, beam_width=10))
        ['teacher']
        >>> sorted(both.sources_at(3, n_clusters=64, beam_width=10))
        ['matcher', 'teacher']
        """
        if level == 1:
            return frozenset()
        others = self.sources - {"matcher"}
        return others if others and n_clusters <= beam_width else self.sources

    def __contains__(self, source: str) -> bool:
        return source in self.sources


def union_shortlists(shortlists: list[Csr], *, threads: int = 1) -> Csr:
    """Return the union of shortlists, each of shape (rows, clusters)."""
    union = shortlists[0]
    for shortlist in shortlists[1:]:
        union = union.unite(shortlist, threads)
    return union


def check_shortlist(shortlist: LabelsLike | None, labels: Csr, negatives: str | Sequence[str]) -> Csr | None:
    """Validate the shortlist passed to `fit`; raise InputError if it is missing but required, or passed but unused."""
    names = negatives if isinstance(negatives, str) else "+".join(negatives)
    if shortlist is None:
        if "given" in names:
            raise InputError(f"negatives={negatives!r} requires a shortlist. Pass shortlist to fit.")
        return None
    if "given" not in names:
        raise InputError(f"shortlist is not used by negatives={negatives!r}. Omit it, or add 'given' to negatives.")
    matrix = validation.check_labels(shortlist, "shortlist")
    if (matrix.rows, matrix.cols) != (labels.rows, labels.cols):
        raise InputError(
            f"shortlist must have the same shape as Y, ({labels.rows}, {labels.cols}), got "
            f"({matrix.rows}, {matrix.cols})."
        )
    return matrix
