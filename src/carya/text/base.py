"""Methods shared by all text models: ranking, explanation, calibration, label matrices and label names."""

from __future__ import annotations

import copy
import itertools
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core import storage
from carya.core.inputs.labels import align_columns
from carya.core.inputs.texts import TextsLike
from carya.core.parameters import Fitted, Parameterized, set_in_all
from carya.core.storage import SavedModel
from carya.errors import InputError, UnknownTextWarning
from carya.models.base import select_tree
from carya.models.calibration.assignment import pool_size, select
from carya.models.calibration.calibration import Calibration, Suggested, is_correct, require_calibration
from carya.models.interface import RankOptions
from carya.models.registry import load_model
from carya.models.suggestions import RankingArrays, Suggestion, to_frame, to_suggestions
from carya.models.xr_linear.model import XRLinear
from carya.text.explanation import TextExplanation
from carya.text.inputs import list_of_texts, split_corpus
from carya.text.label_restriction import RankedLabels, rank_within
from carya.text.labels import LabelRows, LabelSet, label_matrix
from carya.text.open_vocabulary.proposals import add_proposals, check_open_vocabulary
from carya.text.text_tree import TextTree
from carya.text.tfidf import Tfidf

__all__ = ["BaseTextRanker", "LabeledState", "RankedLabels", "Suggestion", "check_text"]

#: The advice in warnings about texts without known terms.
UNKNOWN_TEXT_ADVICE = (
    "Train on texts in the same language and domain, or with analyzer='char_wb', which also matches parts of words."
)


class LabeledState(Protocol):
    """Protocol for the fitted state of a text model."""

    @property
    def labels(self) -> LabelSet:
        """The labels, in the column order of the predictions."""
        ...

    @property
    def calibration(self) -> Calibration | None:
        """The mapping from scores to probabilities; None if the model is not calibrated."""
        ...


StateT = TypeVar("StateT", bound=LabeledState)


