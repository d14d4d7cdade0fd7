"""The two types of data sets: labeled texts, and matrices of features and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.core.matrices import Csr


@dataclass(frozen=True, slots=True)
class Example:
    """A text and its labels.

    Attributes
    ----------
    text : str
    labels : tuple of str
        Label ids, in the same order as in the file.
    id : str, optional
        The id of the text, if the data contains ids: the value of the key or column ``id``, or the name of the text's
        file without its suffix.

    Examples
    --------
    >>> Example("a red apple", ("fruit", "red"))
    Example(text='a red apple', labels=('fruit', 'red'))
    """

    text: str
    labels: tuple[str, ...] = ()
    id: str | None = field(default=None, repr=False, compare=False)


class Corpus:
    """Iterable of labeled texts. Each iteration streams the files again instead of loading them into memory.

    Parameters
    ----------
    examples : callable
        Returns an iterator over all examples.
    source : str
        The name of the corpus in error messages, usually its path.
    vocabulary : Vocabulary, optional
        The known labels, if the source lists them.
    single_pass : bool
        Whether the corpus can be iterated over only once, as is the case for standard input.
    texts : callable, optional
        Returns an iterator over the texts alone, for callers that take the labels from `matrix`.
    matrix : Csr, optional
        The labels of all texts, with one column per label of the vocabulary, if the source stores them as a matrix.

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
        single_pass: bool = False,
        texts: Callable[[], Iterator[str]] | None = None,
        matrix: Csr | None = None,
    ) -> None:
        self._examples = examples
        self._texts = texts
        self.source = source
        self.vocabulary = vocabulary
        self.matrix = matrix
        self._single_pass = single_pass
        self._was_read = False

    @classmethod
    def of(
        cls,
        examples: Iterable[Example | tuple[str, Sequence[str]]],
        *,
        source: str = "examples",
        vocabulary: Vocabulary | None = None,
    ) -> Self:
        """Create an in-memory corpus from examples or (text, labels) pairs."""
        stored = [_to_example(example, number) for number, example in enumerate(examples)]
        return cls(lambda: iter(stored), source=source, vocabulary=vocabulary)

    def __iter__(self) -> Iterator[Example]:
        if self._single_pass and self._was_read:
            raise InputError(f"{self.source} can be read only once. Save the data to a file first.")
        self._was_read = True
        return self._examples()

    def texts(self) -> Iterator[str]:
        """Return an iterator over the texts without their labels."""
        return (example.text for example in self) if self._texts is None else self._texts()

    def converting_errors(self, errors: Callable[[], AbstractContextManager[None]]) -> Corpus:
        """Return a copy that reads examples within the context manager `errors()`, which converts exceptions."""

        def convert(read: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
            def items() -> Iterator[Any]:
                with errors():
                    yield from read()

            return items

        return Corpus(
            convert(self._examples),
            source=self.source,
            vocabulary=self.vocabulary,
            single_pass=self._single_pass,
            texts=None if self._texts is None else convert(self._texts),
            matrix=self.matrix,
        )

    def __repr__(self) -> str:
        return f"Corpus({self.source!r}, vocabulary={self.vocabulary!r})"


def _to_example(example: Any, number: int) -> Example:
    """Return a value as an example; raise InputError unless it is an example or a (text, labels) pair."""
    if isinstance(example, Example):
        return example
    if (
        not isinstance(example, (tuple, list))
        or len(example) != 2
        or not isinstance(example[0], str)
        or isinstance(example[1], str)
        or not all(isinstance(label, str) for label in example[1])
    ):
        raise InputError(f"examples[{number}] must be a pair of a text and a list of labels, got {example!r}.")
    return Example(example[0], tuple(example[1]))


@dataclass(frozen=True, eq=False)
class Matrices:
    """Feature and label matrices for the same rows.

    Attributes
    ----------
    X : csr_array of float32 or ndarray of float32, rows x features
    Y : csr_array of float32, rows x labels
    vocabulary : Vocabulary, optional
        The labels that correspond to the columns of Y.
    source : str
        The name of the data in error messages.
    widths_known : bool
        Whether the source states the numbers of columns of X and Y. If not, one or both are inferred from the largest
        index that occurs.
    read_options : mapping
        Options of `open_data` that were inferred from the data. Other data for the same model must be read with the
        same options.
    is_guessed : bool
        Whether `read_options` may be wrong because the data does not determine them unambiguously.

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
    read_options: Mapping[str, Any] = field(default_factory=dict)
    is_guessed: bool = False

    def __post_init__(self) -> None:
        if self.X.shape[0] != self.Y.shape[0]:
            raise InputError(f"{self.source}: X has {self.X.shape[0]} rows, but Y has {self.Y.shape[0]}.")
        if self.vocabulary is not None and len(self.vocabulary) != self.Y.shape[1]:
            raise InputError(
                f"{self.source}: Y has {self.Y.shape[1]} columns, but {self.vocabulary.source} has "
                f"{len(self.vocabulary)} labels."
            )

    @classmethod
    def of(
        cls,
        X: Any,
        Y: Any,
        vocabulary: Vocabulary | None = None,
        source: str = "matrices",
        *,
        names: tuple[str, str] = ("X", "Y"),
    ) -> Self:
        """Validate and convert features and labels; `names` are their names in error messages."""
        from carya.core import validation

        features = validation.check_features(X, names[0])
        labels = validation.check_labels(Y, names[1])
        converted = features.dense if features.widths[1] else features.sparse.to_scipy()
        return cls(converted, labels.to_scipy(), vocabulary, source)

    def __repr__(self) -> str:
        (rows, n_features), n_labels = self.X.shape, self.Y.shape[1]
        return f"Matrices({self.source!r}, {rows:,} rows, {n_features:,} features, {n_labels:,} labels)"
