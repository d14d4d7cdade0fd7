"""TF-IDF features computed by the native core."""

from __future__ import annotations

import itertools
import os
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import storage
from carya.core.inputs.prefetch import prefetch
from carya.core.inputs.texts import TextsLike
from carya.core.parameters import Fitted, Parameterized, parameter
from carya.core.progress import Report, show_progress
from carya.core.rules import Choice, Either, Integer, Real, Rule
from carya.errors import FewTermsWarning, InputError, ParameterError
from carya.text.inputs import texts_of
from carya.text.preprocessing.segmentation import IcuSegmenter
from carya.text.preprocessing.stemming import Stemmer, check_language, import_snowball

ANALYZERS = ("word", "char", "char_wb")

_SEGMENTERS = {"bigrams": "characters", "icu": "words", None: "none"}  # names in the native core
_SAMPLE = 1000  # number of texts from which analyzer="auto" estimates the mean text length
_SHORT = 500  # texts are short if they have at most this number of characters on average
_MIN_TERMS = 2  # a warning is issued if a typical text has fewer terms
_MIN_TEXTS = 10  # no warning is issued for smaller corpora, which are usually toy examples
_BATCH = 4096  # number of texts read from an iterator at a time


class _Analyzers(Rule):
    """Rule that allows an analyzer, a list of analyzers, or 'auto'."""

    text = f"one of {', '.join(map(repr, ANALYZERS))}, a list of these, or 'auto'"

    def allows(self, value: object) -> bool:
        """Return whether the value or, for a list, every item is allowed."""
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(item in ANALYZERS for item in value)
        return value in (*ANALYZERS, "auto")


class _Ranges(Rule):
    """Rule that allows a pair of integers or a list of pairs."""

    text = "a pair of integers (min, max) with 1 <= min <= max <= 100, or a list of pairs, one per analyzer"

    def allows(self, value: object) -> bool:
        """Return whether the value is a valid pair or a list of valid pairs."""
        if not isinstance(value, (list, tuple)) or not value:
            return False
        if all(isinstance(item, (list, tuple)) for item in value):
            return all(self._is_pair(item) for item in value)
        return self._is_pair(value)

    @staticmethod
    def _is_pair(value: Any) -> bool:
        size = Integer(1, 100)
        return len(value) == 2 and all(size.allows(item) for item in value) and value[0] <= value[1]


class _StopWords(Rule):
    """Rule that allows a list of words or the name of a predefined list."""

    text = "a list of words, 'english' or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is a list of strings, the name of a predefined list, or None."""
        if isinstance(value, str) or value is None:
            return value in (None, "english")
        return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(word, str) for word in value)


class _Language(Rule):
    """Rule that allows a string or None; :func:`check_language` checks whether the stemmer exists."""

    text = "the name of a Snowball stemmer, such as 'english', or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is a string or None."""
        return value is None or isinstance(value, str)


class Term(NamedTuple):
    """An occurrence of a known term in a text.

    Attributes
    ----------
    feature : int
    begin, end : int
        The character range of the term in the text.
    text : str
        The normalized term: in lower case, without accents or stemmed, depending on the parameters.
    """

    feature: int
    begin: int
    end: int
    text: str


class _FittedState(NamedTuple):
    """The fitted native vectorizer, and the segmenter and stemmer that its texts require."""

    vectorizer: _core.Vectorizer
    segmenter: IcuSegmenter | None
    stemmer: Stemmer | None
    word_analyzer: _core.TextAnalyzer | None  # splits texts into the words to stem


