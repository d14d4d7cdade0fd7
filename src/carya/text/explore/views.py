"""Results of the explorer: plain strings and numbers that can be printed or serialized as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from carya.text.labels import LabelSet


@dataclass(frozen=True)
class LabelView:
    """A label with its name and count.

    Attributes
    ----------
    label, name : str
        The id and the name of the label.
    count : int or None
        The number of training texts with this label, if known.
    """

    label: str
    name: str
    count: int | None

    @classmethod
    def of(cls, labels: LabelSet, number: int) -> LabelView:
        """Create the view of a label from a label set."""
        counts = labels.counts
        return cls(labels.ids[number], labels.name(number), None if counts is None else counts.item(number))


@dataclass(frozen=True)
class ClusterView:
    """A cluster of labels, described by its most frequent labels and strongest terms.

    Attributes
    ----------
    level, node : int
        The position in the tree; the root is level 0, node 0.
    n_labels : int
        The number of labels in the cluster.
    labels : tuple of LabelView
        The most frequent labels in the cluster.
    terms : tuple of str
        The terms with the largest weights; empty for the root.
    count : int or None
        The sum of the counts of all labels in the cluster, if known.
    """

    level: int
    node: int
    n_labels: int
    labels: tuple[LabelView, ...]
    terms: tuple[str, ...]
    count: int | None = None


@dataclass(frozen=True)
class BeamNode:
    """A cluster in the beam.

    Attributes
    ----------
    cluster : ClusterView
    parent : int
        The node index of the parent cluster at the previous level.
    score : float
        The score of the path to the cluster.
    """

    cluster: ClusterView
    parent: int
    score: float


@dataclass(frozen=True)
class ScoredLabel:
    """A label with its score for a text.

    Attributes
    ----------
    label : LabelView
    score : float
    probability : float or None
        The probability that the label is correct, if the ranker is calibrated.
    """

    label: LabelView
    score: float
    probability: float | None


@dataclass(frozen=True)
class ReachedLabel:
    """A label returned by the beam search in a tree.

    Attributes
    ----------
    label : LabelView
    parent : int
        The node index of the label's leaf cluster; if clusters overlap, of its best leaf cluster in the beam.
    score : float
        The score in this tree.
    """

    label: LabelView
    parent: int
    score: float


@dataclass(frozen=True)
class SearchTrace:
    """The ranking of labels for a text, with the steps of the beam search.

    Attributes
    ----------
    labels : tuple of ScoredLabel
        The best labels, with the same scores as in :meth:`carya.TextRanker.suggest`.
    known_spans : tuple of (int, int)
        The character ranges of the text that are covered by known terms.
    known_word_spans : tuple of (int, int)
        The character ranges that are covered by known words, excluding n-grams of characters.
    levels : tuple of tuple of BeamNode
        The beam at each cluster level, from the root down, best cluster first; empty if the model has no tree.
    reached : tuple of ReachedLabel
        The labels retrieved from the tree; the same as in `labels` if the model is a single tree.
    beam_width : int or None
        The beam width, or None if the model has no tree.
    """

    labels: tuple[ScoredLabel, ...]
    known_spans: tuple[tuple[int, int], ...]
    known_word_spans: tuple[tuple[int, int], ...] = ()
    levels: tuple[tuple[BeamNode, ...], ...] = ()
    reached: tuple[ReachedLabel, ...] = ()
    beam_width: int | None = None


@dataclass(frozen=True)
class ClusterPage:
    """A cluster and a page of its children.

    Attributes
    ----------
    cluster : ClusterView
    ancestors : tuple of ClusterView
        The clusters that contain the cluster, from the root down.
    n_children : int
    clusters : tuple of ClusterView
        The child clusters; empty for a leaf cluster.
    labels : tuple of LabelView
        The labels in a leaf cluster, most frequent first; empty for other clusters.
    """

    cluster: ClusterView
    ancestors: tuple[ClusterView, ...]
    n_children: int
    clusters: tuple[ClusterView, ...]
    labels: tuple[LabelView, ...]


@dataclass(frozen=True)
class LabelPosition:
    """The position of a label's leaf in a tree.

    Attributes
    ----------
    ancestors : tuple of ClusterView
        The clusters that contain the leaf, from the root down.
    positive_terms, negative_terms : tuple of (str, float)
        The terms with the most positive and the most negative weights, each with its weight.
    """

    ancestors: tuple[ClusterView, ...]
    positive_terms: tuple[tuple[str, float], ...]
    negative_terms: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class SimilarLabel:
    """A label whose weights are similar to those of another label.

    Attributes
    ----------
    label : LabelView
    similarity : float
        The cosine similarity of the weights for the strongest terms, at most 1.
    """

    label: LabelView
    similarity: float


@dataclass(frozen=True)
class LabelCard:
    """All information that the explorer provides about a label.

    Attributes
    ----------
    label : LabelView
    n_texts : int or None
        The total number of training texts, if known.
    description : str or None
        The description of the label in the training data, if any.
    positions : tuple of LabelPosition
        The positions in the tree: several if clusters overlap, none if the model has no tree.
    similar_labels : tuple of SimilarLabel
        The similar labels, most similar first.
    """

    label: LabelView
    n_texts: int | None
    description: str | None
    positions: tuple[LabelPosition, ...] = ()
    similar_labels: tuple[SimilarLabel, ...] = ()


@dataclass(frozen=True)
class ComparedLabel:
    """Comparison of two rankers' results for a label.

    Attributes
    ----------
    label : LabelView
    is_known : tuple of two bool
        Whether each ranker's label set contains the label.
    ranks : tuple of two (int or None)
        The ranks, starting at 1; None if the label is not in the top k.
    scores : tuple of two (ScoredLabel or None)
        The scores; None if the label is not in the top k and the ranker cannot score arbitrary labels.
    """

    label: LabelView
    is_known: tuple[bool, bool]
    ranks: tuple[int | None, int | None]
    scores: tuple[ScoredLabel | None, ScoredLabel | None]


@dataclass(frozen=True)
class EvaluatedLabel:
    """A label that occurs in evaluated texts.

    Attributes
    ----------
    label : LabelView
    path : tuple of int
        The node index of the label's cluster at each level of the tree below the root; if the label is in several
        clusters, those of its first leaf. Empty if the model has no tree.
    """

    label: LabelView
    path: tuple[int, ...]


@dataclass(frozen=True)
class EvaluatedText:
    """The ranking of labels for a text, and its relevant labels.

    Attributes
    ----------
    suggested : tuple of int
        The best labels, best first, as positions in :attr:`EvaluatedTexts.labels`.
    scores : tuple of float
    probabilities : tuple of float
        The probabilities of the suggested labels; empty if the model is not calibrated.
    relevant : tuple of int
        The relevant labels that are in the model, as positions in :attr:`EvaluatedTexts.labels`.
    unknown : tuple of str
        The relevant labels that are not in the model.
    """

    suggested: tuple[int, ...]
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    relevant: tuple[int, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class EvaluatedTexts:
    """The rankings for labeled texts.

    Attributes
    ----------
    labels : tuple of EvaluatedLabel
        All labels that are relevant or suggested, without duplicates.
    texts : tuple of EvaluatedText
    """

    labels: tuple[EvaluatedLabel, ...]
    texts: tuple[EvaluatedText, ...]


class ExplanationTerm(TypedDict):
    """The contribution of a term, and its character ranges in the text."""

    term: str
    contribution: float
    spans: tuple[tuple[int, int], ...]


class ExplanationLevel(TypedDict):
    """The contributions at one level of the tree; `cluster` is None at the label level."""

    node: int
    score: float
    base: float
    terms: list[ExplanationTerm]
    cluster: ClusterView | None


class TreeExplanation(TypedDict):
    """The explanation of a label's score in one tree.

    `base` and the contributions add up to the score, or to its logarithm if `log_scale` is true. `count` is the number
    of training texts with the label. `probability` is None unless the tree is the entire model and the model is
    calibrated.
    """

    label: str
    name: str
    score: float
    log_scale: bool
    base: float
    terms: list[ExplanationTerm]
    levels: list[ExplanationLevel]
    probability: float | None
    count: int | None
