"""Two-stage text models, whose reranker can use the text and the label names as input."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.core import lazy_sparse as sp
from carya.core.inputs.labels import LabelNames
from carya.core.inputs.texts import TextsLike
from carya.core.parameters import parameter, set_in_all, with_parameter
from carya.core.progress import show_progress
from carya.core.rules import Choice, Either, Instance, Integer, Real, Rule
from carya.core.storage import SavedModel, consistent_parts, prefixed
from carya.errors import InputError, ParameterError
from carya.models.calibration.calibration import Calibration
from carya.models.calibration.cross_fitting import check_folds
from carya.models.interface import Model, RankOptions
from carya.ranking.candidates import Candidates
from carya.ranking.neural import NeuralRanker
from carya.ranking.pairs import Pairs, PairTexts
from carya.ranking.ranker import Ranker, checked_scores, restore_ranker
from carya.text.base import BaseTextRanker
from carya.text.combined.labeled_texts import LabeledTextLists
from carya.text.combined.serialize import pack_members, save_member_files, unpack_members
from carya.text.inputs import list_of_texts
from carya.text.labels import LabelSet, label_matrix
from carya.text.text_ranker import TextRanker
from carya.text.text_tree import TextTree
from carya.text.tfidf import Tfidf

KIND = "text-reranker"

#: The features of a (text, label) pair; rerankers that use the texts can ignore them.
FEATURE_NAMES = ("score", "score.log", "score.gap", "rank", "frequency")

_RANKER = "ranker"  # array prefix and folder name of the saved reranker
_MIN_SCORE = 1e-6  # lower bound for scores before taking logarithms
_RUN = 20  # maximum number of consecutive texts that are held out together
_BLOCK = 1024  # number of texts per block; only the pairs of one block are in memory at a time


class _PairRanker(Rule):
    """Rule that allows a reranker or None."""

    text = "a Ranker (an object with name, fit, score, to_saved and from_saved) or None"

    def allows(self, value: object) -> bool:
        """Return whether the value has the methods of a ranker."""
        return value is None or (isinstance(value, Ranker) and not isinstance(value, type))


class _TextRerankerState(NamedTuple):
    base: BaseTextRanker[Any]
    ranker: Ranker
    labels: LabelSet
    calibration: Calibration | None = None


@dataclass(eq=False, repr=False)
class TextReranker(BaseTextRanker[_TextRerankerState]):
    """A two-stage model: a text model retrieves candidates, and a reranker orders them.

    The reranker receives the text and label name of each (text, label) pair, with the score, rank and frequency of the
    label as features; it can therefore be a :class:`carya.CrossEncoderRanker`. The reranker is trained on held-out
    texts, so that it learns how reliable the first-stage scores are for new texts. The final scores are the softmax of
    the reranker's scores over the candidates for a text.

    Examples
    --------
    >>> import carya
    >>> from carya.ranking import NeuralRanker
    >>> texts = [f"word{i % 7} word{i % 11}" for i in range(200)]
    >>> labels = [[f"a{i % 7}", f"b{i % 11}"] for i in range(200)]
    >>> model = carya.TextReranker(carya.TextRanker(carya.Tfidf(min_df=1)), NeuralRanker(epochs=5)).fit(texts, labels)
    >>> len(model.suggest("word3", top_k=2))
    2
    """

    base: Any = parameter(
        None,
        Either(Instance(BaseTextRanker, "a text model such as TextRanker or XRTransformer"), Choice(None)),
        "the text model that retrieves candidates; None means TextRanker()",
    )
    ranker: Any = parameter(None, _PairRanker(), "the reranker; None means a NeuralRanker, which ignores the texts")
    n_candidates: int = parameter(20, Integer(2), "number of candidates per text")
    validation_fraction: float = parameter(
        0.2, Real(0, 0.9, open_low=True), "fraction of held-out texts, on which the reranker is trained"
    )
    max_ranker_rows: int = parameter(10_000, Integer(1), "maximum number of texts on which the reranker is trained")
    n_jobs: int | None = parameter(
        None,
        Either(Choice(-1, None), Integer(1)),
        "number of threads for the base model; -1 means all cores, None means its own n_jobs",
    )
    seed: int = parameter(0, Integer(0, 2**63 - 1), "random seed for choosing the held-out texts")
    verbose: bool = parameter(False, Choice(True, False), "show progress bars on standard error")

    def check_parameters(self) -> None:
        """Raise ParameterError for the first invalid parameter of the model, its base model or its reranker."""
        if isinstance(self.base, Model) and not isinstance(self.base, type):
            kind = type(self.base).__name__
            raise ParameterError(
                f"base has type {kind}, which accepts feature matrices, not texts. Pass TextRanker(model={kind}(...))."
            )
        super().check_parameters()
        if self.base is not None:
            self.base.check_parameters()
        if hasattr(self.ranker, "check_parameters"):
            self.ranker.check_parameters()

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if the base model or the reranker requires a package that is not installed."""
        for part in (self.base, self.ranker):
            getattr(part, "check_dependencies", lambda: None)()

    def fit(
        self,
        texts: TextsLike,
        labels: Any = None,
        *,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
        label_names: LabelNames | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        calibrate: bool | int = False,
    ) -> Self:
        """Train the reranker on held-out texts, and the base model on all texts.

        Parameters
        ----------
        texts, labels, label_names
            As in :meth:`carya.TextRanker.fit`.
        names : mapping of str to str, optional
            Human-readable names of the labels, used as input by the reranker.
        label_texts : mapping of str to str, optional
            Descriptions of the labels, passed to the base model. The reranker uses them instead of the names.
        sample_weight : array_like of shape (texts,), optional
            Non-negative weights of the texts, passed to the base model.
        groups : array_like of int, shape (n_texts,), optional
            The group of each text. Texts in the same group, such as near-duplicates, are held out together. By default,
            each group consists of up to 20 consecutive texts.
        calibrate : bool or int
            Whether to learn probabilities (:meth:`predict_proba`) from held-out texts; an integer is the number of
            folds (3 by default). See :meth:`carya.XRLinear.fit`.
        """
        self.check_parameters()
        ranker = NeuralRanker(batch_size=16) if self.ranker is None else copy.deepcopy(self.ranker)
        self.check_dependencies()  # checked before the base model is trained
        data = LabeledTextLists.of(texts, labels, label_names, sample_weight)
        options = {"names": data.names if names is None else names, "label_texts": label_texts}
        folds = check_folds(calibrate)
        calibration = None
        if folds:
            own_groups = None if groups is None else np.asarray(groups)
            calibration = data.cross_fit(self, folds, options, own_groups)
        rows_held_out = self._held_out_rows(len(data.texts), groups)
        train = data.take(np.setdiff1d(np.arange(len(data.texts)), rows_held_out))
        held_out = data.take(rows_held_out)
        base = train.fit(self._make_base(), **train.restrict(options))
        truth = label_matrix(held_out.labels, base.labels_)[0]
        with show_progress(self.verbose) as progress:
            with progress.stage("rank held-out texts"):
                pairs, candidates = candidate_pairs(base, held_out.texts, self.n_candidates)
            rows = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
            keys = np.sort(rows * truth.shape[1] + truth.indices)
            relevance = candidates.lookup(keys, np.ones(keys.size, np.float32))
            if not relevance.any():
                raise InputError(
                    "The reranker cannot be trained: the base model retrieves no relevant label for any held-out text. "
                    "Pass more texts, or increase n_candidates."
                )
            with progress.stage("train reranker"):
                ranker.fit(pairs, relevance)
        base = data.fit(self._make_base(), **options)
        self._set_fitted(_TextRerankerState(base, ranker, base.label_set_, calibration))
        return self

    def _predict(self, state: _TextRerankerState, texts: TextsLike, options: RankOptions) -> sp.csr_array:
        all_texts = list_of_texts(texts)
        if not all_texts:
            return sp.csr_array((0, len(state.labels)), dtype=np.float32)
        if self.n_jobs is not None:
            set_in_all(state.base, n_jobs=self.n_jobs)
        parts = []
        count = max(options.top_k, int(self.n_candidates))
        for begin in range(0, len(all_texts), _BLOCK):
            block = all_texts[begin : begin + _BLOCK]
            pairs, candidates = candidate_pairs(state.base, block, count, beam_width=options.beam_width)
            parts.append(_rank(candidates, checked_scores(state.ranker, pairs), options))
        return sp.csr_array(sp.vstack(parts, format="csr")) if len(parts) > 1 else parts[0]

    def check_held_out(self, texts: Sequence[str]) -> None:
        """Raise InputError if most of the texts are known to be training texts."""
        self._check_fitted().base.check_held_out(texts)

    def is_rankable(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask of the texts for which the base model ranks labels."""
        return self._check_fitted().base.is_rankable(texts)

    @property
    def base_(self) -> BaseTextRanker[Any]:
        """The fitted base model."""
        return self._check_fitted().base

    @property
    def ranker_(self) -> Ranker:
        """The fitted reranker."""
        return self._check_fitted().ranker

    @property
    def text_trees_(self) -> tuple[TextTree, ...]:
        """The label trees of the base model, with their vectorizers."""
        return self._check_fitted().base.text_trees_

    @property
    def vectorizers_(self) -> tuple[Tfidf, ...]:
        """The fitted vectorizers of the base model."""
        return self._check_fitted().base.vectorizers_

    def use_one_thread(self) -> None:
        """Use one thread and no progress bars in the model and its components."""
        super().use_one_thread()
        state = self._check_fitted()
        state.base.use_one_thread()
        getattr(state.ranker, "use_one_thread", lambda: None)()

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder, without the additional files of the base model and the reranker."""
        state = self._check_fitted()
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in ("base", "ranker")}
        parameters, arrays = state.ranker.to_saved()
        own[_RANKER] = {"name": state.ranker.name, "parameters": parameters}
        saved = pack_members(KIND, own, [state.base], state.calibration, weight_dtype)
        return SavedModel(saved.kind, saved.parameters, saved.shape, saved.arrays | prefixed(_RANKER, arrays))

    @property
    def has_files(self) -> bool:
        """Whether the base model or the reranker has additional files, such as an encoder."""
        state = self._check_fitted()
        return state.base.has_files or getattr(state.ranker, "has_files", False)

    def save_files(self, folder: Path) -> None:
        """Write the additional files of the base model and the reranker."""
        state = self._check_fitted()
        save_member_files([state.base], folder)
        if getattr(state.ranker, "has_files", False):
            state.ranker.save_files(folder / _RANKER)  # type: ignore[attr-defined]

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore a model from an opened folder; called by :func:`carya.load`."""
        members, own, calibration = unpack_members(saved)
        with consistent_parts():
            (base,) = members
            about = own.pop(_RANKER)
            folder = None if saved.path is None else saved.path / _RANKER
            ranker = restore_ranker(about["name"], dict(about["parameters"]), saved.arrays_of(_RANKER), folder)
            model = cls.from_saved_parameters(own | {"base": base, "ranker": ranker})
            model._set_fitted(_TextRerankerState(base, ranker, base.label_set_, calibration))
            return model

    def _make_base(self) -> Any:
        base = TextRanker() if self.base is None else self.base.clone()
        return base if self.n_jobs is None else with_parameter(base, "n_jobs", self.n_jobs)

    def _set_fitted(self, state: _TextRerankerState) -> None:
        self._state = state  # assigned atomically, because other threads may be ranking

    def _set_calibration(self, calibration: Calibration) -> None:
        self._set_fitted(self._check_fitted()._replace(calibration=calibration))

    def _held_out_rows(self, rows: int, groups: ArrayLike | None) -> NDArray[np.int64]:
        """Return the indices of the held-out texts; texts in the same group stay together."""
        count = max(1, min(int(rows * self.validation_fraction), int(self.max_ranker_rows)))
        if groups is None:
            group = np.arange(rows) // min(_RUN, max(1, count // _RUN))
        else:
            given = np.asarray(groups)
            if given.shape != (rows,):
                raise InputError(f"groups must have shape ({rows},), one entry per text, got {given.shape}.")
            group = np.unique(given, return_inverse=True)[1]
        shuffled = np.random.default_rng(self.seed).permutation(int(group.max()) + 1)[group]
        chosen = shuffled[np.argsort(shuffled, kind="stable")[:count]]
        held_out = np.flatnonzero(np.isin(shuffled, chosen))
        if not 0 < held_out.size < rows:
            raise InputError(
                f"There are too few texts ({rows}) or groups ({shuffled.max() + 1}) to hold out a subset. "
                "Pass more texts, or use smaller groups."
            )
        return held_out


def candidate_pairs(
    base: BaseTextRanker[Any], texts: Sequence[str], n_candidates: int, *, beam_width: int | None = None
) -> tuple[Pairs, Candidates]:
    """Return the features and texts of all (text, label) pairs, and the candidates that a text model retrieves."""
    S = base.rank_all(texts, RankOptions.of(n_candidates, beam_width, None))
    rows = np.repeat(np.arange(S.shape[0], dtype=np.int64), np.diff(S.indptr))
    keys = rows * S.shape[1] + S.indices
    order = np.argsort(keys)
    candidates = Candidates.of(keys, S.shape[0], S.shape[1])
    scores = S.data[order].astype(np.float32)
    labels = base.label_set_
    logarithms = scores if base.has_log_scores else np.log(np.maximum(scores, _MIN_SCORE))
    counts = np.zeros(len(labels), np.int64) if labels.counts is None else labels.counts
    columns = {
        "score": scores,
        "score.log": logarithms,
        "score.gap": candidates.gaps(scores),
        "rank": candidates.ranks(scores),
        "frequency": np.log1p(counts)[candidates.labels],
    }
    values = np.column_stack([columns[name] for name in FEATURE_NAMES]).astype(np.float32)
    label_texts = labels.texts or labels.names or labels.ids
    pair_texts = PairTexts(tuple(texts), label_texts, candidates.labels)
    return Pairs(np.ascontiguousarray(values), FEATURE_NAMES, candidates.offsets, pair_texts), candidates


def _rank(candidates: Candidates, values: NDArray[np.float32], options: RankOptions) -> sp.csr_array:
    """Return the best candidates for each text, best first; the scores are the softmax of `values` per text."""
    n_texts = candidates.offsets.size - 1
    exponentials = np.exp(candidates.gaps(values).astype(np.float64))
    totals = np.bincount(candidates.queries, exponentials, minlength=n_texts)
    scores = (exponentials / totals[candidates.queries]).astype(np.float32)
    selected, best = candidates.best(scores, options.top_k, options.min_score)
    return sp.csr_array((scores[selected], best.labels, best.offsets), shape=(n_texts, candidates.n_labels))