@dataclass(eq=False, repr=False, kw_only=True)
class Tfidf(Fitted[_FittedState], Parameterized):
    """Vectorizer that converts texts to sparse TF-IDF features.

    With ``tokenizer="sklearn"``, ``lead_weight=0`` and otherwise the same settings, the features are equal to those of
    scikit-learn's ``TfidfVectorizer``. The defaults differ and give better rankings: word unigrams and bigrams, a
    minimum document frequency of 2, sublinear term frequencies, and a higher weight for the first words of a text,
    which are often its title.

    By default, texts are normalized and split into words in all languages: words include combining marks, and text in
    scripts without spaces between words is split into characters, whose unigrams and bigrams become terms.

    Several analyzers can be combined; their features are concatenated, and each row is normalized as a whole. With
    ``analyzer="auto"``, character n-grams are combined with words if texts are short, which gives better rankings.
    `fitted_parameters_` contains the analyzers that were used.

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
    >>> carya.Tfidf(ngram_range=(1, 1), min_df=1).fit(["機器學習"]).get_feature_names_out().tolist()
    ['器', '器學', '學', '學習', '機', '機器', '習']
    """

    foreign_names: ClassVar[Mapping[str, str]] = {
        "token_pattern": "min_word_length",
        "n_features": "n_buckets",
        "ngram": "ngram_range",
        "sublinear": "sublinear_tf",
    }

    analyzer: str | Sequence[str] = parameter(
        "word",
        _Analyzers(),
        "unit of the n-grams: word, char (characters), char_wb (characters within words), a list of these, or auto "
        "(words, plus character 4-grams within words if the first 1,000 texts have at most 500 characters on average)",
        group="text features",
    )
    ngram_range: Any = parameter(
        (1, 2), _Ranges(), "n-gram sizes, as min,max; one pair, or one pair per analyzer", group="text features"
    )
    tokenizer: str = parameter(
        "unicode",
        Choice("unicode", "sklearn"),
        "tokenizer that splits texts into words: unicode (words include combining marks, texts are normalized to NFC, "
        "and invisible characters such as zero-width joiners are removed) or sklearn (as in scikit-learn, for "
        "languages written in Latin, Greek or Cyrillic letters)",
        group="text features",
    )
    segmenter: str | None = parameter(
        "bigrams",
        Choice("bigrams", "icu", None),
        "segmentation of text without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) with "
        "tokenizer=unicode: bigrams (into characters and pairs of characters), icu (into words, with ICU's "
        "dictionaries), or None (no segmentation)",
        group="text features",
    )
    stemmer: str | None = parameter(
        None,
        _Language(),
        "language of the Snowball stemmer that removes word endings, such as english; None means no stemming",
        group="text features",
    )
    lowercase: bool = parameter(True, Choice(True, False), "convert texts to lower case", group="text features")
    strip_accents: str | None = parameter(
        None,
        Choice("unicode", "ascii", None),
        "remove accents; ascii also removes characters without an ASCII equivalent",
        group="text features",
    )
    min_word_length: int = parameter(2, Integer(1), "minimum number of characters per word", group="text features")
    stop_words: Any = parameter(
        None, _StopWords(), "words to remove; english means scikit-learn's list", group="text features"
    )
    min_df: int | float = parameter(
        2,
        Either(Integer(1), Real(0, 1)),
        "minimum document frequency of a term: a count, or a fraction of the texts",
        group="text features",
    )
    max_df: int | float = parameter(
        1.0,
        Either(Integer(1), Real(0, 1)),
        "maximum document frequency of a term: a count, or a fraction of the texts (1.0 means all "
        "texts, 1 a single text)",
        group="text features",
    )
    max_features: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "maximum number of terms per analyzer; the most frequent terms are kept",
        group="text features",
    )
    n_buckets: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "hash terms into this number of features instead of learning a vocabulary",
        group="text features",
    )
    binary: bool = parameter(False, Choice(True, False), "use binary term frequencies", group="text features")
    use_idf: bool = parameter(
        True, Choice(True, False), "weight terms by inverse document frequency", group="text features"
    )
    smooth_idf: bool = parameter(
        True, Choice(True, False), "add one to document frequencies, as in scikit-learn", group="text features"
    )
    sublinear_tf: bool = parameter(
        True, Choice(True, False), "use 1 + log(tf) instead of the term frequency", group="text features"
    )
    lead_weight: float = parameter(
        0.5,
        Real(0),
        "additional weight of the first words of a text (often its title), relative to the weight of the complete text",
        group="text features",
    )
    lead_words: int = parameter(
        15, Integer(1, 2**31 - 1), "number of words to which lead_weight applies", group="text features"
    )
    norm: str | None = parameter("l2", Choice("l1", "l2", None), "norm used to scale each row", group="text features")
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "number of threads; -1 means all cores")
    verbose: bool = parameter(False, Choice(True, False), "show progress on standard error")

    def check_parameters(self) -> None:
        """Raise ParameterError for the first invalid parameter or combination of parameters."""
        super().check_parameters()
        if self.segmenter == "icu" and self.tokenizer == "sklearn":
            raise ParameterError("segmenter='icu' requires tokenizer='unicode', got tokenizer='sklearn'.")
        if self.stemmer is not None:
            if not {"word", "auto"} & set(self._analyzers()):
                raise ParameterError(f"stemmer requires the analyzer 'word', got analyzer={self.analyzer!r}.")
            check_language(self.stemmer)
        if self.analyzer == "auto" and isinstance(self.ngram_range[0], (list, tuple)):
            raise ParameterError(
                f"ngram_range must be a single pair (for words) if analyzer is 'auto', got {self.ngram_range!r}."
            )

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if the segmenter or the stemmer is not installed."""
        if self.segmenter == "icu":
            IcuSegmenter()
        if self.stemmer is not None:
            import_snowball(self.stemmer)

    def fit(self, texts: TextsLike, y: object = None) -> Self:
        """Learn the vocabulary.

        The texts can be a list, an array or a column of strings, a Corpus, or an iterator of any length; only a few
        batches of an iterator are kept in memory at a time.

        Raises
        ------
        InputError
            If a text is not a string or contains a lone surrogate, or if no term satisfies `min_df` and `max_df`.
        """
        self.fit_rows(texts, keep_rows=False)
        return self

    def fit_transform(self, texts: TextsLike, y: object = None) -> sp.csr_array:
        """Learn the vocabulary and return the features as a float32 matrix of shape (texts, features)."""
        return _matrix(self.fit_rows(texts), self.n_features_)

    def transform(self, texts: TextsLike) -> sp.csr_array:
        """Return the features as a float32 matrix of shape (texts, features); unknown terms are ignored."""
        return _matrix(self.rows(texts), self.n_features_)

    def rows(self, texts: TextsLike) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Return the result of :meth:`transform` as three arrays: row offsets, feature indices and values."""
        threads = _core.thread_count(self.n_jobs)
        vectorizer, texts = self._prepare(texts_of(texts), threads)
        with show_progress(self.verbose) as progress, progress.stage("read texts") as report:
            arrays: tuple[Any, Any, Any] = _as_input_error(vectorizer.transform, texts, threads, report)
        return arrays

    def row(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the feature indices and values of a single text; this takes microseconds."""
        vectorizer, texts = self._prepare((text,), 1)
        _, features, values = _as_input_error(vectorizer.transform, texts, 1, None)
        return features, values

    def terms_in(self, text: str) -> list[Term]:
        """Return all occurrences of known terms in a text."""
        segmenter = self._check_fitted().segmenter
        if segmenter is None or not isinstance(text, str):
            vectorizer, (text,) = self._prepare((text,), 1)
            return [Term(*fields) for fields in _as_input_error(vectorizer.locate_terms, text)]
        segmented = segmenter.segment(text)
        vectorizer = self._prepare_segmented((segmented.text,), 1)
        position = segmented.original_position
        return [
            Term(feature, position(begin), position(end), term)
            for feature, begin, end, term in _as_input_error(vectorizer.locate_terms, segmented.text)
        ]

    def term(self, feature: int, *, prefix: bool = True) -> str | None:
        """Return the name of a feature, or None if terms are hashed.

        The name is the same as in :meth:`get_feature_names_out`; if `prefix` is False, it is the term alone.
        """
        self._check_fitted()
        if not 0 <= feature < self.n_features_:
            raise InputError(f"feature must be between 0 and {self.n_features_ - 1}, got {feature!r}.")
        if self.fitted_parameters_["n_buckets"] is not None:
            return None
        for analyzer, (data, ends, _) in zip(self.analyzers_, self.terms_, strict=True):
            if feature < ends.size:
                begin = ends.item(feature - 1) if feature else 0
                term = data[begin : ends.item(feature)].tobytes().decode()
                return f"{analyzer}:{term}" if prefix and len(self.terms_) > 1 else term
            feature -= ends.size
        return None

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return the terms in feature order; with several analyzers, they have prefixes, as in ``word:term``."""
        self._check_fitted()
        names: list[str] = []
        n_buckets = self.fitted_parameters_["n_buckets"]
        for analyzer, (data, ends, _) in zip(self.analyzers_, self.terms_, strict=True):
            prefix = f"{analyzer}:" if len(self.terms_) > 1 else ""
            if n_buckets is not None:
                names += [f"{prefix}bucket {number}" for number in range(n_buckets)]
                continue
            raw = data.tobytes()
            names += [prefix + raw[begin:end].decode() for begin, end in itertools.pairwise([0, *ends.tolist()])]
        return np.array(names, dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the fitted vectorizer to a folder atomically; load it with :func:`carya.load`."""
        from carya.text.serialize import pack_vectorizer

        self._check_fitted()
        storage.save(path, replace(pack_vectorizer(self), data_options=self.data_options_))

    @classmethod
    def from_saved(cls, saved: storage.SavedModel) -> Tfidf:
        """Restore a vectorizer from an opened folder; called by :func:`carya.load`."""
        from carya.text.serialize import unpack_vectorizer

        return unpack_vectorizer(saved)

    @property
    def widths_(self) -> list[int]:
        """The number of features per analyzer."""
        self._check_fitted()
        return [self.fitted_parameters_["n_buckets"] or ends.size for _, ends, _ in self.terms_]

    @property
    def analyzers_(self) -> list[str]:
        """The analyzers, in feature order."""
        self._check_fitted()
        return _to_list(self.fitted_parameters_["analyzer"])

    @property
    def word_features_(self) -> range:
        """The word features, or all features if there is only one analyzer or none of the analyzers is ``word``."""
        analyzers, widths = self.analyzers_, self.widths_
        if len(analyzers) == 1 or "word" not in analyzers:
            return range(self.n_features_)
        position = analyzers.index("word")
        begin = sum(widths[:position])
        return range(begin, begin + widths[position])

    def fit_rows(
        self, texts: Iterable[str], *, keep_rows: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Return the result of :meth:`fit_transform` as three arrays: row offsets, feature indices and values.

        If `keep_rows` is False, only learn the vocabulary and return empty arrays.
        """
        self.check_parameters()
        self.check_dependencies()
        if self.analyzer == "auto":
            texts, settings = self._choose_analyzers(texts)
            chosen = self.clone(**settings)
            chosen_rows = chosen.fit_rows(texts, keep_rows=keep_rows)
            for name in ("terms_", "idf_", "fitted_parameters_", "n_features_", "_state"):
                setattr(self, name, getattr(chosen, name))
            return chosen_rows
        threads = _core.thread_count(self.n_jobs)
        segmenter, stemmer = self._make_segmenter(), self._make_stemmer()
        analyzers = self._native_analyzers(stemmer)
        counter = _core.TermCounter(analyzers, keep_rows, self._weighting(), threads)
        with show_progress(self.verbose) as progress:
            with progress.stage("read texts") as report:
                total = len(texts) if isinstance(texts, Sequence) else 0
                for batch in _batches(texts):
                    prepared = batch if segmenter is None else segmenter.segment_all(batch)
                    if stemmer is not None:
                        _as_input_error(stemmer.learn, prepared, self._word_analyzer(analyzers), threads)
                    _as_input_error(counter.add, prepared, _continue_report(report, counter.n_texts, total))
                    if report is not None:
                        report(counter.n_texts, total)
            if counter.n_texts == 0:
                raise InputError("texts is empty. At least one text is required.")
            lowest, highest = (self._document_count(limit, counter.n_texts) for limit in (self.min_df, self.max_df))
            if highest < lowest and self.n_buckets is None and self.max_df != 1.0:
                raise ParameterError(
                    f"max_df must not be less than min_df, got max_df={self.max_df!r} and min_df={self.min_df!r} for "
                    f"{counter.n_texts} texts."
                )
            with progress.stage("select terms"):
                terms, idf, document_frequencies, rows = counter.fit(
                    lowest,
                    highest,
                    self.max_features or 0,
                    self.use_idf,
                    self.smooth_idf,
                    self._weighting(),
                    threads,
                )
        if document_frequencies.size == 0:
            raise InputError(
                f"No term occurs in at least {lowest:g} and at most {highest:g} of the {counter.n_texts} texts. "
                f"Decrease min_df (now {self.min_df!r}), increase max_df (now {self.max_df!r}), or pass longer texts."
            )
        self.set_fitted(terms, idf)
        if keep_rows:
            self._warn_few_terms(counter.n_texts, float(np.median(np.diff(rows[0]))))
        else:  # the median is unknown, but not much greater than the mean
            self._warn_few_terms(counter.n_texts, document_frequencies.sum() / counter.n_texts)
        arrays: tuple[Any, Any, Any] = rows
        return arrays

    def _warn_few_terms(self, n_texts: int, terms_per_text: float) -> None:
        """Issue FewTermsWarning if a typical text has fewer than 2 terms."""
        if n_texts < _MIN_TEXTS or terms_per_text >= _MIN_TERMS:
            return
        advice = [f"decrease min_df (now {self.min_df!r})"] if self.min_df != 1 else []
        if self.tokenizer == "sklearn":
            advice.append("use tokenizer='unicode' for languages with combining marks or without spaces between words")
        elif self.segmenter is None:
            advice.append("use segmenter='bigrams' for languages without spaces between words")
        if "char_wb" not in self._analyzers():
            advice.append("use analyzer='char_wb', which also matches parts of words")
        advice.append("pass longer texts")
        warnings.warn(
            f"A typical text has {terms_per_text:.1f} terms, so most texts cannot be distinguished. To get more terms, "
            f"{', or '.join(advice)}.",
            FewTermsWarning,
            stacklevel=4,
        )

    def set_fitted(self, terms: list[tuple[Any, Any, Any]], idf: NDArray[np.float32]) -> None:
        """Set the fitted state: the bytes, ends and hash slots of each analyzer's terms, and the idf weights."""
        arrays = [*itertools.chain.from_iterable(terms), idf]
        dtypes = ["uint8", "int64", "uint64"] * len(terms) + ["float32"]
        if any(array.ndim != 1 or str(array.dtype) != dtype for array, dtype in zip(arrays, dtypes, strict=True)):
            raise InputError("A vocabulary array has the wrong type or shape.")
        for array in arrays:
            array.setflags(write=False)  # read-only, because the native core validates arrays only once
        segmenter, stemmer = self._make_segmenter(), self._make_stemmer()
        analyzers = self._native_analyzers(stemmer)
        try:
            vectorizer = _core.Vectorizer(analyzers, terms, idf, self._weighting())
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"The vocabulary is inconsistent: {error}") from None
        if idf.size != (vectorizer.n_features if self.use_idf else 0):
            raise InputError(
                f"idf must have one weight per feature if use_idf is True, and none otherwise, got {idf.size} weights."
            )
        self.terms_ = terms
        self.idf_ = idf
        self.fitted_parameters_ = self.get_params() | {"stop_words": self._stop_words() or None}
        self.n_features_ = vectorizer.n_features
        word_analyzer = self._word_analyzer(analyzers) if stemmer is not None else None
        self._state = _FittedState(vectorizer, segmenter, stemmer, word_analyzer)

    def _prepare(self, texts: Iterable[str], threads: int) -> tuple[_core.Vectorizer, Iterable[str]]:
        """Segment texts and stem their words; return the native vectorizer and the texts to pass to it."""
        native = self._check_fitted()
        if native.segmenter is None and native.stemmer is None:
            return native.vectorizer, texts
        texts = list(texts) if native.segmenter is None else native.segmenter.segment_all(texts)
        return self._prepare_segmented(texts, threads), texts

    def _prepare_segmented(self, texts: Iterable[str], threads: int) -> _core.Vectorizer:
        native = self._check_fitted()
        if native.stemmer is None:
            return native.vectorizer
        if native.stemmer.is_full:
            # Other threads may be using the table, so it is replaced instead of cleared. The fitted parameters are
            # used, because the current ones may have changed since fit.
            fitted = type(self)(**self.fitted_parameters_)
            fitted.set_fitted(self.terms_, self.idf_)
            native = self._state = fitted._state
        assert native.stemmer is not None
        _as_input_error(native.stemmer.learn, texts, native.word_analyzer, threads)
        return native.vectorizer

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_state"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "terms_" in state:
            current = self.get_params()
            self.set_params(**state["fitted_parameters_"])
            self.set_fitted(state["terms_"], state["idf_"])
            self.set_params(**current)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.target_tags.required = False
        return tags

    def _analyzers(self) -> list[str]:
        return _to_list(self.analyzer)

    def _choose_analyzers(self, texts: Iterable[str]) -> tuple[Iterable[str], dict[str, Any]]:
        """Return the texts, and the analyzers for texts of their mean length.

        On held-out rows of three data sets, adding character n-grams to words improves the ranking of texts with 100 to
        400 characters on average, but not the ranking of texts with 700 characters or more (docs/design-notes.md).
        """
        texts = texts_of(texts)
        if isinstance(texts, Sequence):
            sample = texts[:_SAMPLE]
        else:
            remaining = iter(texts)
            sample = list(itertools.islice(remaining, _SAMPLE))
            texts = itertools.chain(sample, remaining)
        lengths = [len(text) for text in sample if isinstance(text, str)]
        if lengths and sum(lengths) <= _SHORT * len(lengths):
            return texts, {"analyzer": ("word", "char_wb"), "ngram_range": (tuple(self.ngram_range), (4, 4))}
        return texts, {"analyzer": "word"}

    def _make_segmenter(self) -> IcuSegmenter | None:
        return IcuSegmenter() if self.segmenter == "icu" and "word" in self._analyzers() else None

    def _make_stemmer(self) -> Stemmer | None:
        return None if self.stemmer is None else Stemmer(self.stemmer)

    def _word_analyzer(self, analyzers: list[_core.TextAnalyzer]) -> _core.TextAnalyzer:
        return analyzers[self._analyzers().index("word")]

    def _native_analyzers(self, stemmer: Stemmer | None) -> list[_core.TextAnalyzer]:
        analyzers = self._analyzers()
        ranges = list(self.ngram_range)
        if not isinstance(ranges[0], (list, tuple)):
            ranges = [tuple(ranges)] * len(analyzers)
        if len(ranges) != len(analyzers):
            raise ParameterError(
                f"ngram_range must have one pair per analyzer ({len(analyzers)}), got {len(ranges)} pairs."
            )
        return [
            _core.TextAnalyzer(
                getattr(_core.TokenUnit, analyzer),
                int(lowest),
                int(highest),
                bool(self.lowercase),
                getattr(_core.Accents, self.strip_accents or "keep"),
                int(self.min_word_length),
                self._stop_words() if analyzer == "word" else [],
                int(self.n_buckets or 0),
                getattr(_core.TokenizerKind, self.tokenizer),
                getattr(_core.Segmenter, _SEGMENTERS[self.segmenter]),
                stemmer.table if stemmer is not None and analyzer == "word" else None,
            )
            for analyzer, (lowest, highest) in zip(analyzers, ranges, strict=True)
        ]

    def _stop_words(self) -> list[str]:
        if self.stop_words is None:
            return []
        words = self.stop_words
        if words == "english":
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            words = ENGLISH_STOP_WORDS
        if self.tokenizer == "unicode":
            words = [unicodedata.normalize("NFC", word) for word in words]
        try:
            return sorted(set(words), key=str.encode)
        except UnicodeEncodeError as error:
            raise ParameterError(f"stop_words contains {error.object!r}, which contains a lone surrogate.") from None

    def _weighting(self) -> _core.Weighting:
        norm = getattr(_core.Norm, self.norm or "none")
        lead = float(self.lead_weight), int(self.lead_words)
        return _core.Weighting(bool(self.binary), bool(self.sublinear_tf), norm, *lead)

    @staticmethod
    def _document_count(limit: int | float, n_texts: int) -> float:
        """Convert a document frequency limit to a number of texts."""
        return float(limit) if isinstance(limit, (int, np.integer)) else float(limit) * n_texts


def _to_list(analyzer: str | Sequence[str]) -> list[str]:
    return [analyzer] if isinstance(analyzer, str) else list(analyzer)


def _batches(given: TextsLike) -> Iterator[Iterable[str]]:
    texts = texts_of(given)
    if isinstance(texts, Sequence):
        yield texts
        return
    remaining = iter(texts)
    yield from prefetch(iter(lambda: list(itertools.islice(remaining, _BATCH)), []))


def _continue_report(report: Report, n_before: int, total: int) -> Callable[[int, int], None] | None:
    """Return a callback for one batch that reports the total number of texts so far."""
    return None if report is None else lambda done, _: report(n_before + done, total)


def _as_input_error(call: Any, *arguments: Any) -> Any:
    """Call a native function; convert ValueError, which indicates invalid user input, to InputError."""
    try:
        return call(*arguments)
    except ValueError as error:
        raise InputError(str(error)) from None


def _matrix(arrays: tuple[Any, Any, Any], cols: int) -> sp.csr_array:
    indptr, indices, values = arrays
    return sp.csr_array((values, indices, indptr), shape=(indptr.size - 1, cols))