class BaseTextRanker(Fitted[StateT], Parameterized):
    """Base class for all text models.

    Subclasses implement `_predict`, `to_saved` and `_set_calibration`, and override the methods for which they have a
    faster implementation. Each method reads the fitted state only once and uses it in all steps, because another thread
    may replace the model's state in the meantime.
    """

    def predict(
        self,
        texts: TextsLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
        as_frame: bool = False,
    ) -> Any:
        """Return the scores of the best labels as a (texts, labels) matrix; each row is sorted by descending score.

        Parameters
        ----------
        texts : as in `fit`
        top_k : int
            Number of labels per text.
        beam_width : int, optional
            Number of nodes kept per level; by default, each tree uses its own beam width.
        min_score : float, optional
            Labels with lower scores are omitted.
        transform : str or sequence of str, optional
            How level scores are combined; see :meth:`with_transform`.
        labels : list of str, optional
            Restrict the ranking to these labels, given by id or name.
        as_frame : bool
            Return a pandas DataFrame, as in :meth:`suggest_all`, instead of a matrix.
        """
        if transform is not None:
            return self.with_transform(transform).predict(
                texts, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels, as_frame=as_frame
            )
        state = self._check_fitted()
        S = self._rank(state, texts, rank_options(state.labels, top_k, beam_width, min_score, labels))
        if min_score is None:
            warn_unknown_texts(S.indptr)
        if not as_frame:
            return S
        return self._to_output(state, (S.indptr, S.indices, S.data), as_frame=True, is_restricted=labels is not None)

    def predict_proba(
        self,
        texts: TextsLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        labels: Iterable[str] | None = None,
    ) -> sp.csr_array:
        """Return the probabilities of the best labels as a (texts, labels) matrix, in the order of :meth:`predict`.

        The probability that a label is correct depends on its score, its rank and its frequency. Raises InputError if
        the model is not calibrated.

        Parameters
        ----------
        texts, top_k, beam_width, min_score, labels
            See :meth:`predict`.
        """
        calibration = require_calibration(self.calibration_, "texts")
        S = self.predict(texts, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels)
        rankings = (S.indptr, S.indices, S.data)
        values = calibration.of_ranking_arrays(rankings, is_restricted=labels is not None)
        return sp.csr_array((values.astype(np.float32), S.indices, S.indptr), shape=S.shape)

    def assign(
        self, texts: TextsLike, *, decide: str | int = "f1", beam_width: int | None = None
    ) -> list[list[Suggestion]]:
        """Return the labels to assign to each text, chosen by a decision rule with cut-offs learned on held-out rows.

        The model must have been trained with ``calibrate=True``, unless `decide` is a number of labels.

        Parameters
        ----------
        texts : as in :meth:`predict`
        decide : str or int
            ``"f1"`` (the best mean F1 per text), ``"precision>=0.8"`` (as many labels as possible with at least this
            precision), ``"macro-f1@5"`` (the five labels per text with the best macro-averaged F1, which favors rare
            labels), or a number of labels.
        beam_width : int, optional
            See :meth:`predict`.
        """
        S = self.predict(texts, top_k=pool_size(decide), beam_width=beam_width)
        labels = self.label_set_
        *assigned, values = select(self.calibration_, decide, (S.indptr, S.indices, S.data))
        return to_suggestions(tuple(assigned), labels.ids, labels.name, values)  # type: ignore[arg-type]

    def _predict(self, state: StateT, texts: TextsLike, options: RankOptions) -> sp.csr_array:
        """Rank all labels for each text; `options.labels` is None."""
        raise NotImplementedError

    def _rank(self, state: StateT, texts: TextsLike, options: RankOptions) -> sp.csr_array:
        """Rank all labels for each text, or only `options.labels` if given."""
        if options.labels is None:
            return self._predict(state, texts, options)
        model = copy.copy(self)
        model._state = state  # another thread may replace the state of `self`
        rankings = rank_within(model, list_of_texts(texts), options.labels, options)
        indptr = np.concatenate([[0], np.cumsum([len(ranking) for ranking in rankings])]).astype(np.int64)
        pairs = [pair for ranking in rankings for pair in ranking]
        ranked = np.array([label for label, _ in pairs], np.int32)
        scores = np.array([score for _, score in pairs], np.float32)
        return sp.csr_array((scores, ranked, indptr), shape=(len(rankings), len(state.labels)))

    def rank_all(self, texts: Sequence[str], options: RankOptions) -> sp.csr_array:
        """Rank labels like :meth:`predict`, but without warning about texts that contain no known terms."""
        return self._rank(self._check_fitted(), texts, options)

    def with_transform(self, transform: str | Sequence[str]) -> Self:
        """Return a copy of the model with a different transform.

        The copy shares the weights with the model and is not calibrated. Raises InputError for models with components
        that were trained on scores computed with the original transform.

        Parameters
        ----------
        transform : str or sequence of str
            How level scores are combined; see :meth:`carya.XRLinear.with_transform`.
        """
        self._check_fitted()
        raise InputError(
            f"The transform of {self.model_kind_} models cannot be changed, because their rankers were trained on "
            "scores computed with it."
        )

    def subset(self, labels: Iterable[str]) -> Self:
        """Return a smaller model that ranks only the given labels; raise InputError if this is not supported.

        Parameters
        ----------
        labels : list of str
            The ids or names of the labels.
        """
        self._check_fitted()
        raise InputError(f"{self.model_kind_} models do not support subset. Pass labels to predict instead.")

    def add_labels(
        self,
        labels: Sequence[str],
        texts: TextsLike | None = None,
        text_labels: Any = None,
        *,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
    ) -> Self:
        """Add labels without retraining; raise InputError if this is not supported.

        For the arguments, see :meth:`carya.TextRanker.add_labels`.
        """
        self._check_fitted()
        raise InputError(
            f"{type(self).__name__} models do not support add_labels. Train the model again with the new labels, or "
            "use a TextRanker with an XRLinear model or an Ensemble of XRLinear models."
        )

    def rank(
        self,
        text: str,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the indices and scores of the best labels for a text, best first.

        The indices refer to `labels_`, as for models trained on feature matrices; :meth:`suggest` returns label ids and
        names. For the options, see :meth:`predict`.
        """
        if transform is not None:
            return self.with_transform(transform).rank(
                text, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        check_text(text)
        S = self._rank(state, [text], rank_options(state.labels, top_k, beam_width, min_score, labels))
        return S.indices.astype(np.int32, copy=False), S.data

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a saved model of this class; :func:`carya.load` loads models of any class."""
        model: Self = load_model(path, cls)
        return model

    def suggest(
        self,
        text: str,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
        open_vocabulary: bool = False,
    ) -> list[Suggestion]:
        """Return the best labels for a text, best first; for the options, see :meth:`suggest_all`."""
        check_text(text)
        suggestions: list[list[Suggestion]] = self.suggest_all(
            [text],
            top_k=top_k,
            beam_width=beam_width,
            min_score=min_score,
            transform=transform,
            labels=labels,
            open_vocabulary=open_vocabulary,
        )
        return suggestions[0]

    def suggest_all(
        self,
        texts: TextsLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
        open_vocabulary: bool = False,
        as_frame: bool = False,
    ) -> Any:
        """Return the best labels for each text, best first; for the options, see :meth:`predict`.

        The result is a list of suggestions per text or, if `as_frame` is true, a pandas DataFrame with the columns row,
        rank, label, score and, for calibrated models, probability. If `open_vocabulary` is true, phrases from the text
        are suggested as new labels and ranked alongside known labels; their `is_new` attribute is True.
        """
        if transform is not None:
            return self.with_transform(transform).suggest_all(
                texts,
                top_k=top_k,
                beam_width=beam_width,
                min_score=min_score,
                labels=labels,
                open_vocabulary=open_vocabulary,
                as_frame=as_frame,
            )
        state = self._check_fitted()
        if open_vocabulary:
            options = RankOptions.of(top_k, beam_width, min_score)
            return self._suggest_open(list_of_texts(texts), options, labels, as_frame=as_frame)
        S = self._rank(state, texts, rank_options(state.labels, top_k, beam_width, min_score, labels))
        if min_score is None:
            warn_unknown_texts(S.indptr)
        rankings = (S.indptr, S.indices, S.data)
        return self._to_output(state, rankings, as_frame=as_frame, is_restricted=labels is not None)

    def _suggest_open(
        self, texts: Sequence[str], options: RankOptions, labels: Any, *, as_frame: bool = False, **inputs: Any
    ) -> list[list[Suggestion]]:
        """Return the best labels for each text, including proposals for new labels.

        No warning is issued for texts without known terms, because new labels can still be proposed for them. `inputs`
        are passed to `_rank`.
        """
        vectorizer = check_open_vocabulary(self, labels, as_frame=as_frame)
        state = self._check_fitted()
        S = self._rank(state, texts, options, **inputs)
        known = self._to_output(state, (S.indptr, S.indices, S.data), as_frame=False)
        return add_proposals(self, vectorizer, texts, known, top_k=options.top_k, min_score=options.min_score)

    def rank_texts(
        self,
        texts: TextsLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        labels: ArrayLike | None = None,
    ) -> list[RankedLabels]:
        """Return the indices and scores of the best labels for each text, best first.

        If `labels` is given, only the labels with these indices are ranked.
        """
        state = self._check_fitted()
        S = self._rank(state, texts, RankOptions.of(top_k, beam_width, min_score, labels, len(state.labels)))
        return to_ranked_labels((S.indptr, S.indices, S.data))

    def predict_selected(self, texts: TextsLike, candidates: Any) -> sp.csr_array:
        """Return the scores of the given (text, label) pairs, including pairs that a search would not retrieve.

        Parameters
        ----------
        texts : as in `fit`
        candidates : one list or set of labels per text, or matrix of shape (texts, labels)
            The pairs: the listed labels, the stored entries of a sparse matrix, or the nonzero entries of an array. The
            result has entries at the same positions. Unknown labels are ignored.

        Raises
        ------
        InputError
            If the model can score only the labels that it retrieves (see `scores_any_label`).
        """
        self._check_fitted()
        raise InputError(
            f"{self.model_kind_} models can score only the labels that they retrieve, so predict_selected is not "
            "available."
        )

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve."""
        return False

    def is_rankable(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask of the texts for which the model ranks labels, which may exclude texts without known terms."""
        return np.ones(len(texts), bool)

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
            The index of a tree in `trees_`; required unless the model is a single tree. Only the score of this tree is
            explained, because a combined score is not a sum over terms.
        """
        labels = self._check_fitted().labels
        selected = self._text_tree(tree)
        check_text(text)
        return selected.explain(text, labels.number(label), labels)

    def calibrate(self, texts: TextsLike, labels: Any = None, *, top_k: int = 20) -> Self:
        """Learn a mapping from scores to probabilities, using texts that were not used for training.

        ``fit(..., calibrate=True)`` requires no additional texts. Raises InputError for texts of the training data.

        Parameters
        ----------
        texts, labels
            As in `fit`.
        top_k : int
            Number of suggestions per text to learn from; a larger number improves the estimates at low scores.
        """
        self._check_fitted()
        texts, labels, _ = split_corpus(texts, labels)
        all_texts = list_of_texts(texts)
        return self._learn_calibration(self.predict(all_texts, top_k=top_k), all_texts, labels)

    def check_held_out(self, texts: Sequence[str]) -> None:
        """Raise InputError if most of the texts are known to be training texts."""

    def _learn_calibration(self, S: sp.csr_array, texts: Sequence[str], labels: Any) -> Self:
        """Learn a calibration from the predictions for held-out texts and their true labels."""
        Y = self._truth(S, labels)
        if not S.nnz:
            raise InputError("The ranker returns no suggestions for these texts. Calibration requires at least one.")
        self.check_held_out(texts)
        counts = self.label_counts_
        suggested = Suggested.of(S, Y, counts)
        counts = np.zeros(len(self.labels_), np.int64) if counts is None else counts
        self._set_calibration(Calibration.learn_by_group(suggested, counts))
        return self

    def suggestion_scores(
        self, texts: TextsLike, labels: Any = None, *, top_k: int = 20
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the scores of all suggestions for the texts, and whether each suggestion is correct."""
        self._check_fitted()
        texts, labels, _ = split_corpus(texts, labels)
        # Read the texts first, because a corpus provides its labels while its texts are read.
        S = self.predict(texts, top_k=top_k)
        return self._check_suggestions(S, labels)

    def _check_suggestions(self, S: sp.csr_array, labels: Any) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the scores of all suggestions in a prediction, and whether each suggestion is correct."""
        return S.data, is_correct(S, self._truth(S, labels))

    def _truth(self, S: sp.csr_array, labels: Any) -> sp.csr_array:
        """Return the matrix of relevant labels; raise InputError if it cannot be compared with the predictions `S`."""
        Y = self.label_matrix(labels)
        if S.shape[0] != Y.shape[0]:
            raise InputError(f"texts and labels must have the same length, got {S.shape[0]} and {Y.shape[0]}.")
        if Y.shape[0] and not Y.nnz:
            raise InputError("labels contains none of the ranker's labels. Calibration requires at least one.")
        return Y

    def save(self, path: str | os.PathLike[str], *, weight_dtype: str | None = None) -> None:
        """Save the model to a folder atomically: concurrent readers see either the old or the new model."""
        self._check_fitted()
        saved = replace(self.to_saved(weight_dtype=weight_dtype), data_options=self.data_options_)
        storage.save(path, saved, extra=self.save_files if self.has_files else None)

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder, without additional files."""
        raise NotImplementedError

    @property
    def has_files(self) -> bool:
        """Whether a saved model has files in addition to its arrays, such as an encoder."""
        return False

    def save_files(self, folder: Path) -> None:
        """Write the additional files of a saved model to its folder."""

    def use_one_thread(self) -> None:
        """Use one thread and no progress bars in the model and its components, for callers that parallelize queries."""
        set_in_all(self, n_jobs=1, verbose=False)

    def label_matrix(self, labels: Any) -> sp.csr_array:
        """Convert labels in any form that `fit` accepts to a (rows, labels) matrix; unknown labels are ignored."""
        known = self._check_fitted().labels.ids
        if isinstance(labels, LabelRows):
            return align_columns(labels.matrix, labels.ids, known).matrix.with_values(1).to_scipy()
        return label_matrix(labels, known)[0]

    def label_matrix_and_ids(self, labels: Any) -> tuple[sp.csr_array, list[str]]:
        """Convert labels to a matrix, with columns for unknown labels at the end; also return the column ids."""
        return label_matrix(labels, self._check_fitted().labels.ids, keep_unknown=True)

    def score(self, texts: TextsLike, labels: Any = None) -> float:
        """Return P@1, which scikit-learn's model selection uses as the default score.

        `labels` can have any form that `fit` accepts and can be omitted if `texts` is a Corpus.
        """
        self._check_fitted()
        texts, labels, _ = split_corpus(texts, labels)
        # Read the texts first, because a corpus provides its labels while its texts are read.
        S = self.predict(texts, top_k=1)
        return metrics.precision(self.label_matrix(labels), S, k=1)

    @property
    def model_kind_(self) -> str:
        """The class name of the model; for a TextRanker, the class name of its underlying model."""
        return type(self).__name__

    @property
    def text_trees_(self) -> tuple[TextTree, ...]:
        """The model's label trees that use terms as features, with their vectorizers."""
        return ()

    @property
    def trees_(self) -> tuple[XRLinear, ...]:
        """The model's label trees that use terms as features; empty if there are none."""
        return tuple(tree.model for tree in self.text_trees_)

    @property
    def single_tree_(self) -> XRLinear | None:
        """The label tree whose scores are the model's scores; None unless the model is a single tree."""
        return None

    @property
    def vectorizers_(self) -> tuple[Tfidf, ...]:
        """The fitted vectorizers of the model and its members."""
        return ()

    @property
    def needs_features(self) -> bool:
        """Whether ranking requires features in addition to the texts."""
        return False

    @property
    def has_log_scores(self) -> bool:
        """Whether scores are logarithms and therefore usually negative."""
        return False

    @property
    def calibration_(self) -> Calibration | None:
        """The mapping from scores to probabilities; None before :meth:`calibrate` is called."""
        return self._check_fitted().calibration

    @property
    def label_set_(self) -> LabelSet:
        """The labels with their names, descriptions, counts and lookup index."""
        return self._check_fitted().labels

    @property
    def labels_(self) -> Sequence[str]:
        """The label ids, in the column order of the predictions."""
        return self._check_fitted().labels.ids

    @property
    def label_names_(self) -> Sequence[str]:
        """The label names, in the same order as `labels_`."""
        labels = self._check_fitted().labels
        return labels.ids if labels.names is None else labels.names

    @property
    def label_counts_(self) -> NDArray[np.int64] | None:
        """The number of training texts per label; None for models saved by early versions, which did not store it."""
        return self._check_fitted().labels.counts

    def _set_calibration(self, calibration: Calibration) -> None:
        """Replace the calibration in the fitted state."""
        raise NotImplementedError

    def _text_tree(self, number: int | None) -> TextTree:
        """Return the tree whose score will be explained."""
        kind, trees = self.model_kind_, self.text_trees_
        if not trees:
            raise InputError(
                f"Scores of this {kind} model cannot be explained, because it has no label tree that uses terms as "
                "features."
            )
        chosen: TextTree = select_tree(kind, trees, number, is_single=self.single_tree_ is not None)
        return chosen

    def _to_output(self, state: StateT, rankings: RankingArrays, *, as_frame: bool, is_restricted: bool = False) -> Any:
        """Convert row offsets, label indices and scores to lists of suggestions or to a DataFrame.

        If the ranking is restricted to some labels, ranks have a different meaning, so probabilities depend only on
        scores.
        """
        probabilities = None
        if state.calibration is not None:
            by_rank = state.calibration.of_rankings
            probabilities = state.calibration(rankings[2]) if is_restricted else by_rank(*rankings)
        if as_frame:
            return to_frame(rankings, state.labels.ids, probabilities)
        return to_suggestions(rankings, state.labels.ids, state.labels.name, probabilities)


def rank_options(
    label_set: LabelSet, top_k: int, beam_width: int | None, min_score: float | None, labels: Iterable[str] | None
) -> RankOptions:
    """Validate the options of a ranking request, and convert label ids and names to indices."""
    numbers = None if labels is None else label_set.numbers(labels)
    return RankOptions.of(top_k, beam_width, min_score, numbers, len(label_set))


def to_ranked_labels(rankings: tuple[NDArray[Any], NDArray[Any], NDArray[Any]]) -> list[RankedLabels]:
    """Convert row offsets, label indices and scores to a list of (index, score) pairs per text."""
    ends, labels, scores = (array.tolist() for array in rankings)
    return [list(zip(labels[begin:end], scores[begin:end], strict=True)) for begin, end in itertools.pairwise(ends)]


def check_text(text: object) -> None:
    """Raise InputError if the argument is not a string."""
    if not isinstance(text, str):
        raise InputError(f"text must be a string, got {type(text).__name__}. Use suggest_all for several texts.")


def warn_unknown_texts(row_offsets: NDArray[np.int64], *, stacklevel: int = 2) -> None:
    """Issue UnknownTextWarning if any row is empty; by default, the warning points to the caller's caller."""
    empty = row_offsets[1:] == row_offsets[:-1]
    if not empty.any():
        return
    rows = np.flatnonzero(empty).tolist()
    if empty.size == 1:
        subject = "The text contains no known terms, so nothing is suggested for it."
    else:
        verb, pronoun = ("contains", "it") if len(rows) == 1 else ("contain", "them")
        subject = (
            f"{len(rows):,} of {empty.size:,} texts {verb} no known terms, so nothing is suggested for {pronoun}; the "
            f"first is text {rows[0]}."
        )
    warnings.warn(UnknownTextWarning(f"{subject} {UNKNOWN_TEXT_ADVICE}", rows), stacklevel=stacklevel + 1)
