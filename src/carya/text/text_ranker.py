"""Text ranker: a vectorizer and a model, combined to rank named labels."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.core import lazy_sparse as sp
from carya.core.inputs.labels import CoercedLabels, LabelNames, match_candidates
from carya.core.inputs.texts import TextsLike
from carya.core.matrices import Csr, Features
from carya.core.parameters import parameter, set_in_all, with_parameter
from carya.core.rules import Choice, Either, Instance, Integer
from carya.core.storage import SavedModel
from carya.core.strings import StringArray
from carya.errors import InputError, ModelFormatError
from carya.models.calibration.calibration import Calibration
from carya.models.calibration.cross_fitting import check_folds, cross_fitted_calibration
from carya.models.calibration.training_rows import TrainingRows
from carya.models.ensemble.model import Ensemble
from carya.models.interface import Model, RankOptions
from carya.models.new_labels import check_new_names, match_new_labels
from carya.models.registry import TRAINING_ROWS, open_model
from carya.models.reranked.model import Reranked
from carya.models.training_data import TrainingData
from carya.models.xr_linear.model import XRLinear
from carya.ranking.tasks.engine import Engine
from carya.text.base import (
    BaseTextRanker,
    Suggestion,
    check_text,
    to_ranked_labels,
    warn_unknown_texts,
)
from carya.text.default_vectorizer import default_vectorizer, name_columns
from carya.text.inputs import list_of_texts, split_corpus
from carya.text.label_inputs import GraphLike, TreeLike, to_graph, to_shortlist, to_tree
from carya.text.label_restriction import RankedLabels
from carya.text.labels import LabelRows, LabelSet, add_unseen_labels, training_labels
from carya.text.serialize import pack, unpack
from carya.text.text_tree import TextTree
from carya.text.tfidf import Tfidf

_SHARED_PARAMETERS = ("n_jobs", "verbose")
_MAX_SINGLE = 8  # below this number of texts, ranking one at a time is faster than starting threads


class _TextRankerState(NamedTuple):
    vectorizer: Tfidf
    model: Model
    labels: LabelSet
    calibration: Calibration | None = None


@dataclass(eq=False, repr=False)
class TextRanker(BaseTextRanker[_TextRankerState]):
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
    n_jobs: int | None = parameter(
        None,
        Either(Choice(-1, None), Integer(1)),
        "number of threads for the vectorizer and the model; -1 means all cores, None means their own n_jobs",
    )
    verbose: bool | None = parameter(
        None,
        Choice(True, False, None),
        "show the progress bars of the vectorizer and the model on standard error; None means their own settings",
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
        texts: TextsLike,
        labels: Any = None,
        *,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
        label_names: LabelNames | None = None,
        vocabulary: Iterable[str] | None = None,
        sample_weight: ArrayLike | None = None,
        label_graph: GraphLike | None = None,
        shortlist: Iterable[Iterable[str]] | None = None,
        tree: TreeLike | None = None,
        engine: Engine | None = None,
        calibrate: bool | int = False,
    ) -> Self:
        """Train the ranker on texts and their labels.

        Parameters
        ----------
        texts : list, tuple, iterator, array or column of str, table, or Corpus
            A table (a data frame, an Arrow table or a Dataset) contains the texts in the column ``text`` and, if
            `labels` is not passed, the labels in the column ``labels``. A Corpus, such as the result of
            :func:`carya.data.open_data`, also contains labels and their names.
        labels : list of list of str, or labels in another form
            One list, set or array of labels per text, one label per text, or an indicator matrix of shape (texts,
            labels). Labels are strings or class numbers; class i and column i of a matrix become the label ``str(i)``.
            A text without labels is a negative example for every label. `labels` can be omitted for a Corpus or a
            table with labels.
        names : mapping of str to str, optional
            Human-readable names of the labels.
        label_texts : mapping of str to str, optional
            Descriptions of the labels. Models with an ``lf`` representation use them to cluster the labels. Rerankers
            compare them with the text; without descriptions, the names or the ids are used.
        label_names : list of str, optional
            The label of each matrix column or class number, such as ``classes_`` of a MultiLabelBinarizer.
        vocabulary : list of str, optional
            Labels that can be suggested even if no training text has them, in addition to the labels of the training
            texts. They are ranked by their descriptions, names or ids, which requires a model that learns from these:
            Reranked, or trees with ``label_row_weight > 0``.
        sample_weight : array_like of shape (texts,), optional
            Non-negative weights of the texts, passed to the model (see :meth:`XRLinear.fit`). They do not affect the
            features: every text counts once in the document frequencies.
        label_graph : list of (label, label) or (label, label, weight), optional
            Pairs of related labels, such as the edges of a thesaurus, for representations with ``graph``.
        shortlist : list of list of str, optional
            Required if `negatives` contains ``given``: for each text, the labels whose clusters use it as a negative
            example.
        tree : LabelTree or mapping of str to str, optional
            The label tree: a LabelTree over the labels in sorted order, or a mapping from labels to paths of clusters,
            as in ``{"cat": "animals/mammals"}``.
        engine : RayEngine, optional
            The engine that trains the label trees of the model; see :meth:`XRLinear.fit`.
        calibrate : bool or int
            Whether to learn probabilities (:meth:`predict_proba`) from held-out texts; an integer is the number of
            folds (3 by default). See :meth:`carya.XRLinear.fit`.
        """
        self.check_parameters()
        self.check_dependencies()
        folds = check_folds(calibrate)
        model = XRLinear() if self.model is None else self.model.clone()
        vectorizer = default_vectorizer(model) if self.vectorizer is None else self.vectorizer.clone()
        for name in _SHARED_PARAMETERS:
            if getattr(self, name) is not None:
                model, vectorizer = (with_parameter(part, name, getattr(self, name)) for part in (model, vectorizer))
        texts, labels, own_names = split_corpus(texts, labels)
        names = own_names if names is None else names
        X = Features.of(Csr.of_triple(vectorizer.fit_rows(texts), vectorizer.n_features_))
        Y, ids = training_labels(labels, label_names)
        if not ids:
            raise InputError("No text has a label. At least one label is required.")
        if vocabulary is not None and not getattr(model, "ranks_unseen_labels", False):
            raise InputError(
                f"vocabulary is not supported by {model!r}, which cannot rank labels without training texts. Use the "
                "preset accurate, or set label_row_weight=1 in all trees."
            )
        Y, ids = add_unseen_labels(Y, ids, vocabulary)
        label_set = LabelSet.of(ids, names, label_texts)
        if X.rows != Y.rows:
            raise InputError(f"texts and labels must have the same length, got {X.rows} and {Y.rows}.")
        if model.needs_label_features and label_set.texts is None and tree is None:
            raise InputError(f"label_texts is missing. {model!r} requires descriptions of the labels.")
        label_features = None
        if model.uses_label_features and (tree is None or label_set.texts is not None):
            label_features = vectorizer.transform(label_set.texts or label_set.names or _words_of_ids(label_set.ids))
        columns = name_columns(model, vectorizer)
        data = TrainingData.of(
            X,
            Y,
            label_features=label_features,
            name_columns=columns,
            sample_weight=sample_weight,
            label_graph=to_graph(label_graph, ids),
            shortlist=to_shortlist(shortlist, ids, X.rows),
            tree=to_tree(tree, ids),
            engine=engine,
        )
        data.check_used([model])
        calibration = cross_fitted_calibration(model, data, folds) if folds else None
        model.fit_data(data)
        model.set_calibration(None, TrainingRows.of(data.features))
        self._state = _TextRankerState(vectorizer, model, label_set.with_counts(Y), calibration)
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
        open_vocabulary: bool = False,
    ) -> list[Suggestion]:
        """Return the best labels for a text, best first.

        Ranking takes tens of microseconds. If the text contains no known terms, the list is empty, and
        UnknownTextWarning is issued.

        Parameters
        ----------
        text : str
        top_k, beam_width, min_score, transform
            See :meth:`carya.XRLinear.predict`.
        labels : list of str, optional
            Restrict the ranking to these labels, given by id or name.
        open_vocabulary : bool
            Also suggest phrases from the text as new labels; their `is_new` attribute is True.
        """
        if open_vocabulary or transform is not None:
            return super().suggest(
                text,
                top_k=top_k,
                beam_width=beam_width,
                min_score=min_score,
                transform=transform,
                labels=labels,
                open_vocabulary=open_vocabulary,
            )
        state = self._check_fitted()
        check_text(text)
        features, values = state.vectorizer.row(text)
        if not features.size:
            warn_unknown_texts(np.zeros(2, np.int64))
        limits = _limits(state, top_k, beam_width, min_score, labels)
        ranked, scores = state.model.rank_sparse(features, values, **limits)
        if state.calibration is None:  # the fast path; the general one takes about 5 µs longer
            pairs = zip(ranked.tolist(), scores.tolist(), strict=True)
            return [Suggestion(state.labels.ids[label], score, state.labels.name(label)) for label, score in pairs]
        rankings = (np.array([0, ranked.size]), ranked, scores)
        suggestions: list[list[Suggestion]] = self._to_output(
            state, rankings, as_frame=False, is_restricted=labels is not None
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
        """Return the best labels for each text, best first; for the options, see :meth:`suggest`.

        The result is a list of suggestions per text or, if `as_frame` is true, a pandas DataFrame with the columns row,
        rank, label, score and, for calibrated models, probability. UnknownTextWarning is issued if any text contains no
        known terms.
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
        state = self._prepare()
        if open_vocabulary:
            options = RankOptions.of(top_k, beam_width, min_score)
            return self._suggest_open(list_of_texts(texts), options, labels, as_frame=as_frame)
        limits = _limits(state, top_k, beam_width, min_score, labels)
        rows = state.vectorizer.rows(texts)
        warn_unknown_texts(rows[0])
        rankings = state.model.rank_rows(*rows, **limits)
        return self._to_output(state, rankings, as_frame=as_frame, is_restricted=labels is not None)

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
        names. For the options, see :meth:`suggest`.
        """
        if transform is not None:
            return self.with_transform(transform).rank(
                text, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        check_text(text)
        features, values = state.vectorizer.row(text)
        return state.model.rank_sparse(features, values, **_limits(state, top_k, beam_width, min_score, labels))

    def rank_texts(
        self,
        texts: TextsLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        labels: ArrayLike | None = None,
    ) -> list[RankedLabels]:
        """Return the indices and scores of the best labels for each text, best first; no warnings are issued.

        If `labels` is given, only the labels with these indices are ranked.
        """
        state = self._check_fitted()
        texts = list_of_texts(texts)
        limits: dict[str, Any] = {"top_k": top_k, "beam_width": beam_width, "min_score": min_score}
        if labels is not None:
            limits["labels"] = labels
        if len(texts) < _MAX_SINGLE:
            rankings = [state.model.rank_sparse(*state.vectorizer.row(text), **limits) for text in texts]
            return [list(zip(ranked.tolist(), scores.tolist(), strict=True)) for ranked, scores in rankings]
        return to_ranked_labels(state.model.rank_rows(*state.vectorizer.rows(texts), **limits))

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

        If `as_frame` is true, the result is a pandas DataFrame, as in :meth:`suggest_all`. UnknownTextWarning is issued
        if any text contains no known terms.
        """
        if transform is not None:
            return self.with_transform(transform).predict(
                texts, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels, as_frame=as_frame
            )
        state = self._prepare()
        X = state.vectorizer.transform(texts)
        warn_unknown_texts(X.indptr)
        S = state.model.predict(X, **_limits(state, top_k, beam_width, min_score, labels))
        if not as_frame:
            return S
        return self._to_output(state, (S.indptr, S.indices, S.data), as_frame=True, is_restricted=labels is not None)

    def with_transform(self, transform: str | Sequence[str]) -> Self:
        """Return a copy of the ranker with a different transform.

        The copy shares the weights with the ranker and is not calibrated.

        Parameters
        ----------
        transform : str or sequence of str
            How level scores are combined; see :meth:`carya.XRLinear.with_transform`.
        """
        state = self._check_fitted()
        model: Any = state.model
        return self._copy_with_state(state._replace(model=model.with_transform(transform), calibration=None))

    def subset(self, labels: Iterable[str]) -> Self:
        """Return a smaller ranker for only the given labels; it has the same vocabulary and calibration.

        Parameters
        ----------
        labels : list of str
            The ids or names of the labels.
        """
        state = self._check_fitted()
        numbers = state.labels.numbers(labels)
        model: Any = state.model
        calibration = None if state.calibration is None else state.calibration.without_groups()
        return self._copy_with_state(
            state._replace(model=model.subset(numbers), labels=state.labels.take(numbers), calibration=calibration)
        )

    def add_labels(
        self,
        labels: Sequence[str],
        texts: TextsLike | None = None,
        text_labels: Any = None,
        *,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
    ) -> Self:
        """Add labels to the ranker without retraining; the vocabulary and all other weights do not change.

        Requires an XRLinear model or an Ensemble of these; see :meth:`carya.XRLinear.add_labels`. A label without texts
        has the mean ranker of labels that are similar to its description, name or id. If the ranker is calibrated, its
        probabilities then depend only on scores.

        Parameters
        ----------
        labels : list of str
            The ids of the new labels, which follow the existing labels in `labels_`.
        texts : texts, as in :meth:`fit`, optional
            Texts with new labels. Texts without new labels are negative examples; including earlier training texts
            makes the new labels more precise.
        text_labels : labels, as in :meth:`fit`, optional
            All labels of each text, known and new; other labels are ignored. They can be omitted for a Corpus or a
            table with labels.
        names : mapping of str to str, optional
            Human-readable names of the new labels.
        label_texts : mapping of str to str, optional
            Descriptions of the new labels.

        Examples
        --------
        >>> import carya
        >>> texts = ["a fast web server", "a mail server", "an image editor", "a photo editor", "a fast mail client"]
        >>> labels = [["net", "web"], ["net", "mail"], ["graphics"], ["graphics"], ["mail"]]
        >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels)
        >>> ranker = ranker.add_labels(["photo"], ["a photo viewer", *texts], [["photo", "graphics"], *labels])
        >>> sorted(suggestion.label for suggestion in ranker.suggest("view a photo", top_k=2))
        ['graphics', 'photo']
        """
        state = self._prepare()
        if not isinstance(state.model, (XRLinear, Ensemble)):
            raise InputError(
                f"add_labels requires an XRLinear model or an Ensemble of XRLinear models, but the ranker has a "
                f"{self.model_kind_} model. Train the ranker again with the new labels."
            )
        ids = check_new_names(labels, state.labels.ids)
        described = LabelSet.of(ids, names, label_texts)
        own_texts = described.texts or described.names or _words_of_ids(described.ids)
        options: dict[str, Any] = {"label_features": state.vectorizer.transform(own_texts)}
        counts = np.zeros(len(ids), np.int64)
        if texts is not None or text_labels is not None:
            texts, text_labels, _ = split_corpus(texts, text_labels)
            options["X"] = state.vectorizer.transform(texts)
            rows = text_labels
            if isinstance(rows, LabelRows):
                rows = CoercedLabels(rows.matrix, list(rows.ids))
            matched = match_new_labels(rows, len(state.labels), len(ids), [*state.labels.ids, *ids], "text_labels")
            options["Y"] = matched.matrix
            counts = matched.matrix.column_counts()[len(state.labels) :]
        model = copy.copy(state.model)  # other threads may be ranking with the original
        model.add_labels(len(ids), **options)
        calibration = None if state.calibration is None else state.calibration.without_groups()
        self._state = state._replace(
            model=model, labels=state.labels.append(described, counts), calibration=calibration
        )
        return self

    def remove_labels(self, labels: Iterable[str]) -> Self:
        """Remove labels from the ranker without retraining; the weights of all other labels stay exactly the same.

        If the ranker is calibrated, its probabilities then depend only on scores.

        Parameters
        ----------
        labels : list of str
            The ids or names of the labels.
        """
        known = self._check_fitted().labels
        removed = set(known.numbers(labels).tolist())
        kept = [label for number, label in enumerate(known.ids) if number not in removed]
        if not kept:
            raise InputError("labels contains all labels of the model. At least one must remain.")
        self._state = self.subset(kept)._check_fitted()
        return self

    def rename_labels(self, names: Mapping[str, str]) -> Self:
        """Change the human-readable names of labels without retraining; the ids stay the same.

        Parameters
        ----------
        names : mapping of str to str
            The new name of each label to rename, given by id or current name.
        """
        state = self._check_fitted()
        known = state.labels
        changed = list(known.ids if known.names is None else known.names)
        for label, name in names.items():
            if not isinstance(name, str):
                raise InputError(f"names must map labels to strings, but {label!r} is mapped to {name!r}.")
            changed[known.number(label)] = name
        # A new label set, because the lookup index of the old one contains the old names.
        renamed = LabelSet(known.ids, StringArray.of(changed), known.texts, known.counts, known.n_texts)
        self._state = state._replace(labels=renamed)
        return self

    def _copy_with_state(self, state: _TextRankerState) -> Self:
        ranker = self.clone(vectorizer=state.vectorizer.clone(), model=state.model.clone())
        ranker._state = state
        ranker.data_options_ = dict(self.data_options_)
        return ranker

    def predict_selected(self, texts: TextsLike, candidates: Any) -> sp.csr_array:
        """Return the scores of the given (text, label) pairs, including pairs that a search would not retrieve.

        Raises InputError if the model can score only the labels that it retrieves (see `scores_any_label`).

        Parameters
        ----------
        texts : as in :meth:`fit`
        candidates : one list or set of labels per text, or matrix of shape (texts, labels)
            The pairs: the listed labels, the stored entries of a sparse matrix, or the nonzero entries of an array. The
            result has entries at the same positions. Unknown labels are ignored.
        """
        state = self._prepare()
        X = state.vectorizer.transform(texts)
        pairs = match_candidates(candidates, state.labels.ids, X.shape[0])
        return state.model.predict_selected(X, pairs.to_scipy())

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve."""
        return self._check_fitted().model.scores_any_label

    def check_held_out(self, texts: Sequence[str]) -> None:
        """Raise InputError if most of the texts are known to be training texts."""
        state = self._check_fitted()
        if state.model.training_rows_ is not None:
            rows = Csr.of_triple(state.vectorizer.rows(texts), state.vectorizer.n_features_)
            state.model.training_rows_.check_held_out(Features.of(rows))

    def is_rankable(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask of the texts that contain a known term; no labels are ranked for other texts."""
        return np.diff(self._check_fitted().vectorizer.rows(texts)[0]) > 0

    def _predict(self, state: _TextRankerState, texts: TextsLike, options: RankOptions) -> sp.csr_array:
        return state.model.predict(state.vectorizer.transform(texts), **options._asdict())

    @property
    def vectorizer_(self) -> Tfidf:
        """The fitted vectorizer."""
        return self._check_fitted().vectorizer

    @property
    def model_(self) -> Any:
        """The fitted model."""
        return self._check_fitted().model

    @property
    def model_kind_(self) -> str:
        """The class name of the underlying model."""
        return type(self._check_fitted().model).__name__

    @property
    def text_trees_(self) -> tuple[TextTree, ...]:
        """The label trees in the model, each with the vectorizer."""
        state = self._check_fitted()
        return tuple(TextTree(state.vectorizer, tree) for tree in _trees(state.model))

    @property
    def single_tree_(self) -> XRLinear | None:
        """The model if it is a single label tree; None otherwise."""
        model = self._check_fitted().model
        return model if isinstance(model, XRLinear) else None

    @property
    def vectorizers_(self) -> tuple[Tfidf, ...]:
        """The fitted vectorizer."""
        return (self._check_fitted().vectorizer,)

    @property
    def has_log_scores(self) -> bool:
        """Whether scores are logarithms, as for Reranked models."""
        return isinstance(self.model, Reranked)

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        state = self._check_fitted()
        model = state.model.to_saved(weight_dtype=weight_dtype)
        rows = state.model.training_rows_
        if rows is not None:
            model = replace(model, arrays=model.arrays | {TRAINING_ROWS: rows.hashes})
        return pack(state.vectorizer, state.labels, model, state.calibration)

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore a ranker from an opened folder; called by :func:`carya.load`."""
        vectorizer, labels, calibration, rest = unpack(saved)
        model = open_model(rest)
        if vectorizer is None or model.widths_ != (vectorizer.n_features_, 0) or len(labels) != model.n_labels_:
            raise ModelFormatError(
                "The parts of the model are inconsistent: the numbers of terms, labels and weights do not match."
            )
        ranker = cls(vectorizer, model)
        ranker._state = _TextRankerState(vectorizer, model, labels, calibration)
        return ranker

    def _set_calibration(self, calibration: Calibration) -> None:
        self._state = self._check_fitted()._replace(calibration=calibration)

    def _prepare(self) -> _TextRankerState:
        """Apply the ranker's own `n_jobs` and `verbose` to the vectorizer and the model; return the fitted state."""
        state = self._check_fitted()
        shared = {name: getattr(self, name) for name in _SHARED_PARAMETERS if getattr(self, name) is not None}
        if shared:
            set_in_all(state.vectorizer, **shared)
            set_in_all(state.model, **shared)
        return state


def _limits(
    state: _TextRankerState,
    top_k: int,
    beam_width: int | None,
    min_score: float | None,
    labels: Iterable[str] | None,
) -> dict[str, Any]:
    """Return the options of a ranking request, with label indices instead of ids or names."""
    limits: dict[str, Any] = {"top_k": top_k, "beam_width": beam_width, "min_score": min_score}
    if labels is not None:
        limits["labels"] = state.labels.numbers(labels)
    return limits


def _trees(model: Any) -> Iterator[XRLinear]:
    if isinstance(model, XRLinear):
        yield model
    else:
        for member in getattr(model, "members_", ()):
            yield from _trees(member)


def _words_of_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids as texts; URIs become empty texts, because they do not describe the labels."""
    return ["" if "://" in label else label for label in ids]
