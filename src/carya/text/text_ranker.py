"""Text ranker: a vectorizer and a model, combined to rank named labels."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.core import lazy_sparse as sp
from carya.core import storage
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterized, parameter
from carya.core.rules import Choice, Either, Instance
from carya.core.storage import SavedModel
from carya.errors import InputError, ModelFormatError
from carya.models.base import Model, TrainingData
from carya.models.registry import open_model
from carya.models.reranked.column_views import first_columns_of_row
from carya.models.xr_linear.model import XRLinear
from carya.text.base import BaseTextRanker, RankedLabels, Suggestion, check_text, to_suggestions, warn_unknown_texts
from carya.text.calibration import Calibration
from carya.text.default_vectorizer import default_vectorizer, name_columns
from carya.text.explanation import TextExplanation, locate_contributions
from carya.text.label_inputs import GraphLike, TreeLike, to_graph, to_shortlist, to_tree
from carya.text.labels import LabelRows, LabelSet, label_matrix
from carya.text.serialize import pack, unpack
from carya.text.tfidf import Tfidf, check_texts

_MAX_SINGLE = 8  # Below this number of texts, ranking one at a time is faster than starting threads for a batch.


class _TextRankerState(NamedTuple):
    vectorizer: Tfidf
    model: Model
    labels: LabelSet
    calibration: Calibration | None = None


@dataclass(eq=False, repr=False)
class TextRanker(BaseTextRanker[_TextRankerState], Parameterized):
    """Text ranker that combines a vectorizer and a model.

    Parameters
    ----------
    vectorizer : Tfidf, optional
    model : XRLinear, NearestNeighbors, Ensemble or Reranked, optional

    Examples
    --------
    >>> import carya
    >>> texts = ["a fast web server", "a mail server", "an image editor", "a photo editor", "a fast mail client"]
    >>> labels = [["net", "web"], ["net", "mail"], ["graphics"], ["graphics"], ["mail"]]
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels)
    >>> ranker.suggest("another photo editor", top_k=1)[0].label
    'graphics'
    >>> explanation = ranker.explain("another photo editor", "graphics")
    >>> {"photo", "editor"} <= {term.term for term in explanation.terms}
    True
    """

    vectorizer: Tfidf | None = parameter(
        None,
        Either(Instance(Tfidf, "a Tfidf"), Choice(None)),
        "the vectorizer; None means Tfidf(analyzer='auto'), or words and character n-grams for Reranked models",
    )
    model: Model | None = parameter(
        None, Either(Instance(Model, "a model such as XRLinear"), Choice(None)), "the model; None means XRLinear()"
    )

    def check_parameters(self) -> None:
        """Raise ParameterError if a parameter of the ranker, the vectorizer or the model is invalid."""
        super().check_parameters()
        for part in (self.vectorizer, self.model):
            if part is not None:
                part.check_parameters()

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if the vectorizer or the model requires a package that is not installed."""
        for part in (self.vectorizer, self.model):
            if part is not None:
                part.check_dependencies()

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Iterable[str]] | LabelRows,
        *,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
        label_graph: GraphLike | None = None,
        shortlist: Iterable[Iterable[str]] | None = None,
        tree: TreeLike | None = None,
    ) -> Self:
        """Train the ranker on texts and their labels.

        Parameters
        ----------
        texts : list of str
        labels : list of list of str
            One list per text. A text without labels is a negative example for every label.
        names : mapping of str to str, optional
            Human-readable names of the labels.
        label_texts : mapping of str to str, optional
            Descriptions of the labels. Models with an ``lf`` representation use them to cluster the labels. Rerankers
            compare them with the text; without descriptions, they use the names or the ids.
        label_graph : list of (label, label) or (label, label, weight), optional
            Related labels, for representations with ``graph``, such as the edges of a thesaurus.
        shortlist : list of list of str, optional
            For ``negatives`` with ``given``: the labels whose clusters each text is a negative for.
        tree : LabelTree or mapping of str to str, optional
            The label tree: of the labels in sorted order, or the path of clusters of each label, as in
            ``{"cat": "animals/mammals"}``.
        """
        self.check_parameters()
        self.check_dependencies()
        model = XRLinear() if self.model is None else self.model.clone()
        vectorizer = default_vectorizer(model) if self.vectorizer is None else self.vectorizer.clone()
        X = Features.of(Csr.of_triple(vectorizer.fit_rows(texts), vectorizer.n_features_))
        Y, ids = _to_matrix(labels)
        label_set = LabelSet.of(ids, names, label_texts)
        if X.rows != Y.rows:
            raise InputError(f"texts and labels must have the same length, got {X.rows} and {Y.rows}.")
        if not ids:
            raise InputError("labels is empty for every text. At least one label is required.")
        if model.needs_label_features and label_set.texts is None and tree is None:
            raise InputError(f"label_texts is missing. {model!r} requires descriptions of the labels.")
        label_features = None
        if model.uses_label_features and (tree is None or label_set.texts is not None):
            label_features = vectorizer.transform(label_set.texts or label_set.names or label_set.ids)
        columns = name_columns(model, vectorizer)
        data = TrainingData.of(
            X,
            Y,
            label_features=label_features,
            name_columns=columns,
            label_graph=to_graph(label_graph, ids),
            shortlist=to_shortlist(shortlist, ids, X.rows),
            tree=to_tree(tree, ids),
        )
        data.check_used([model])
        model.fit_data(data)
        self._state = _TextRankerState(vectorizer, model, label_set.with_counts(Y))
        return self

    def suggest(
        self,
        text: str,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
    ) -> list[Suggestion]:
        """Return the best labels for a text, best first.

        This takes tens of microseconds. If the text contains no known terms, the list is empty, and UnknownTextWarning
        is issued.

        Parameters
        ----------
        text : str
        top_k, beam_width, min_score, transform
            See :meth:`carya.XRLinear.predict`.
        labels : list of str, optional
            The ids or names of the only labels to rank.
        """
        state = self._check_fitted()
        check_text(text)
        features, values = state.vectorizer.row(text)
        if not features.size:
            warn_unknown_texts(np.zeros(2, np.int64))
        limits = _limits(state, top_k, beam_width, min_score, transform, labels)
        ranked, scores = state.model.rank_sparse(features, values, **limits)
        return [
            Suggestion(state.labels.ids[label], score, state.labels.name(label))
            for label, score in zip(ranked.tolist(), scores.tolist(), strict=True)
        ]

    def suggest_all(
        self,
        texts: Iterable[str],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
    ) -> list[list[Suggestion]]:
        """Return the best labels for each text, best first; for the options, see :meth:`suggest`.

        UnknownTextWarning is issued if texts contain no known terms.
        """
        state = self._check_fitted()
        limits = _limits(state, top_k, beam_width, min_score, transform, labels)
        rows = state.vectorizer.rows(texts)
        warn_unknown_texts(rows[0])
        rankings = state.model.rank_rows(*rows, **limits)
        return to_suggestions(rankings, state.labels)

    def rank_texts(
        self,
        texts: Sequence[str],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        labels: ArrayLike | None = None,
    ) -> list[RankedLabels]:
        """Return the numbers and scores of the best labels for each text, best first; never issue warnings.

        `labels` are the numbers of the only labels to rank.
        """
        state = self._check_fitted()
        check_texts(texts)
        limits: dict[str, Any] = {"top_k": top_k, "beam_width": beam_width, "min_score": min_score}
        if labels is not None:
            limits["labels"] = labels
        if len(texts) < _MAX_SINGLE:
            rankings = [state.model.rank_sparse(*state.vectorizer.row(text), **limits) for text in texts]
            return [list(zip(ranked.tolist(), scores.tolist(), strict=True)) for ranked, scores in rankings]
        ends, ranked, scores = (
            array.tolist() for array in state.model.rank_rows(*state.vectorizer.rows(texts), **limits)
        )
        return [list(zip(ranked[begin:end], scores[begin:end], strict=True)) for begin, end in itertools.pairwise(ends)]

    def predict(
        self,
        texts: Iterable[str],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
    ) -> sp.csr_array:
        """Return the scores of the best labels as a (texts, labels) matrix; each row is sorted by descending score.

        UnknownTextWarning is issued if texts contain no known terms.
        """
        state = self._check_fitted()
        X = state.vectorizer.transform(texts)
        warn_unknown_texts(X.indptr)
        return state.model.predict(X, **_limits(state, top_k, beam_width, min_score, transform, labels))

    def subset(self, labels: Iterable[str]) -> Self:
        """Return a smaller ranker of some of the labels, with the same vocabulary and calibration.

        Parameters
        ----------
        labels : list of str
            The ids or names of the labels.
        """
        state = self._check_fitted()
        numbers = state.labels.numbers(labels)
        model: Any = state.model
        ranker = self.clone(vectorizer=state.vectorizer.clone(), model=model.clone())
        ranker._state = state._replace(model=model.subset(numbers), labels=state.labels.take(numbers))
        return ranker

    def explain(self, text: str, label: str, *, tree: int | None = None) -> TextExplanation:
        """Return the exact contribution of each term to a label's score, level by level.

        If the vectorizer combines words with character n-grams (``char_wb``), the contributions of the n-grams are
        added to those of the words in which they occur.

        Parameters
        ----------
        text : str
        label : str
            The id or name of a label.
        tree : int, optional
            The index of a tree in `trees_`; required for models with several trees, such as ensembles. The score of
            this tree is explained, because the combined score is not a sum over terms.
        """
        state = self._check_fitted()
        model = self._tree(tree)
        number = state.labels.number(label)
        vectorizer = state.vectorizer
        features, values = first_columns_of_row(*vectorizer.row(text), model.widths_[0], vectorizer.n_features_)
        x = sp.csr_array((values, features, [0, features.size]), shape=(1, model.widths_[0]))
        explanation = model.explain(x, number)
        if not explanation.is_additive:
            raise InputError(
                "The levels of the model use different kinds of transforms, so its scores are not sums over terms. "
                "Use XRLinear.explain to get the raw contributions at each level."
            )
        occurrences = locate_contributions(vectorizer, text)
        return TextExplanation.of(explanation, occurrences, state.labels.ids[number], state.labels.name(number))

    def calibrate(self, texts: Iterable[str], labels: Iterable[Iterable[str]], *, top_k: int = 20) -> Self:
        """Learn to convert scores to probabilities from texts that were not used for training.

        Parameters
        ----------
        texts : list of str
        labels : list of list of str
            One list per text.
        top_k : int
            Number of suggestions per text to learn from; a larger number improves the estimates for low scores.
        """
        scores, correct = self.suggestion_scores(texts, labels, top_k=top_k)
        if not scores.size:
            raise InputError("The ranker returns no suggestions for these texts. Calibration requires at least one.")
        self._state = self._check_fitted()._replace(calibration=Calibration.learn(scores, correct))
        return self

    def suggestion_scores(
        self, texts: Iterable[str], labels: Iterable[Iterable[str]], *, top_k: int = 20
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the scores of all suggestions for the texts, and whether each suggestion is correct."""
        S, Y = self.predict(texts, top_k=top_k), self.label_matrix(labels)
        if S.shape[0] != Y.shape[0]:
            raise InputError(f"texts and labels must have the same length, got {S.shape[0]} and {Y.shape[0]}.")
        width = max(S.shape[1], 1)
        rows = np.repeat(np.arange(S.shape[0], dtype=np.int64), np.diff(S.indptr))
        truth = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * width + Y.indices
        return S.data, np.isin(rows * width + S.indices, truth)

    @property
    def vectorizer_(self) -> Tfidf:
        """The fitted vectorizer."""
        return self._check_fitted().vectorizer

    @property
    def model_(self) -> Any:
        """The fitted model."""
        return self._check_fitted().model

    @property
    def calibration_(self) -> Calibration | None:
        """The map from scores to probabilities; None before :meth:`calibrate` is called."""
        return self._check_fitted().calibration

    @property
    def trees_(self) -> tuple[XRLinear, ...]:
        """The label trees in the model; empty for models without trees, such as NearestNeighbors."""
        return tuple(_trees(self._check_fitted().model))

    def save(self, path: str | os.PathLike[str], *, weight_dtype: str | None = None) -> None:
        """Save the ranker to a folder atomically: concurrent readers see either the old or the new ranker."""
        state = self._check_fitted()
        model = state.model.to_saved(weight_dtype=weight_dtype)
        saved = pack(state.vectorizer, state.labels, model, state.calibration)
        storage.save(path, replace(saved, data_options=self.data_options_))

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore a ranker from an opened folder; called by :func:`carya.load`."""
        vectorizer, labels, calibration, rest = unpack(saved)
        model = open_model(rest)
        if model.widths_ != (vectorizer.n_features_, 0) or len(labels) != model.n_labels_:
            raise ModelFormatError(
                "The parts of the model are inconsistent: the numbers of terms, labels and weights do not match."
            )
        ranker = cls(vectorizer, model)
        ranker._state = _TextRankerState(vectorizer, model, labels, calibration)
        return ranker

    def _tree(self, number: int | None) -> XRLinear:
        """Return the tree whose score is explained."""
        model = self._check_fitted().model
        if number is None and isinstance(model, XRLinear):
            return model
        kind, trees = type(model).__name__, self.trees_
        if not trees:
            raise InputError(f"Scores of {kind} models cannot be explained, because these models have no label tree.")
        if number is None:
            raise InputError(
                f"Combined scores of {kind} models cannot be explained. Pass a value of tree from 0 to "
                f"{len(trees) - 1} to explain the score of one tree."
            )
        if not 0 <= number < len(trees):
            raise InputError(f"tree must be between 0 and {len(trees) - 1}, got {number!r}.")
        return trees[number]


def _limits(
    state: _TextRankerState,
    top_k: int,
    beam_width: int | None,
    min_score: float | None,
    transform: str | Sequence[str] | None,
    labels: Iterable[str] | None,
) -> dict[str, Any]:
    """Return the options of a ranking request, with label numbers instead of names."""
    limits: dict[str, Any] = {"top_k": top_k, "beam_width": beam_width, "min_score": min_score}
    if transform is not None:
        limits["transform"] = transform
    if labels is not None:
        limits["labels"] = state.labels.numbers(labels)
    return limits


def _trees(model: Any) -> Iterator[XRLinear]:
    if isinstance(model, XRLinear):
        yield model
    else:
        for member in getattr(model, "members_", ()):
            yield from _trees(member)


def _to_matrix(labels: Iterable[Iterable[str]] | LabelRows) -> tuple[Csr, list[str]]:
    if isinstance(labels, LabelRows):
        return labels.used()
    matrix, ids = label_matrix(labels)
    return Csr.of_scipy(matrix), ids
