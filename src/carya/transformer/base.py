"""Methods shared by X-Transformer and XR-Transformer: training, encoding, prediction and saving."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core, metrics
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.inputs.labels import LabelNames, match_candidates
from carya.core.inputs.texts import TextsLike
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress, show_progress
from carya.core.validation import FeaturesLike
from carya.errors import InputError, ParameterError
from carya.models.calibration.calibration import Calibration
from carya.models.calibration.cross_fitting import check_folds
from carya.models.ensemble.combine import drop_below
from carya.models.interface import RankOptions
from carya.models.reranked.features import log_frequency
from carya.models.xr_linear.model import XRLinear
from carya.ranking.tasks.engine import Engine
from carya.text.base import BaseTextRanker, Suggestion, check_text, rank_options, to_ranked_labels
from carya.text.combined.text_ensemble import TextEnsemble
from carya.text.cross_fitting import cross_fitted_calibration_of_texts
from carya.text.inputs import checked_list_of_texts, split_corpus
from carya.text.label_restriction import RankedLabels
from carya.text.labels import LabelRows, LabelSet
from carya.text.text_tree import TextTree
from carya.text.tfidf import Tfidf
from carya.transformer.fitted import FittedTransformer
from carya.transformer.inputs import (
    LabeledTexts,
    LabelTexts,
    TrainingRun,
    TrainingTexts,
    check_labeled_texts,
    check_own_features,
    check_validation_data,
)
from carya.transformer.rankers.label_terms import label_term_rankers, label_term_vectorizer
from carya.transformer.rankers.rankers import CombinedRankers, RankerCombiner, RankerInputs, RankerModel
from carya.transformer.serialize import ENCODER_FOLDER, pack, unpack
from carya.transformer.settings import TransformerSettings, require_transformer_packages

if TYPE_CHECKING:
    from carya.transformer.encoder.encoder import Encoder
    from carya.transformer.training.fine_tuning import Matcher


@dataclass(eq=False, repr=False, kw_only=True)
class TransformerRanker(BaseTextRanker[FittedTransformer], TransformerSettings):
    """Base class for X-Transformer and XR-Transformer.

    Attributes
    ----------
    validation_scores_ : dict of str to dict
        P@1, P@3 and P@5 of each ranker, and of their combination (``mixture``), on the validation texts. Available only
        if `fit` used validation texts.
    history_ : list of dict
        For each epoch of the last training run: the stage, the epoch number, the mean loss, the number of tokens and
        the time in seconds.
    """

    kind: ClassVar[str]
    #: The encoders in the paper's ensemble.
    paper_encoders: ClassVar[Sequence[str]]

    @classmethod
    def recipe(cls, encoders: Sequence[str] | None = None, *, n_trees: int = 1, **parameters: Any) -> TextEnsemble:
        """Return the unfitted ensemble from the paper: one model for each combination of encoder and label tree.

        The ensemble is trained, saved and loaded as one model. Its scores are the mean scores of the members.

        Parameters
        ----------
        encoders : list of str, optional
            Folders or names on the Hugging Face Hub; by default, the encoders used in the paper.
        n_trees : int
            Number of label trees per encoder; the trees have different seeds.
        parameters
            Parameters passed to all members. Each member has its own subfolder of `checkpoint_dir`.

        Examples
        --------
        >>> import carya
        >>> len(carya.XRTransformer.recipe().members), len(carya.XTransformer.recipe().members)
        (3, 9)
        >>> ensemble = carya.XRTransformer.recipe(["encoders/bert", "encoders/roberta"], epochs=(1, 2, 5))
        >>> [member.encoder for member in ensemble.members]
        ['encoders/bert', 'encoders/roberta']
        """
        members = cls.ensemble_members(
            cls.paper_encoders if encoders is None else encoders, n_trees=n_trees, **parameters
        )
        folder = parameters.get("checkpoint_dir")
        if folder is not None:
            for number, member in enumerate(members):
                member.set_params(checkpoint_dir=str(Path(folder) / str(number)))
        return TextEnsemble(members, n_jobs=parameters.get("n_jobs", -1))

    @classmethod
    def ensemble_members(cls, encoders: Sequence[str], *, n_trees: int = 3, **parameters: Any) -> list[Self]:
        """Return the unfitted models of an ensemble, one for each combination of encoder and tree.

        The trees have different seeds. :meth:`recipe` combines the models; to train them separately, fit each model
        and combine them with :meth:`carya.TextEnsemble.from_members`.
        """
        if isinstance(encoders, str) or not encoders:
            raise ParameterError(f"encoders must be a non-empty list of strings, got {encoders!r}.")
        validation.check_positive_int(n_trees, "n_trees")
        seed = parameters.pop("random_state", parameters.pop("seed", 0))
        return [cls(encoder=encoder, seed=seed + tree, **parameters) for encoder in encoders for tree in range(n_trees)]

    def fit(
        self,
        texts: TextsLike,
        labels: Any = None,
        *,
        validation_data: tuple[Any, ...] | NDArray[Any] | None = None,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
        features: FeaturesLike | None = None,
        label_features: FeaturesLike | None = None,
        label_names: LabelNames | None = None,
        vocabulary: Iterable[str] | None = None,
        sample_weight: None = None,
        engine: Engine | None = None,
        calibrate: bool | int = False,
    ) -> Self:
        """Train the model on texts and their labels.

        Parameters
        ----------
        texts : list, tuple, iterator, array or column of str, table, or Corpus
            A table or a Corpus also contains labels; see :meth:`carya.TextRanker.fit`.
        labels : list of list of str, or labels in another form, as for :meth:`carya.TextRanker.fit`
            Class i, or column i of a matrix, becomes the label ``str(i)``. Can be omitted for a Corpus.
        validation_data : pair (texts, labels), or array of int, optional
            Separate texts with their labels, or the indices of the training texts to hold out. The validation texts are
            used to choose the number of epochs and the combination of the rankers. By default, a random fraction of the
            texts is held out (`validation_fraction`). If `features` is given, separate texts must be passed as a triple
            (texts, labels, features).
        names : mapping of str to str, optional
            Human-readable names of the labels.
        label_texts : mapping of str to str, optional
            Descriptions of the labels, such as their names. The encoder is also trained on each description as a text
            that has only this label, and labels rank higher if their descriptions are similar to the text. Descriptions
            improve the ranking of rare labels.
        features : sparse matrix or array of shape (n_texts, n_features), or a (sparse, dense) pair, optional
            Features of the texts, used in addition to TF-IDF features or, with ``use_tfidf=False``, instead of them.
            Rows should have approximately unit norm. All methods that rank texts then also require the features of
            these texts.
        label_features : like features, of shape (n_labels, ...), optional
            Features of the labels, in the column order of the label matrix, for label trees built from label features
            (`matcher_representation`, and `representation` of the ranker). By default, TF-IDF features of
            `label_texts`.
        label_names : list of str, optional
            The label of each matrix column or class number.
        vocabulary : list of str, optional
            Labels that can be suggested even if no training text has them, in addition to the labels of the training
            texts; requires `label_texts`, by which these labels are ranked.
        sample_weight : None
            Not supported: the encoder is trained with equal weights for all texts. Any value other than None raises
            InputError.
        engine : RayEngine, optional
            The engine that trains the linear rankers on other machines, after this process has trained the encoder;
            requires `checkpoint_dir`, a folder that all machines share.
        calibrate : bool or int
            Whether to learn probabilities (:meth:`predict_proba`) from held-out texts; an integer is the number of
            folds (3 by default). See :meth:`carya.XRLinear.fit`.
        """
        if engine is not None and self.checkpoint_dir is None:
            raise ParameterError("engine requires checkpoint_dir, a folder that all machines share.")
        if sample_weight is not None:
            raise InputError(
                f"sample_weight is not supported by {type(self).__name__}, because its encoder is trained with equal "
                "weights for all texts. Omit sample_weight, repeat texts, or set cost_sensitive=True and pass costs as "
                "label values."
            )
        folds = check_folds(calibrate)
        self.check_dependencies()
        self.check_parameters()
        texts, labels, own_names = split_corpus(texts, labels)
        names = own_names if names is None else names
        all_texts, ids = check_labeled_texts(texts, labels, features, label_names, vocabulary)
        if not self.use_tfidf and all_texts.features is None:
            raise InputError("features is missing. It is required with use_tfidf=False.")
        label_set = LabelSet.of(ids, names, label_texts)
        held_out = check_validation_data(validation_data, ids, all_texts)
        descriptions = LabelTexts.of(label_texts, ids)
        if vocabulary is not None and descriptions is None:
            raise InputError("label_texts is missing. It is required with vocabulary.")
        if self.contrastive_epochs and descriptions is None:
            raise InputError(
                f"label_texts is missing. It is required with contrastive_epochs={self.contrastive_epochs}."
            )
        own_label_features = self._check_label_features(label_features, len(ids), descriptions)
        calibration = None
        if folds:
            calibration = self._cross_fit(all_texts, ids, folds, names, label_texts, own_label_features)
        data, is_split = self._split(all_texts, held_out)
        data = replace(data, label_texts=descriptions, label_features=own_label_features)
        with show_progress(self.verbose) as progress:
            vectorizers, rankers, matcher = self._fit_once("split" if is_split else "all", data, progress, engine)
            if is_split and self.refit:
                data = replace(data, training=all_texts, validation=None)
                vectorizers, rankers, matcher = self._fit_once("all", data, progress, engine, (rankers, matcher))
        widths = (0, 0) if all_texts.features is None else all_texts.features.widths
        label_set = label_set.with_counts(all_texts.labels)
        vectorizer, label_vectorizer = vectorizers
        self.set_fitted(
            FittedTransformer(
                matcher.encoder, rankers, label_set, vectorizer, widths, label_vectorizer=label_vectorizer
            )
        )
        self.history_ = matcher.history.epochs
        if calibration is not None:
            self._set_calibration(calibration)
        return self

    def _cross_fit(
        self,
        data: LabeledTexts,
        ids: list[str],
        folds: int,
        names: Mapping[str, str] | None,
        label_texts: Mapping[str, str] | None,
        label_features: Features | None,
    ) -> Calibration:
        """Return the calibration learned from held-out texts; an encoder is trained for each fold."""

        def fit(rows: NDArray[np.int64]) -> Any:
            texts = data.take(rows)
            used = np.flatnonzero(texts.labels.column_counts()).astype(np.int32)
            known = {ids[label] for label in used.tolist()}
            tree = None if self.tree is None else self.tree.subset(used)[0]
            options: dict[str, Any] = {
                name: None if mapping is None else {label: text for label, text in mapping.items() if label in known}
                for name, mapping in (("names", names), ("label_texts", label_texts))
            }
            if texts.features is not None:
                options["features"] = texts.features.to_input()
            if label_features is not None:
                options["label_features"] = label_features.take(used.astype(np.int64)).to_input()
            model = self.clone(checkpoint_dir=None, tree=tree)
            return model.fit(texts.texts, LabelRows(texts.labels, ids), **options)

        def predict(model: Any, rows: NDArray[np.int64], top_k: int) -> Any:
            texts = data.take(rows)
            features = None if texts.features is None else texts.features.to_input()
            return model.predict(texts.texts, top_k=top_k, features=features)

        Y = data.labels.with_values(1).to_scipy()
        return cross_fitted_calibration_of_texts(Y, ids, folds, fit, predict, seed=int(self.seed))

    def _check_label_features(
        self, label_features: FeaturesLike | None, n_labels: int, label_texts: LabelTexts | None
    ) -> Features | None:
        if not self.needs_label_features:
            if label_features is not None:
                raise InputError(
                    "label_features is not used by the label trees of this model. Omit it, or use a representation "
                    "with 'lf' in its name (matcher_representation, or representation in ranker)."
                )
            return None
        if label_features is not None:
            return validation.check_label_features(label_features, n_labels)
        if label_texts is None or not self.use_tfidf:
            required = "label_texts or label_features" if self.use_tfidf else "label_features"
            raise InputError(f"A label tree of this model is built from label features. Pass {required}.")
        return None

    def _fit_once(
        self,
        name: str,
        data: TrainingTexts,
        progress: Progress,
        engine: Engine | None,
        previous: tuple[CombinedRankers, Matcher] | None = None,
    ) -> tuple[tuple[Tfidf | None, Tfidf | None], CombinedRankers, Matcher]:
        """Train all components; after a previous run, reuse its numbers of epochs and its combination of rankers."""
        vectorizer = self.make_vectorizer() if self.use_tfidf else None
        tfidf = None if vectorizer is None else vectorizer.fit_transform(data.texts)
        features = _join_features(tfidf, data.training.features)
        validation.check_training_data(features, data.labels)
        stop_after = previous[1].history.stage_epochs if previous else None
        label_features = self._label_features(vectorizer, data, features.widths)
        run = TrainingRun(name, data, features, label_features, stop_after or None, progress, engine)
        matcher, models = self._train(run)
        vectorizers: tuple[Tfidf | None, Tfidf | None] = vectorizer, None
        if self.match_label_texts and data.label_texts is not None:
            label_vectorizer = label_term_vectorizer(n_jobs=self.n_jobs).fit(data.texts)
            vectorizers = vectorizer, label_vectorizer
            models |= label_term_rankers(label_vectorizer, data.label_texts, n_jobs=self.n_jobs)
        frequency = log_frequency(data.labels)
        if previous is not None:
            combination = previous[0]
            mixture = combination.mixture and replace(combination.mixture, log_frequency=frequency)
            return vectorizers, CombinedRankers(models, combination.weights, mixture), matcher
        if data.validation is None:
            return vectorizers, CombinedRankers.with_equal_weights(models), matcher
        inputs = self._inputs(vectorizers, matcher.encoder, data.validation.texts, data.validation.features)
        with progress.stage("combine rankers"):
            combiner = RankerCombiner(self.mixture, self.seed, _core.thread_count(self.n_jobs))
            truth = data.validation.labels.to_scipy()
            rankers, self.validation_scores_ = combiner.combine(models, inputs, truth, frequency)
        return vectorizers, rankers, matcher

    def _label_features(
        self, vectorizer: Tfidf | None, data: TrainingTexts, widths: tuple[int, int]
    ) -> Features | None:
        """Return the user-supplied label features or, if missing but required, TF-IDF features of the label texts."""
        if data.label_features is not None or not self.needs_label_features:
            return data.label_features
        assert vectorizer is not None  # checked in fit
        assert data.label_texts is not None
        all_texts = [""] * data.label_texts.n_labels
        for label, text in zip(data.label_texts.labels.tolist(), data.label_texts.texts, strict=True):
            all_texts[label] = text
        tfidf = vectorizer.transform(all_texts)
        tfidf.resize((len(all_texts), widths[0]))  # labels have no user-supplied features
        return Features.of(Csr.of_scipy(tfidf), np.zeros((len(all_texts), widths[1]), np.float32))

    def _train(self, run: TrainingRun) -> tuple[Matcher, dict[str, RankerModel]]:
        """Train the encoder and the rankers; return the matcher and the rankers by name."""
        raise NotImplementedError

    def _split(
        self, data: LabeledTexts, validation_data: LabeledTexts | NDArray[np.int64] | None
    ) -> tuple[TrainingTexts, bool]:
        """Return the texts for the first training run, and whether some of the given texts are held out."""
        n_texts = len(data.texts)
        n_held_out = int(n_texts * self.validation_fraction)
        if isinstance(validation_data, LabeledTexts) or (validation_data is None and n_held_out == 0):
            return TrainingTexts(data, validation_data), False
        order = np.random.default_rng([self.seed, 1]).permutation(n_texts)
        held_out = np.sort(order[:n_held_out] if validation_data is None else validation_data)
        training, held_out_texts = data.take(np.setdiff1d(order, held_out)), data.take(held_out)
        if training.labels.values.size == 0 or held_out_texts.labels.values.size == 0:
            raise InputError(
                f"texts contains {n_texts} texts, which is too few for a validation split. Pass validation_data, or "
                "set validation_fraction=0."
            )
        return TrainingTexts(training, held_out_texts), True

    def encode(self, texts: TextsLike) -> NDArray[np.float32]:
        """Return the embeddings of the texts as an array of shape (texts, width); each embedding has norm 1."""
        encoder = self._check_fitted().encoder
        return encoder.encode_texts(checked_list_of_texts(texts), max_length=self.max_length)

    def predict(
        self,
        texts: TextsLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
        using: str | None = None,
        features: FeaturesLike | None = None,
        as_frame: bool = False,
    ) -> Any:
        """Return the scores of the best labels as a (texts, labels) matrix; each row is sorted by descending score.

        Parameters
        ----------
        texts : list of str
        top_k : int
            Number of labels per text.
        beam_width : int, optional
            Number of nodes kept per level; by default, each ranker uses its own beam width.
        min_score : float, optional
            Labels with lower scores are omitted.
        transform : None
            Not supported, because the combination of the rankers was learned from their scores. Any value other than
            None raises InputError.
        labels : list of str, optional
            Restrict the ranking to these labels, given by id or name; all of them are scored.
        using : str, optional
            Name of a single ranker to use instead of the combination: head, concatenated, linear, neighbors,
            label_texts, label_terms or label_coverage.
        features : as in :meth:`fit`
            Features of the texts; required if the model was trained with features.
        as_frame : bool
            Return a pandas DataFrame, as in :meth:`suggest_all`, instead of a matrix.
        """
        self._check_transform(transform)
        state = self._check_fitted()
        options = rank_options(state.labels, top_k, beam_width, min_score, labels)
        S = self._rank(state, texts, options, using=using, features=features)
        if not as_frame:
            return S
        return self._to_output(state, (S.indptr, S.indices, S.data), as_frame=True, is_restricted=labels is not None)

    def _rank(
        self,
        state: FittedTransformer,
        texts: TextsLike,
        options: RankOptions,
        *,
        using: str | None = None,
        features: FeaturesLike | None = None,
    ) -> sp.csr_array:
        inputs = self._query_inputs(state, texts, features)
        if options.labels is not None:
            return state.rankers.predict_within(inputs, options, using=using)
        S = state.rankers.predict(
            inputs,
            top_k=options.top_k,
            beam_width=options.beam_width,
            using=using,
            threads=_core.thread_count(self.n_jobs),
        )
        indptr, indices, data = drop_below((S.indptr, S.indices, S.data), options.min_score)
        return sp.csr_array((data, indices, indptr), shape=S.shape)

    def predict_selected(
        self,
        texts: TextsLike,
        candidates: Any,
        *,
        using: str | None = None,
        features: FeaturesLike | None = None,
    ) -> sp.csr_array:
        """Return the scores of the given (text, label) pairs, including pairs that a search would not retrieve.

        With a learned mixture, the scores are the same as those of :meth:`predict` with a `top_k` of at most 30. With a
        weighted sum, the scores of all rankers are included, whereas :meth:`predict` includes the scores of each ranker
        only for its 50 best labels.

        Parameters
        ----------
        texts : as for :meth:`fit`
        candidates : one list or set of labels per text, or matrix of shape (texts, labels)
            The pairs: the listed labels, the stored entries of a sparse matrix, or the nonzero entries of an array. The
            result has entries at the same positions. Unknown labels are ignored.
        using, features
            See :meth:`predict`.
        """
        state = self._check_fitted()
        inputs = self._query_inputs(state, texts, features)
        pairs = match_candidates(candidates, state.labels.ids, inputs.rows)
        scores = state.rankers.predict_selected(inputs, pairs, using=using)
        return sp.csr_array((scores, pairs.indices, pairs.indptr), shape=(pairs.rows, pairs.cols))

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve; always True."""
        return True

    def rank(
        self,
        text: str,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: Iterable[str] | None = None,
        features: FeaturesLike | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the indices and the scores of the best labels for a text, best first.

        The indices are positions in `labels_`; :meth:`suggest` returns names. `features` is a matrix with one row.
        For the other options, see :meth:`predict`.
        """
        self._check_transform(transform)
        state = self._check_fitted()
        check_text(text)
        options = rank_options(state.labels, top_k, beam_width, min_score, labels)
        S = self._rank(state, [text], options, features=features)
        return S.indices.astype(np.int32, copy=False), S.data

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
        features: FeaturesLike | None = None,
    ) -> list[Suggestion]:
        """Return the best labels for a text, best first; `features` is a matrix with one row.

        For the other options, see :meth:`predict`.
        """
        self._check_transform(transform)
        state = self._check_fitted()
        check_text(text)
        if open_vocabulary:
            chosen = RankOptions.of(top_k, beam_width, min_score)
            return self._suggest_open([text], chosen, labels, features=features)[0]
        options = rank_options(state.labels, top_k, beam_width, min_score, labels)
        S = self._rank(state, [text], options, features=features)
        rankings = (S.indptr, S.indices, S.data)
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
        features: FeaturesLike | None = None,
        as_frame: bool = False,
    ) -> Any:
        """Return the best labels for each text, best first; for the options, see :meth:`predict`.

        The result contains one list of suggestions per text or, if `as_frame` is true, it is a pandas DataFrame with
        the columns row, rank, label, score and, for calibrated models, probability.
        """
        self._check_transform(transform)
        state = self._check_fitted()
        if open_vocabulary:
            chosen, checked = RankOptions.of(top_k, beam_width, min_score), checked_list_of_texts(texts)
            return self._suggest_open(checked, chosen, labels, as_frame=as_frame, features=features)
        options = rank_options(state.labels, top_k, beam_width, min_score, labels)
        S = self._rank(state, texts, options, features=features)
        rankings = (S.indptr, S.indices, S.data)
        return self._to_output(state, rankings, as_frame=as_frame, is_restricted=labels is not None)

    def rank_texts(
        self,
        texts: TextsLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        labels: ArrayLike | None = None,
        features: FeaturesLike | None = None,
    ) -> list[RankedLabels]:
        """Return the indices and the scores of the best labels for each text, best first.

        If `labels` is given, only the labels with these indices are ranked. For the other options, see :meth:`predict`.
        """
        state = self._check_fitted()
        options = RankOptions.of(top_k, beam_width, min_score, labels, len(state.labels))
        S = self._rank(state, texts, options, features=features)
        return to_ranked_labels((S.indptr, S.indices, S.data))

    def calibrate(
        self,
        texts: TextsLike,
        labels: Any = None,
        *,
        top_k: int = 20,
        features: FeaturesLike | None = None,
    ) -> Self:
        """Learn a mapping from scores to probabilities, using texts that were not used for training.

        Parameters
        ----------
        texts, labels
            As for :meth:`fit`.
        top_k : int
            Number of suggestions per text to learn from; a larger number improves the estimates at low scores.
        features : as in :meth:`fit`
            Features of the texts; required if the model was trained with features.
        """
        self._check_fitted()
        texts, labels, _ = split_corpus(texts, labels)
        # Read the texts first, because a corpus provides its labels while its texts are read.
        all_texts = checked_list_of_texts(texts)
        return self._learn_calibration(self.predict(all_texts, top_k=top_k, features=features), all_texts, labels)

    def suggestion_scores(
        self,
        texts: TextsLike,
        labels: Any = None,
        *,
        top_k: int = 20,
        features: FeaturesLike | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the scores of all suggestions for the texts, and whether each suggestion is correct."""
        self._check_fitted()
        texts, labels, _ = split_corpus(texts, labels)
        # Read the texts first, because a corpus provides its labels while its texts are read.
        S = self.predict(texts, top_k=top_k, features=features)
        return self._check_suggestions(S, labels)

    def score(self, texts: TextsLike, labels: Any = None, *, features: FeaturesLike | None = None) -> float:
        """Return P@1, which scikit-learn's model selection uses as the default score.

        `labels` can have any form that `fit` accepts and can be omitted if `texts` is a Corpus.
        """
        self._check_fitted()
        texts, labels, _ = split_corpus(texts, labels)
        # Read the texts first, because a corpus provides its labels while its texts are read.
        S = self.predict(texts, top_k=1, features=features)
        return metrics.precision(self.label_matrix(labels), S, k=1)

    def subset(self, labels: Iterable[str]) -> Self:
        """Return a smaller model restricted to the given labels, with the same encoder, vocabulary and calibration.

        The scores of a weighted sum are the same as those of the complete model with ``labels=labels``. A learned
        mixture compares the candidates for a text with one another, so its scores differ.

        Parameters
        ----------
        labels : list of str
            The ids or names of the labels.
        """
        state = self._check_fitted()
        numbers = state.labels.numbers(labels)
        model = self.clone(tree=None)
        calibration = None if state.calibration is None else state.calibration.without_groups()
        chosen, rankers = state.labels.take(numbers), state.rankers.subset(numbers)
        model.set_fitted(replace(state, rankers=rankers, labels=chosen, calibration=calibration))
        model.data_options_ = dict(self.data_options_)
        return model

    def _check_transform(self, transform: object) -> None:
        """Raise InputError if a transform is given."""
        if transform is not None:
            self.with_transform(transform)  # type: ignore[arg-type]

    def _query_inputs(self, state: FittedTransformer, texts: TextsLike, features: FeaturesLike | None) -> RankerInputs:
        checked = checked_list_of_texts(texts)
        own = check_own_features(features, len(checked), state.feature_widths)
        return self._inputs((state.vectorizer, state.label_vectorizer), state.encoder, checked, own)

    def _inputs(
        self,
        vectorizers: tuple[Tfidf | None, Tfidf | None],
        encoder: Encoder,
        texts: list[str],
        features: Features | None,
    ) -> RankerInputs:
        vectorizer, label_vectorizer = vectorizers
        embeddings = encoder.encode_texts(texts, max_length=self.max_length)
        tfidf = None if vectorizer is None else vectorizer.transform(texts)
        terms = None if label_vectorizer is None else Features.of(Csr.of_scipy(label_vectorizer.transform(texts)))
        return RankerInputs(_join_features(tfidf, features), embeddings, self.embedding_weight, terms)

    @property
    def vectorizer_(self) -> Tfidf | None:
        """The fitted vectorizer; None if the model was trained with ``use_tfidf=False``."""
        return self._check_fitted().vectorizer

    @property
    def vectorizers_(self) -> tuple[Tfidf, ...]:
        """The fitted vectorizer in a tuple, which is empty if there is none."""
        vectorizer = self._check_fitted().vectorizer
        return () if vectorizer is None else (vectorizer,)

    @property
    def text_trees_(self) -> tuple[TextTree, ...]:
        """The linear ranker on TF-IDF features; models trained with user-supplied features have no text trees."""
        state = self._check_fitted()
        tree = state.rankers.models.get("linear")
        if state.vectorizer is None or not isinstance(tree, XRLinear) or any(state.feature_widths):
            return ()
        return (TextTree(state.vectorizer, tree),)

    @property
    def needs_features(self) -> bool:
        """Whether ranking requires features, as in models trained with user-supplied features."""
        return any(self._check_fitted().feature_widths)

    @property
    def feature_widths_(self) -> tuple[int, int]:
        """The numbers of sparse and dense columns in the features passed to `fit`; (0, 0) if none were passed."""
        return self._check_fitted().feature_widths

    @property
    def weights_(self) -> dict[str, float]:
        """The weight of each ranker in the weighted sum; unused if a mixture was learned."""
        return dict(self._check_fitted().rankers.weights)

    @property
    def rankers_(self) -> dict[str, RankerModel]:
        """The rankers by name; ``neighbors`` is a NearestNeighbors model, and all others are XRLinear models."""
        return dict(self._check_fitted().rankers.models)

    def to_saved(self, *, weight_dtype: str | None = None) -> storage.SavedModel:
        """Return the contents of a model folder, without the encoder."""
        return pack(self._check_fitted(), self, self.kind, weight_dtype=weight_dtype)

    @property
    def has_files(self) -> bool:
        """Whether a saved model has additional files; always true, because the encoder is saved separately."""
        return True

    def save_files(self, folder: Path) -> None:
        """Save the encoder to a subfolder that can be loaded with ``transformers``."""
        self._check_fitted().encoder.save(folder / ENCODER_FOLDER)

    def use_one_thread(self) -> None:
        """Disable progress output, and limit the model and PyTorch to one thread in this process."""
        import torch

        super().use_one_thread()
        torch.set_num_threads(1)

    @classmethod
    def from_saved(cls, saved: storage.SavedModel) -> Self:
        """Restore a model from an opened folder; called by :func:`carya.load`."""
        require_transformer_packages(cls.__name__)
        model, fitted = unpack(saved, cls)
        model.set_fitted(fitted)
        return model

    def _set_calibration(self, calibration: Calibration) -> None:
        self.set_fitted(replace(self._check_fitted(), calibration=calibration))

    def set_fitted(self, state: FittedTransformer) -> None:
        """Set the fitted state."""
        state.encoder.eval()
        self._state = state  # assigned atomically, because other threads may be ranking


def _join_features(tfidf: sp.csr_array | None, own: Features | None) -> Features:
    """Return the TF-IDF features concatenated with the user-supplied features; at least one must be given."""
    if own is None:
        assert tfidf is not None
        return Features.of(Csr.of_scipy(tfidf))
    if tfidf is None:
        return own
    sparse = sp.csr_array(sp.hstack([tfidf, own.sparse.to_scipy()], format="csr"))
    return Features.of(Csr.of_scipy(sparse), own.dense)
