"""Texts and names of labels in, ranked names out: a vectorizer and a model under one roof."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterised, parameter
from carya.core.rules import Choice, Either, Instance
from carya.errors import InputError, ModelFormatError, NotFittedError
from carya.models.base import Model
from carya.models.registry import fresh, open_saved
from carya.models.reranked.column_views import first_of_row
from carya.models.xr_linear.model import XRLinear
from carya.text.calibration import Calibration
from carya.text.default_vectorizer import about_columns, suited
from carya.text.explanation import TextExplanation
from carya.text.labels import LabelRows, LabelSet, label_matrix
from carya.text.serialize import pack, unpack
from carya.text.tfidf import Tfidf


class Suggestion(NamedTuple):
    """A label for a text.

    Attributes
    ----------
    label : str
        As it was called in training.
    score : float
    name : str
        What people call it; the label itself if no names were given.
    """

    label: str
    score: float
    name: str


@dataclass(eq=False, repr=False)
class TextRanker(Parameterised):
    """Ranks the labels of texts.

    Parameters
    ----------
    vectorizer : Tfidf, optional
    model : XRLinear, NearestNeighbours, Ensemble or Reranked, optional

    Examples
    --------
    >>> import carya
    >>> texts = ["a fast web server", "a mail server", "an image editor", "a photo editor", "a fast mail client"]
    >>> labels = [["net", "web"], ["net", "mail"], ["graphics"], ["graphics"], ["mail"]]
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels)
    >>> ranker.suggest("another photo editor", top_k=1)[0].label
    'graphics'
    >>> why = ranker.explain("another photo editor", "graphics")
    >>> {"photo", "editor"} <= {share.term for share in why.terms}
    True

    Attributes
    ----------
    calibration_ : Calibration or None
        What a score is worth: how often suggestions with such a score are right. None until :meth:`calibrate`.
    """

    vectorizer: Tfidf | None = parameter(
        None,
        Either(Instance(Tfidf, "a Tfidf"), Choice(None)),
        "how texts become features; None is Tfidf(), or words and characters for a Reranked",
    )
    model: Model | None = parameter(
        None, Either(Instance(Model, "a model such as XRLinear"), Choice(None)), "what ranks them; None is XRLinear()"
    )

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Iterable[str]] | LabelRows,
        *,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
    ) -> Self:
        """Learn from texts and the labels of each.

        Parameters
        ----------
        texts : list of str
        labels : list of list of str
            As many. A text without labels is an example of what has none.
        names : mapping of str to str, optional
            What people call a label.
        label_texts : mapping of str to str, optional
            What is written about a label. Representations of the model with ``lf`` cluster labels by it, and rankers of
            pairs look for it in texts; those do with names, or the labels themselves, if there is nothing else.
        """
        self.check_parameters()
        model = XRLinear() if self.model is None else fresh(self.model)
        vectorizer = suited(model) if self.vectorizer is None else Tfidf(**self.vectorizer.get_params(deep=False))
        rows = vectorizer.fit_rows(texts)
        X = Features.of(Csr.of_triple(rows, vectorizer.n_features_))
        Y, ids = _rows_of(labels)
        known = LabelSet.of(ids, names, label_texts)
        if X.rows != Y.rows:
            raise InputError(f"there are {X.rows} texts but labels for {Y.rows}")
        if not ids:
            raise InputError("no text has a label: there is nothing to learn")
        about: dict[str, Any] = {}
        if model.needs_label_features and known.texts is None:
            raise InputError(f"{model!r} needs label_texts")
        if model.uses_label_features:
            about["label_features"] = vectorizer.transform(known.texts or known.names or known.ids)
        about |= about_columns(model, vectorizer)
        model.fit_checked(*validation.training_pair(X, Y), **about)
        self._set_learned(vectorizer, model, known.counted(Y))
        return self

    def suggest(
        self, text: str, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> list[Suggestion]:
        """The best labels of one text, best first; takes tens of microseconds. None for a text without known terms."""
        vectorizer, model, labels = self._ready()
        if not isinstance(text, str):
            raise InputError(f"text must be a string, got {type(text).__name__}; for several use suggest_all")
        features, values = vectorizer.row(text)
        found, scores = model.rank_sparse(features, values, top_k=top_k, beam_width=beam_width, min_score=min_score)
        return [
            Suggestion(labels.ids[label], score, labels.name(label))
            for label, score in zip(found.tolist(), scores.tolist(), strict=True)
        ]

    def suggest_all(
        self, texts: Iterable[str], *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> list[list[Suggestion]]:
        """The best labels of each of several texts."""
        vectorizer, model, labels = self._ready()
        rows = vectorizer.rows(texts)
        ends, found, scores = (
            array.tolist() for array in model.rank_rows(*rows, top_k=top_k, beam_width=beam_width, min_score=min_score)
        )
        return [
            [Suggestion(labels.ids[found[i]], scores[i], labels.name(found[i])) for i in range(begin, end)]
            for begin, end in itertools.pairwise(ends)
        ]

    def predict(
        self, texts: Iterable[str], *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> sp.csr_array:
        """Scores of the best labels of every text, texts x labels, each row sorted best first; `labels_` names them."""
        vectorizer, model, _ = self._ready()
        X = vectorizer.transform(texts)
        return model.predict(X, top_k=top_k, beam_width=beam_width, min_score=min_score)

    def explain(self, text: str, label: str, *, tree: int | None = None) -> TextExplanation:
        """What each term of a text adds to a label's score, level by level; adds up to the score.

        Parameters
        ----------
        text : str
        label : str
            By id or name.
        tree : int, optional
            Of a model that has several, as an ensemble does: which of `trees_`. What is explained is the tree's own
            score then; that of all together is not a sum of what words add.
        """
        vectorizer, _, labels = self._ready()
        model = self._tree(tree)
        number = labels.number(label)
        features, values = first_of_row(*vectorizer.row(text), model.widths_[0], vectorizer.n_features_)
        x = sp.csr_array((values, features, [0, features.size]), shape=(1, model.widths_[0]))
        why = model.explain(x, number)
        if not why.adds_up:
            raise InputError(
                "the levels of the model join their scores in different ways (transform), so nothing adds up to them; "
                "XRLinear.explain tells what each feature adds to the raw score of each level"
            )
        return TextExplanation.of(why, vectorizer.terms_in(text), labels.ids[number], labels.name(number))

    def calibrate(self, texts: Iterable[str], labels: Iterable[Iterable[str]], *, top_k: int = 20) -> Self:
        """Learn what scores are worth from texts that the ranker was not trained on; see :attr:`calibration_`.

        Parameters
        ----------
        texts, labels : as in `fit`
        top_k : int
            How many suggestions of each text are looked at. More of them teach more about low scores.
        """
        scores, right = self.suggested(texts, labels, top_k=top_k)
        if not scores.size:
            raise InputError("the ranker suggests nothing for these texts: there is nothing to learn from")
        self._set_learned(*self._ready(), Calibration.learn(scores, right))
        return self

    def suggested(
        self, texts: Iterable[str], labels: Iterable[Iterable[str]], *, top_k: int = 20
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The scores of all suggestions for some texts, text by text, and which of them are right."""
        S, Y = self.predict(texts, top_k=top_k), self.label_matrix(labels)
        if S.shape[0] != Y.shape[0]:
            raise InputError(f"there are {S.shape[0]} texts but labels for {Y.shape[0]}")
        width = max(S.shape[1], 1)
        rows = np.repeat(np.arange(S.shape[0], dtype=np.int64), np.diff(S.indptr))
        truth = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * width + Y.indices
        return S.data, np.isin(rows * width + S.indices, truth)

    def label_matrix(self, labels: Iterable[Iterable[str]]) -> sp.csr_array:
        """Lists of labels as a matrix, rows x `labels_`; those that the ranker does not know are left out."""
        return label_matrix(labels, self._ready()[2].ids)[0]

    def score(self, texts: Iterable[str], labels: Iterable[Iterable[str]]) -> float:
        """P@1, what scikit-learn compares models by unless told otherwise."""
        return metrics.precision(self.label_matrix(labels), self.predict(texts, top_k=1), k=1)

    @property
    def labels_(self) -> Sequence[str]:
        """The labels in the order of a prediction's columns."""
        return self._ready()[2].ids

    @property
    def label_names_(self) -> Sequence[str]:
        """What people call them."""
        labels = self._ready()[2]
        return labels.ids if labels.names is None else labels.names

    @property
    def label_counts_(self) -> NDArray[np.int64] | None:
        """How many training texts had each of them; None for a model saved by a version that did not count."""
        return self._ready()[2].counts

    @property
    def trees_(self) -> tuple[XRLinear, ...]:
        """The trees of the model: itself, those of an ensemble, those that find candidates for a Reranked, or none."""
        return tuple(_trees(self._ready()[1]))

    def known(self) -> LabelSet:
        """All that is known of them."""
        return self._ready()[2]

    def save(self, path: str | os.PathLike[str], *, precision: str | None = None) -> None:
        """Write the ranker to a folder, in one step: a reader sees the old one or the new one, never half of it."""
        vectorizer, model, labels = self._ready()
        saved = pack(vectorizer, labels, model.to_saved(precision=precision), self.calibration_)
        storage.save(path, saved)

    @classmethod
    def from_saved(cls, saved: storage.Saved) -> Self:
        """The ranker in an opened folder; what :func:`carya.load` calls."""
        vectorizer, labels, calibration, rest = unpack(saved)
        model = open_saved(rest)
        if model.widths_ != (vectorizer.n_features_, 0) or len(labels) != model.n_labels_:
            raise ModelFormatError(
                "the parts of the model do not fit together: texts, labels and weights differ in size"
            )
        ranker = cls(vectorizer, model)
        ranker._set_learned(vectorizer, model, labels, calibration)
        return ranker

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _set_learned(
        self,
        vectorizer: Tfidf,
        model: Model,
        labels: LabelSet,
        calibration: Calibration | None = None,
    ) -> None:
        self._fitted = (vectorizer, model, labels)  # in one step: other threads may be asking
        self.vectorizer_ = vectorizer
        self.model_: Any = model
        self.calibration_ = calibration

    def _tree(self, number: int | None) -> XRLinear:
        """What explains; raises InputError."""
        model = self._ready()[1]
        if number is None and isinstance(model, XRLinear):
            return model
        kind, trees = type(model).__name__, self.trees_
        if not trees:
            raise InputError(f"the model is of kind {kind}, which has no label tree: only trees explain their scores")
        if number is None:
            raise InputError(
                f"the model is of kind {kind}: its scores cannot be explained, but each of its trees_ explains its "
                f"own: give tree, between 0 and {len(trees) - 1}"
            )
        if not 0 <= number < len(trees):
            raise InputError(f"tree must be between 0 and {len(trees) - 1}, got {number!r}")
        return trees[number]

    def _ready(self) -> tuple[Tfidf, Model, LabelSet]:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this TextRanker is not fitted yet: call fit first")
        return self._fitted


def _trees(model: Any) -> Iterator[XRLinear]:
    if isinstance(model, XRLinear):
        yield model
    else:
        for member in getattr(model, "members_", ()):
            yield from _trees(member)


def _rows_of(labels: Iterable[Iterable[str]] | LabelRows) -> tuple[Csr, list[str]]:
    if isinstance(labels, LabelRows):
        return labels.used()
    matrix, ids = label_matrix(labels)
    return Csr.of_scipy(matrix), ids
