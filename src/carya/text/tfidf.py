"""Texts to rows of weighted terms, by the native core, with the numbers of scikit-learn's `TfidfVectorizer`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.parameters import Parameterised, parameter
from carya.core.prefetch import read_ahead
from carya.core.progress import Bars, Progress
from carya.core.rules import Choice, Either, Integer, Real, Rule
from carya.errors import InputError, NotFittedError, ParameterError

ANALYZERS = ("word", "char", "char_wb")

_BATCH = 4096  # texts of an iterator that are taken at once; some such batches are held


class _OneOrMore(Rule):
    """One of some values, or a list of them."""

    def __init__(self, *values: str) -> None:
        self.values = values
        self.text = f"one of {', '.join(map(repr, values))}, or a list of them"

    def allows(self, value: object) -> bool:
        """Whether the value, or each of its items, is known."""
        several = isinstance(value, (list, tuple)) and len(value) > 0
        return all(one in self.values for one in value) if several else value in self.values  # type: ignore[attr-defined]


class _Ranges(Rule):
    """A pair of whole numbers, or a list of pairs."""

    text = "a pair of integers (least, most) with 1 <= least <= most <= 100, or a list of such pairs, one an analyzer"

    def allows(self, value: object) -> bool:
        """Whether the value is such a pair, or a list of them."""
        if not isinstance(value, (list, tuple)) or not value:
            return False
        if all(isinstance(item, (list, tuple)) for item in value):
            return all(self._pair(item) for item in value)
        return self._pair(value)

    @staticmethod
    def _pair(value: Any) -> bool:
        whole = Integer(1, 100)
        return len(value) == 2 and all(whole.allows(item) for item in value) and value[0] <= value[1]


class _StopWords(Rule):
    """Words."""

    text = "a list of words, 'english' or None"

    def allows(self, value: object) -> bool:
        """Whether the value is a list of strings, or names one."""
        if isinstance(value, str) or value is None:
            return value in (None, "english")
        return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(word, str) for word in value)


class Term(NamedTuple):
    """A term of a text that is a feature.

    Attributes
    ----------
    feature : int
    begin, end : int
        Which characters of the text it was made of.
    text : str
        As it is known: lower case, without accents if so asked.
    """

    feature: int
    begin: int
    end: int
    text: str


@dataclass(eq=False, repr=False, kw_only=True)
class Tfidf(Parameterised):
    """Turns texts into sparse rows: how often each term is in a text, weighted by how rare it is.

    With equal settings the numbers are those of scikit-learn's ``TfidfVectorizer``; the defaults are other ones, which
    rank better: words and pairs of words, terms of at least two texts, and the logarithm of counts.

    Several analyzers stand side by side, each with features of its own, in rows that are normalised as a whole.

    Examples
    --------
    >>> import carya
    >>> texts = ["a fast web server", "a fast mail server", "fast food"]
    >>> tfidf = carya.Tfidf(ngram_range=(1, 1), min_df=2)
    >>> X = tfidf.fit_transform(texts)
    >>> tfidf.get_feature_names_out().tolist()
    ['fast', 'server']
    >>> X.shape, X.dtype
    ((3, 2), dtype('float32'))
    >>> both = carya.Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 1), (3, 4)], min_df=1)
    >>> both.fit(texts).n_features_
    43
    """

    names_elsewhere: ClassVar[Mapping[str, str]] = {
        "token_pattern": "min_length, the least characters of a word",
        "n_features": "buckets",
        "ngram": "ngram_range",
        "sublinear": "sublinear_tf",
    }

    analyzer: str | Sequence[str] = parameter(
        "word",
        _OneOrMore(*ANALYZERS),
        "what terms are made of: word; char, any characters; char_wb, characters within words; or several of them",
    )
    ngram_range: Any = parameter((1, 2), _Ranges(), "least and most units in a term; one pair, or one an analyzer")
    lowercase: bool = parameter(True, Choice(True, False), "make texts lower case")
    strip_accents: str | None = parameter(
        None, Choice("unicode", "ascii", None), "take accents off letters; ascii also drops what is not ASCII then"
    )
    min_length: int = parameter(2, Integer(1), "the least characters of a word")
    stop_words: Any = parameter(None, _StopWords(), "words to leave out; 'english' is scikit-learn's list")
    min_df: int | float = parameter(
        2, Either(Integer(1), Real(0, most=1)), "the least texts a term is in; a number below 1 is a share of them"
    )
    max_df: int | float = parameter(
        1.0, Either(Integer(1), Real(0, most=1)), "the most texts a term is in; 1.0 is all, 1 is one"
    )
    max_features: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "keep only so many terms of an analyzer, the most frequent"
    )
    buckets: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "hash terms to so many features instead of learning them"
    )
    binary: bool = parameter(False, Choice(True, False), "count a term once a text")
    use_idf: bool = parameter(True, Choice(True, False), "weight terms by how few texts have them")
    smooth_idf: bool = parameter(True, Choice(True, False), "as if one more text had every term")
    sublinear_tf: bool = parameter(True, Choice(True, False), "1 + log(count) instead of the count")
    norm: str | None = parameter("l2", Choice("l1", "l2", None), "make rows of equal length")
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "threads; -1 is all cores")
    verbose: bool = parameter(False, Choice(True, False), "progress bars on standard error")

    def fit(self, texts: Iterable[str], y: object = None) -> Self:
        """Learn the terms. Texts may come from an iterator of any length: few are held at once.

        Raises
        ------
        InputError
            If a text is no string or has a lone surrogate, or if no term is left.
        """
        self._fit(texts, keep_rows=False)
        return self

    def fit_transform(self, texts: Iterable[str], y: object = None) -> sp.csr_array:
        """Learn the terms and give the rows of the texts, n x features, float32."""
        return _matrix(self._fit(texts, keep_rows=True), self.n_features_)

    def fit_rows(self, texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """The same as three arrays: row offsets, features and values."""
        arrays: tuple[Any, Any, Any] = self._fit(texts, keep_rows=True)
        return arrays

    def transform(self, texts: Iterable[str]) -> sp.csr_array:
        """The rows of texts, n x features, float32. Terms that were not learned are left out."""
        return _matrix(self.rows(texts), self.n_features_)

    def rows(self, texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """The same as three arrays: row offsets, features and values."""
        vectorizer = self._ready()
        with self._progress() as progress, progress.stage("read texts") as report:
            arrays: tuple[Any, Any, Any] = _refusing(
                vectorizer.transform, _several(texts), _core.thread_count(self.n_jobs), report
            )
        return arrays

    def row(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The features of one text and their values; takes microseconds."""
        _, features, values = _refusing(self._ready().transform, (text,), 1, None)
        return features, values

    def terms_in(self, text: str) -> list[Term]:
        """Every term of a text that is a feature, and where it stands."""
        return [Term(*found) for found in _refusing(self._ready().trace, text)]

    def term(self, feature: int) -> str | None:
        """The term of a feature, as in :meth:`get_feature_names_out`; None if terms are hashed, and so not kept."""
        self._ready()
        if not 0 <= feature < self.n_features_:
            raise InputError(f"feature must be between 0 and {self.n_features_ - 1}, got {feature!r}")
        if self.buckets is not None:
            return None
        for analyzer, (data, ends, _) in zip(self._analyzers(), self.terms_, strict=True):
            if feature < ends.size:
                begin = ends.item(feature - 1) if feature else 0
                term = data[begin : ends.item(feature)].tobytes().decode()
                return f"{analyzer}:{term}" if len(self.terms_) > 1 else term
            feature -= ends.size
        return None

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """The terms in the order of the features; of several analyzers with the analyzer's name and a colon before."""
        self._ready()
        names: list[str] = []
        for analyzer, (data, ends, _) in zip(self._analyzers(), self.terms_, strict=True):
            prefix = f"{analyzer}:" if len(self.terms_) > 1 else ""
            if self.buckets is not None:
                names += [f"{prefix}bucket {number}" for number in range(self.buckets)]
                continue
            raw = data.tobytes()
            names += [prefix + raw[begin:end].decode() for begin, end in itertools.pairwise([0, *ends.tolist()])]
        return np.array(names, dtype=object)

    @property
    def widths_(self) -> list[int]:
        """How many features each analyzer has; they stand side by side in that order."""
        self._ready()
        return [self.buckets or ends.size for _, ends, _ in self.terms_]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "terms_")

    def _fit(self, texts: Iterable[str], *, keep_rows: bool) -> Any:
        """The rows as three arrays, empty ones unless `keep_rows`."""
        self.check_parameters()
        threads = _core.thread_count(self.n_jobs)
        counter = _core.TermCounter(self._parts(), keep_rows, threads)
        with self._progress() as progress:
            for batch in _batches(texts):
                with progress.stage("read texts") as report:
                    _refusing(counter.add, batch, report)
            if counter.texts == 0:
                raise InputError("there are no texts to learn from")
            least, most = (self._texts(limit, counter.texts) for limit in (self.min_df, self.max_df))
            if most < least and self.buckets is None and self.max_df != 1.0:
                raise ParameterError(
                    f"max_df={self.max_df!r} allows fewer texts than min_df={self.min_df!r} of {counter.texts}"
                )
            with progress.stage("choose terms"):
                terms, idf, features, rows = counter.learn(
                    least,
                    most,
                    self.max_features or 0,
                    self.use_idf,
                    self.smooth_idf,
                    self._weighting(),
                    threads,
                )
        if features == 0:
            raise InputError(
                f"no term is in at least {least:g} and at most {most:g} of the {counter.texts} texts: lower min_df "
                f"(now {self.min_df!r}) or raise max_df (now {self.max_df!r}), or give longer texts"
            )
        self.set_learned(terms, idf)
        return rows

    def set_learned(self, terms: list[tuple[Any, Any, Any]], idf: NDArray[np.float32]) -> None:
        """Take over what was learned: for each analyzer the bytes, ends and slots of its terms; and the idf."""
        arrays = [*itertools.chain.from_iterable(terms), idf]
        kinds = ["uint8", "int64", "uint64"] * len(terms) + ["float32"]
        if any(array.ndim != 1 or str(array.dtype) != kind for array, kind in zip(arrays, kinds, strict=True)):
            raise InputError("the terms do not fit together: an array has another type or shape than it should")
        for array in arrays:
            array.setflags(write=False)  # the core has looked at what is in them
        try:
            vectorizer = _core.Vectorizer(self._parts(), terms, idf, self._weighting())
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"the terms do not fit together: {error}") from None
        if idf.size != (vectorizer.features if self.use_idf else 0):
            raise InputError(f"there must be an idf for each of {vectorizer.features} features, or use_idf be False")
        self.terms_ = terms
        self.idf_ = idf
        self.learned_with_ = self.get_params() | {"stop_words": self._stop_words() or None}
        self.n_features_ = vectorizer.features
        self._vectorizer = vectorizer

    def _ready(self) -> _core.Vectorizer:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this Tfidf is not fitted yet: call fit first")
        return self._vectorizer

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_vectorizer"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "terms_" in state:
            now = self.get_params()
            self.set_params(**state["learned_with_"])
            self.set_learned(state["terms_"], state["idf_"])
            self.set_params(**now)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.target_tags.required = False
        return tags

    def _analyzers(self) -> list[str]:
        return [self.analyzer] if isinstance(self.analyzer, str) else list(self.analyzer)

    def _parts(self) -> list[_core.TextPart]:
        analyzers = self._analyzers()
        ranges = list(self.ngram_range)
        if not isinstance(ranges[0], (list, tuple)):
            ranges = [tuple(ranges)] * len(analyzers)
        if len(ranges) != len(analyzers):
            raise ParameterError(f"ngram_range has {len(ranges)} pairs, there are {len(analyzers)} analyzers")
        return [
            _core.TextPart(
                getattr(_core.Unit, analyzer),
                int(least),
                int(most),
                bool(self.lowercase),
                getattr(_core.Accents, self.strip_accents or "keep"),
                int(self.min_length),
                self._stop_words() if analyzer == "word" else [],
                int(self.buckets or 0),
            )
            for analyzer, (least, most) in zip(analyzers, ranges, strict=True)
        ]

    def _stop_words(self) -> list[str]:
        if self.stop_words is None:
            return []
        words = self.stop_words
        if words == "english":
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            words = ENGLISH_STOP_WORDS
        try:
            return sorted(set(words), key=str.encode)
        except UnicodeEncodeError as error:
            raise ParameterError(f"stop_words has {error.object!r}, a lone surrogate: it is no word") from None

    def _weighting(self) -> _core.Weighting:
        return _core.Weighting(bool(self.binary), bool(self.sublinear_tf), getattr(_core.Norm, self.norm or "none"))

    @staticmethod
    def _texts(limit: int | float, texts: int) -> float:
        """How many texts a limit stands for."""
        return float(limit) if isinstance(limit, (int, np.integer)) else float(limit) * texts

    def _progress(self) -> Progress:
        return Bars() if self.verbose else Progress()


def _several(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, (str, bytes)):
        raise InputError(f"texts must be several strings, got one {type(texts).__name__}: put it in a list")
    if not isinstance(texts, Iterable):
        raise InputError(f"texts must be several strings, got {type(texts).__name__}")
    return texts


def _batches(texts: Iterable[str]) -> Iterator[Iterable[str]]:
    texts = _several(texts)
    if isinstance(texts, Sequence):
        yield texts
        return
    rest = iter(texts)
    yield from read_ahead(iter(lambda: list(itertools.islice(rest, _BATCH)), []))


def _refusing(call: Any, *arguments: Any) -> Any:
    """What a call gives; what it refuses is the user's input."""
    try:
        return call(*arguments)
    except ValueError as error:
        raise InputError(str(error)) from None


def _matrix(arrays: tuple[Any, Any, Any], cols: int) -> sp.csr_array:
    indptr, indices, values = arrays
    return sp.csr_array((values, indices, indptr), shape=(indptr.size - 1, cols))
