"""What is told of a ranker that is looked at: plain strings and numbers, ready to be shown by a page or printed."""

from __future__ import annotations

from dataclasses import dataclass

from carya.text.labels import LabelSet


@dataclass(frozen=True)
class LabelNote:
    """A label.

    Attributes
    ----------
    label, name : str
    count : int or None
        How many training texts had it, if that is known.
    """

    label: str
    name: str
    count: int | None

    @classmethod
    def of(cls, known: LabelSet, label: int) -> LabelNote:
        """A label of a ranker."""
        counts = known.counts
        return cls(known.ids[label], known.name(label), None if counts is None else counts.item(label))


@dataclass(frozen=True)
class ClusterNote:
    """A cluster of labels, named by what is strongest in it.

    Attributes
    ----------
    level, node : int
        Where it is in the tree; the root is level 0, node 0.
    n_labels : int
        How many labels lie in it.
    labels : tuple of LabelNote
        The most frequent of them.
    words : tuple of str
        The words that speak most for it; none for the root.
    """

    level: int
    node: int
    n_labels: int
    labels: tuple[LabelNote, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Held:
    """A cluster that the beam held.

    Attributes
    ----------
    cluster : ClusterNote
    parent : int
        The node of the level above that it lies in.
    score : float
        Of the path to it.
    """

    cluster: ClusterNote
    parent: int
    score: float


@dataclass(frozen=True)
class Found:
    """A label that was found for a text.

    Attributes
    ----------
    label : LabelNote
    score : float
    chance : float or None
        How often suggestions with such a score are right, if the ranker is calibrated.
    """

    label: LabelNote
    score: float
    chance: float | None


@dataclass(frozen=True)
class Reached:
    """A label at the end of the beam's way.

    Attributes
    ----------
    label : LabelNote
    parent : int
        The last cluster it was reached in; where clusters overlap, the best of those that the beam held.
    score : float
    """

    label: LabelNote
    parent: int
    score: float


@dataclass(frozen=True)
class Walk:
    """The labels of a text, and its way through a label tree.

    Attributes
    ----------
    found : tuple of Found
        The labels, best first: those of :meth:`carya.TextRanker.suggest`, with the same scores.
    known : tuple of (int, int)
        Which characters of the text belong to terms that the ranker knows.
    levels : tuple of tuple of Held
        What the beam held at each level of clusters, from the root down, best first; empty without a tree.
    reached : tuple of Reached
        The labels at the end of this way: those of `found` if the ranker is one tree, else those of the tree alone.
    beam_width : int or None
        None without a tree.
    """

    found: tuple[Found, ...]
    known: tuple[tuple[int, int], ...]
    levels: tuple[tuple[Held, ...], ...] = ()
    reached: tuple[Reached, ...] = ()
    beam_width: int | None = None


@dataclass(frozen=True)
class Branch:
    """A cluster and what is in it.

    Attributes
    ----------
    cluster : ClusterNote
    above : tuple of ClusterNote
        The clusters it lies in, from the root down.
    n_children : int
    clusters : tuple of ClusterNote
        Some of its children; empty above labels.
    labels : tuple of LabelNote
        Some of its labels, most frequent first; empty above clusters.
    """

    cluster: ClusterNote
    above: tuple[ClusterNote, ...]
    n_children: int
    clusters: tuple[ClusterNote, ...]
    labels: tuple[LabelNote, ...]


@dataclass(frozen=True)
class Place:
    """Where a label is in a label tree, and its words there.

    Attributes
    ----------
    above : tuple of ClusterNote
        The clusters it lies in, from the root down.
    words_for, words_against : tuple of (str, float)
        The terms with the largest weights, and with the smallest below 0, in its own cluster.
    """

    above: tuple[ClusterNote, ...]
    words_for: tuple[tuple[str, float], ...]
    words_against: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Card:
    """A label by itself.

    Attributes
    ----------
    label : LabelNote
    n_texts : int or None
        How many training texts there were, if that is known.
    text : str or None
        What is written about it.
    places : tuple of Place
        Where it is in the tree: several places where clusters overlap, none without a tree.
    nearest : tuple of (LabelNote, float)
        Labels that weigh its strongest words alike, and how much, at most 1.
    """

    label: LabelNote
    n_texts: int | None
    text: str | None
    places: tuple[Place, ...] = ()
    nearest: tuple[tuple[LabelNote, float], ...] = ()


@dataclass(frozen=True)
class Compared:
    """A label as two rankers see it.

    Attributes
    ----------
    label : LabelNote
    known : tuple of two bool
        Whether they have it.
    ranks : tuple of two int or None
        From 1, if it is among the best.
    found : tuple of two Found or None
        Its score, if it is among the best or can be asked for.
    """

    label: LabelNote
    known: tuple[bool, bool]
    ranks: tuple[int | None, int | None]
    found: tuple[Found | None, Found | None]
