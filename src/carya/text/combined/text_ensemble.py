"""Ensembles of text models, which may have different vectorizers and encoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.inputs.labels import LabelNames, match_candidates
from carya.core.inputs.texts import TextsLike
from carya.core.parameters import parameter, with_parameter
from carya.core.rules import Choice, Either, Integer, Real, Rule
from carya.core.storage import SavedModel, consistent_parts
from carya.errors import InputError, ParameterError
from carya.models.calibration.calibration import Calibration
from carya.models.calibration.cross_fitting import check_folds
from carya.models.ensemble.combine import COMBINATIONS, combine_rankings, drop_below, matrix_to_native, pool_size
from carya.models.ensemble.weights import MemberWeights, best_weights, check_weights
from carya.models.interface import Model, RankOptions
from carya.text.base import BaseTextRanker
from carya.text.combined.labeled_texts import LabeledTextLists
from carya.text.combined.serialize import pack_members, save_member_files, unpack_members
from carya.text.inputs import list_of_texts
from carya.text.labels import LabelSet, label_matrix
from carya.text.text_tree import TextTree
from carya.text.tfidf import Tfidf

KIND = "text-ensemble"

_SAVED_PARAMETERS = ("combine", "pool_size", "n_jobs", "seed")


class TextMembers(Rule):
    """Rule that allows a list of text models."""

    text = "a non-empty list of text models, such as TextRanker or XRTransformer"

    def allows(self, value: object) -> bool:
        """Return whether the value is a list of text models."""
        return (
            isinstance(value, (list, tuple))
            and len(value) > 0
            and all(isinstance(member, BaseTextRanker) for member in value)
        )


class _TextEnsembleState(NamedTuple):
    members: list[BaseTextRanker[Any]]
    weights: NDArray[np.float32]
    labels: LabelSet
    calibration: Calibration | None = None


@dataclass(eq=False, repr=False)
class TextEnsemble(BaseTextRanker[_TextEnsembleState]):
    """An ensemble of text models, which must have the same labels but can otherwise differ.

    To combine models that use the same feature matrix, such as several trees, use :class:`carya.Ensemble`, which
    computes the features of a text only once.

    Examples
    --------
    >>> import carya
    >>> texts = ["a fast web server", "a mail server", "an image editor", "a photo editor", "a fast mail client"]
    >>> labels = [["net", "web"], ["net", "mail"], ["graphics"], ["graphics"], ["mail"]]
    >>> words = carya.TextRanker(carya.Tfidf(min_df=1))
    >>> characters = carya.TextRanker(carya.Tfidf(analyzer="char_wb", ngram_range=(2, 4), min_df=1))
    >>> ensemble = carya.TextEnsemble([words, characters], weights=[2, 1]).fit(texts, labels)
    >>> ensemble.suggest("another photo editor", top_k=1)[0].label
    'graphics'
    """

    members: Any = parameter(None, TextMembers(), "the text models")
    combine: str = parameter(
        "mean",
        Choice(*COMBINATIONS),
        "method for combining rankings: mean (mean score), rank (mean rank), count (number of members that retrieved "
        "the label), softmax or sigmoid (mean softmax or sigmoid of the scores), or round_robin (the best label from "
        "each member in turn, then the second-best labels, and so on)",
    )
    weights: Any = parameter(
        None,
        MemberWeights(),
        "weights of the members; learned selects them on held-out texts, and None means equal weights",
    )
    validation_fraction: float = parameter(
        0.1, Real(0, 0.9, open_low=True), "fraction of held-out texts, from which the weights are learned"
    )
    pool_size: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "number of labels considered per member; None means twice top_k, but at least 20",
    )
    n_jobs: int = parameter(
        -1, Either(Choice(-1), Integer(1)), "number of threads for combining rankings; -1 means all cores"
    )
    seed: int = parameter(0, Integer(0, 2**63 - 1), "random seed for choosing the held-out texts")
    verbose: bool = parameter(False, Choice(True, False), "show the progress bars of all members on standard error")

    def check_parameters(self) -> None:
        """Raise ParameterError for the first invalid parameter of the ensemble or a member."""
        for member in self.members if isinstance(self.members, (list, tuple)) else ():
            if isinstance(member, Model) and not isinstance(member, type):
                raise ParameterError(
                    f"members contains {type(member).__name__}, which accepts feature matrices, not texts. Use "
                    f"TextRanker(model={type(member).__name__}(...)) as a member, or use carya.Ensemble instead."
                )
        super().check_parameters()
        for member in self.members:
            member.check_parameters()
        if self.combine in ("mean", "sigmoid") and any(member.has_log_scores for member in self.members):
            raise ParameterError(
                f"combine={self.combine!r} cannot be used with members whose scores are logarithms, such as Reranked "
                "models. Use combine='rank' or combine='softmax'."
            )

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if a member requires an optional package that is not installed."""
        for member in self.members:
            member.check_dependencies()

    def fit(
        self,
        texts: TextsLike,
        labels: Any = None,
        *,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
        label_names: LabelNames | None = None,
        sample_weight: ArrayLike | None = None,
        calibrate: bool | int = False,
    ) -> Self:
        """Train every member on the same texts.

        Parameters
        ----------
        texts, labels, label_names
            As in :meth:`carya.TextRanker.fit`.
        names : mapping of str to str, optional
            Human-readable names of the labels.
        label_texts : mapping of str to str, optional
            Descriptions of the labels, passed to all members.
        sample_weight : array_like of shape (texts,), optional
            Non-negative weights of the texts, passed to all members. Raises InputError if a member does not support
            weights.
        calibrate : bool or int
            Whether to learn probabilities (:meth:`predict_proba`) from held-out texts; an integer is the number of
            folds (3 by default). See :meth:`carya.XRLinear.fit`.
        """
        self.check_parameters()
        self.check_dependencies()
        weights = check_weights(self.weights, len(self.members))
        data = LabeledTextLists.of(texts, labels, label_names, sample_weight)
        options = {"names": data.names if names is None else names, "label_texts": label_texts}
        folds = check_folds(calibrate)
        calibration = data.cross_fit(self, folds, options) if folds else None
        if isinstance(self.weights, str):
            weights = self._learn_weights(data, options)
        members = [data.fit(member, **options) for member in self._clone_members()]
        self._set_members(members, weights)
        if calibration is not None:
            self._set_calibration(calibration)
        return self

    @classmethod
    def from_members(cls, members: Sequence[BaseTextRanker[Any]], **parameters: Any) -> Self:
        """Combine text models that are already fitted on the same labels.

        Parameters
        ----------
        members : list of fitted text models
        parameters
            Parameters of the ensemble, such as `weights`.
        """
        ensemble = cls(list(members), **parameters)
        ensemble.check_parameters()
        if isinstance(ensemble.weights, str):
            raise ParameterError("weights='learned' requires fit. Pass numbers or None to combine fitted models.")
        for member in members:
            if member.needs_features:
                raise InputError(
                    f"A member ({type(member).__name__}) was trained with user-supplied features, so it cannot be "
                    "combined: an ensemble accepts only texts."
                )
        ensemble._set_members(list(members), check_weights(ensemble.weights, len(members)))
        return ensemble

    def _predict(self, state: _TextEnsembleState, texts: TextsLike, options: RankOptions) -> sp.csr_array:
        all_texts = list_of_texts(texts)
        count = pool_size(self.pool_size, options.top_k)
        rankings = [
            # Members do not warn about texts without known terms, because other members may know some of their terms.
            matrix_to_native(member.rank_all(all_texts, RankOptions.of(count, options.beam_width, None)))
            for member in state.members
        ]
        combined = combine_rankings(
            rankings,
            combine=self.combine,
            weights=state.weights,
            top_k=options.top_k,
            threads=_core.thread_count(self.n_jobs),
        )
        indptr, labels, scores = drop_below(combined, options.min_score)
        return sp.csr_array((scores, labels, indptr), shape=(indptr.size - 1, len(state.labels)))

    def with_transform(self, transform: str | Sequence[str]) -> Self:
        """Return a copy of the ensemble with a different transform in all members.

        The copy shares the weights with the ensemble and is not calibrated. Raises InputError if a member does not
        support this.

        Parameters
        ----------
        transform : str or sequence of str
            How level scores are combined; see :meth:`carya.XRLinear.with_transform`.
        """
        state = self._check_fitted()
        members = [member.with_transform(transform) for member in state.members]
        return self._copy_with_state(state._replace(members=members, calibration=None))

    def subset(self, labels: Iterable[str]) -> Self:
        """Return a smaller ensemble that ranks only the given labels; raise InputError if a member cannot do so.

        Parameters
        ----------
        labels : list of str
            The ids or names of the labels.
        """
        state = self._check_fitted()
        numbers = state.labels.numbers(labels)
        chosen = state.labels.take(numbers)
        members = [member.subset(list(chosen.ids)) for member in state.members]
        calibration = None if state.calibration is None else state.calibration.without_groups()
        return self._copy_with_state(state._replace(members=members, labels=chosen, calibration=calibration))

    def _copy_with_state(self, state: _TextEnsembleState) -> Self:
        ensemble = self.clone(members=state.members, weights=state.weights.tolist())
        ensemble._state = state
        ensemble.data_options_ = dict(self.data_options_)
        return ensemble

    def predict_selected(self, texts: TextsLike, candidates: Any) -> sp.csr_array:
        """Return the weighted mean scores of the given (text, label) pairs.

        Unlike in :meth:`predict`, every member scores every pair, including pairs outside its own ranking. Raises
        InputError if a member cannot score arbitrary labels or if `combine` is not ``"mean"``.
        """
        state = self._check_fitted()
        if not self.scores_any_label:
            return super().predict_selected(texts, candidates)
        all_texts = list_of_texts(texts)
        pairs = match_candidates(candidates, state.labels.ids, len(all_texts)).to_scipy()
        scores = [member.predict_selected(all_texts, pairs).data for member in state.members]
        mean = np.average(scores, axis=0, weights=state.weights).astype(np.float32)
        return sp.csr_array((mean, pairs.indices, pairs.indptr), shape=pairs.shape)

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` is available; requires combine="mean" and members that score arbitrary labels."""
        members = self._check_fitted().members
        return self.combine == "mean" and all(member.scores_any_label for member in members)

    def check_held_out(self, texts: Sequence[str]) -> None:
        """Raise InputError if most of the texts are known to be training texts."""
        for member in self._check_fitted().members:
            member.check_held_out(texts)

    def is_rankable(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask of the texts for which any member ranks labels."""
        rankable = [member.is_rankable(texts) for member in self._check_fitted().members]
        return np.asarray(np.any(rankable, axis=0), bool)

    @property
    def members_(self) -> list[BaseTextRanker[Any]]:
        """The fitted members."""
        return self._check_fitted().members

    @property
    def weights_(self) -> NDArray[np.float32]:
        """The weight of each member."""
        return self._check_fitted().weights

    @property
    def text_trees_(self) -> tuple[TextTree, ...]:
        """The label trees of all members, with their vectorizers."""
        return tuple(tree for member in self._check_fitted().members for tree in member.text_trees_)

    @property
    def vectorizers_(self) -> tuple[Tfidf, ...]:
        """The fitted vectorizers of all members."""
        return tuple(vectorizer for member in self._check_fitted().members for vectorizer in member.vectorizers_)

    def use_one_thread(self) -> None:
        """Use one thread and no progress bars in the ensemble and its members."""
        super().use_one_thread()
        for member in self._check_fitted().members:
            member.use_one_thread()

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder, without the additional files of the members."""
        state = self._check_fitted()
        own = {name: getattr(self, name) for name in _SAVED_PARAMETERS}
        own["weights"] = state.weights.tolist()
        return pack_members(KIND, own, state.members, state.calibration, weight_dtype)

    @property
    def has_files(self) -> bool:
        """Whether a member has additional files, such as an encoder."""
        return any(member.has_files for member in self._check_fitted().members)

    def save_files(self, folder: Path) -> None:
        """Write the additional files of the members."""
        save_member_files(self._check_fitted().members, folder)

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore an ensemble from an opened folder; called by :func:`carya.load`."""
        members, own, calibration = unpack_members(saved)
        with consistent_parts():
            ensemble = cls(members, **own)
            ensemble.check_parameters()
            ensemble._set_members(members, check_weights(ensemble.weights, len(members)))
            if calibration is not None:
                ensemble._set_calibration(calibration)
            return ensemble

    def _clone_members(self) -> list[Any]:
        """Return unfitted copies of the members."""
        members = [member.clone() for member in self.members]
        return [with_parameter(member, "verbose", True) for member in members] if self.verbose else members

    def _set_members(self, members: list[BaseTextRanker[Any]], weights: NDArray[np.float32]) -> None:
        labels = members[0].label_set_
        for number, member in enumerate(members):
            if len(member.labels_) != len(labels) or list(member.labels_) != list(labels.ids):
                raise InputError(
                    f"Members 0 and {number} have different labels (they have {len(labels)} and {len(member.labels_)} "
                    "labels). All members must be trained on the same labels."
                )
        self._state = _TextEnsembleState(members, weights, labels)  # atomic, because other threads may be ranking

    def _set_calibration(self, calibration: Calibration) -> None:
        self._state = self._check_fitted()._replace(calibration=calibration)

    def _learn_weights(self, data: LabeledTextLists, options: dict[str, Any]) -> NDArray[np.float32]:
        """Return the weights that maximize ranking quality on held-out texts."""
        n_texts = len(data.texts)
        order = np.random.default_rng(self.seed).permutation(n_texts)
        n_held_out = max(1, int(n_texts * self.validation_fraction))
        if n_texts - n_held_out < 1:
            raise InputError(f"weights='learned' requires at least 2 texts, got {n_texts}.")
        train, held_out = data.take(np.sort(order[n_held_out:])), data.take(np.sort(order[:n_held_out]))
        own = train.restrict(options)
        members = [train.fit(member, **own) for member in self._clone_members()]
        truth = label_matrix(held_out.labels, members[0].labels_)[0]
        count = pool_size(self.pool_size, 5)
        rankings = [
            matrix_to_native(member.rank_all(held_out.texts, RankOptions.of(count, None, None))) for member in members
        ]
        return best_weights(rankings, truth, combine=self.combine, threads=_core.thread_count(self.n_jobs))
