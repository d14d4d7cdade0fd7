"""What the data doors give: texts with labels, or matrices where the features are already made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.core.matrices import Csr


@dataclass(frozen=True, slots=True)
class Example:
    """A text and the labels it has.

    Attributes
    ----------
    text : str
    labels : tuple of str
        Their ids, in the order of the file.

    Examples
    --------
    >>> Example("a red apple", ("fruit", "red"))
    Example(text='a red apple', labels=('fruit', 'red'))
    """

    text: str
    labels: tuple[str, ...] = ()


class Corpus:
    """Texts with labels, one after the other; a file is read anew each time, and never whole.

    Parameters
    ----------
    examples : callable
        Gives an iterator from the start.
    source : str
        What messages call it: mostly the path.
    vocabulary : Vocabulary, optional
        The labels there are, if the source says so.
    once : bool
        It can be iterated only once, as standard input.
    texts : callable, optional
        Gives an iterator over the texts alone, for those who take the labels from `matrix`.
    matrix : Csr, optional
        The labels of all texts, if they come that way: texts x labels of the vocabulary.

    Examples
    --------
    >>> corpus = Corpus.of([("a red apple", ["fruit", "red"]), ("a pear", ["fruit"])])
    >>> [example.text for example in corpus]
    ['a red apple', 'a pear']
    >>> sum(len(example.labels) for example in corpus)
    3
    """

    def __init__(
        self,
        examples: Callable[[], Iterator[Example]],
        *,
        source: str,
        vocabulary: Vocabulary | None = None,
        once: bool = False,
        texts: Callable[[], Iterator[str]] | None = None,
        matrix: Csr | None = None,
    ) -> None:
        self._examples = examples
        self._texts = texts
        self.source = source
        self.vocabulary = vocabulary
        self.matrix = matrix
        self._left: int | None = 1 if once else None

    @classmethod
    def of(
        cls,
        examples: Iterable[Example | tuple[str, Sequence[str]]],
        *,
        source: str = "examples",
        vocabulary: Vocabulary | None = None,
    ) -> Self:
        """A corpus that is held in memory, from examples or pairs (text, labels)."""
        held = [one if isinstance(one, Example) else Example(one[0], tuple(one[1])) for one in examples]
        return cls(lambda: iter(held), source=source, vocabulary=vocabulary)

    def __iter__(self) -> Iterator[Example]:
        if self._left is not None:
            if self._left == 0:
                raise InputError(f"{self.source} can be read only once")
            self._left -= 1
        return self._examples()

    def texts(self) -> Iterator[str]:
        """The texts without their labels."""
        return (one.text for one in self) if self._texts is None else self._texts()

    def __repr__(self) -> str:
        return f"Corpus({self.source!r}, vocabulary={self.vocabulary!r})"


@dataclass(frozen=True, eq=False)
class Matrices:
    """Features and labels as matrices; rows belong together.

    Attributes
    ----------
    X : csr_array of float32 or ndarray of float32, rows x features
    Y : csr_array of float32, rows x labels
    vocabulary : Vocabulary, optional
        The labels of the columns of Y.
    source : str
        What messages call it.
    widths_known : bool
        Whether the data say how many columns there are; else there may be more, empty ones behind those read.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> Matrices(np.eye(2, 3, dtype="float32"), sp.csr_array(np.eye(2)), Vocabulary(["a", "b"])).X.shape
    (2, 3)
    """

    X: Any
    Y: Any
    vocabulary: Vocabulary | None = None
    source: str = "matrices"
    widths_known: bool = True

    def __post_init__(self) -> None:
        if self.X.shape[0] != self.Y.shape[0]:
            raise InputError(f"{self.source}: X has {self.X.shape[0]} rows, Y has {self.Y.shape[0]}")
        if self.vocabulary is not None and len(self.vocabulary) != self.Y.shape[1]:
            raise InputError(
                f"{self.source}: Y has {self.Y.shape[1]} columns, {self.vocabulary.source} has "
                f"{len(self.vocabulary)} labels"
            )

    def __repr__(self) -> str:
        (rows, width), labels = self.X.shape, self.Y.shape[1]
        return f"Matrices({self.source!r}, {rows:,} rows, {width:,} features, {labels:,} labels)"
