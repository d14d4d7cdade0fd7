"""Methods shared by X-Transformer and XR-Transformer: training, encoding, prediction and saving."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.matrices import Csr
from carya.core.progress import Progress, progress_bars
from carya.errors import InputError
from carya.models.reranked.features import log_frequency
from carya.text.base import BaseTextRanker
from carya.text.labels import LabelSet
from carya.text.tfidf import Tfidf
from carya.transformer.fitted import FittedTransformer
from carya.transformer.inputs import (
    LabeledTexts,
    Labels,
    LabelTexts,
    TrainingRun,
    TrainingTexts,
    check_labeled_texts,
    check_texts,
    check_validation_data,
)
from carya.transformer.rankers.rankers import CombinedRankers, RankerCombiner, RankerInputs, RankerModel
from carya.transformer.serialize import ENCODER_FOLDER, pack, unpack
from carya.transformer.settings import TransformerSettings, require_transformer_packages

if TYPE_CHECKING:
    from carya.transformer.encoder.encoder import Encoder
    from carya.transformer.training.fine_tuning import Matcher


@dataclass(eq=False, repr=False, kw_only=True)
class TransformerRanker(BaseTextRanker[FittedTransformer], TransformerSettings):
    """Base class of X-Transformer and XR-Transformer.

    Attributes
    ----------
    validation_scores_ : dict of str to dict
        P@1, P@3 and P@5 of each ranker, and of their combination (``mixture``), on the validation texts. Available only
        if `fit` used validation texts.
    history_ : list of dict
        For each epoch of the last training run: the stage, the epoch, the mean loss, the number of tokens and the time
        in seconds.
    """

    kind: ClassVar[str]

    def fit(
        self,
        texts: Iterable[str],
        labels: Labels,
        *,
        validation_data: tuple[Iterable[str], Labels] | NDArray[Any] | None = None,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
    ) -> Self:
        """Train the model on texts and their labels.

        Parameters
        ----------
        texts : list of str
        labels : list of list of str, or sparse matrix of shape (n_texts, n_labels)
            One list of labels per text. For a matrix, the label ids are the column numbers: ``"0"``, ``"1"``, …
        validation_data : pair (texts, labels), or array of int, optional
            Separate texts with their labels, or the numbers of the training texts to hold out. Validation texts
            determine the number of epochs and the combination of the rankers. By default, a random fraction of the
            texts is held out (`validation_fraction`).
        names : mapping of str to str, optional
            Human-readable names of the labels.
        label_texts : mapping of str to str, optional
            Descriptions of the labels, such as their names. The encoder is also trained on each description as a text
            with this label only, and labels rank higher if their description is similar to the text. This improves the
            ranking of rare labels.
        """
        self.check_dependencies()
        self.check_parameters()
        all_texts, ids = check_labeled_texts(texts, labels)
        label_set = LabelSet.of(ids, names, label_texts)
        held_out = check_validation_data(validation_data, ids, len(all_texts.texts))
        descriptions = LabelTexts.of(label_texts, ids)
        data, is_split = self._split(all_texts, held_out, descriptions)
        with progress_bars(self.verbose) as progress:
            vectorizer, rankers, matcher = self._fit_once("split" if is_split else "all", data, progress)
            if is_split and self.refit:
                data = TrainingTexts(*all_texts, label_texts=descriptions)
                vectorizer, rankers, matcher = self._fit_once("all", data, progress, (rankers, matcher))
        self.set_fitted(FittedTransformer(matcher.encoder, vectorizer, rankers, label_set))
        self.history_ = matcher.history.epochs
        return self

    def _fit_once(
        self,
        name: str,
        data: TrainingTexts,
        progress: Progress,
        previous: tuple[CombinedRankers, Matcher] | None = None,
    ) -> tuple[Tfidf, CombinedRankers, Matcher]:
        """Train all parts; if there was a previous run, use its number of epochs and its combination of rankers."""
        vectorizer = self.make_vectorizer()
        features, _ = validation.check_training_data(vectorizer.fit_transform(data.texts), data.labels)
        stop_after = previous[1].history.stage_epochs if previous else None
        matcher, models = self._train(TrainingRun(name, data, features, stop_after or None, progress))
        frequency = log_frequency(data.labels)
        if previous is not None:
            combination = previous[0]
            mixture = combination.mixture and replace(combination.mixture, log_frequency=frequency)
            return vectorizer, CombinedRankers(models, combination.weights, mixture), matcher
        if data.validation is None:
            return vectorizer, CombinedRankers.with_equal_weights(models), matcher
        inputs = self._inputs(vectorizer, matcher.encoder, data.validation.texts)
        with progress.stage("combine rankers"):
            combiner = RankerCombiner(self.mixture, self.seed, _core.thread_count(self.n_jobs))
            truth = data.validation.labels.to_scipy()
            rankers, self.validation_scores_ = combiner.combine(models, inputs, truth, frequency)
        return vectorizer, rankers, matcher

    def _train(self, run: TrainingRun) -> tuple[Matcher, dict[str, RankerModel]]:
        """Train the encoder and the rankers; return the matcher and the rankers by name."""
        raise NotImplementedError

    def _split(
        self,
        data: LabeledTexts,
        validation_data: LabeledTexts | NDArray[np.int64] | None,
        label_texts: LabelTexts | None,
    ) -> tuple[TrainingTexts, bool]:
        """Return the texts for the first training run, and whether some of the given texts are held out."""
        n_texts = len(data.texts)
        n_held_out = int(n_texts * self.validation_fraction)
        if isinstance(validation_data, LabeledTexts) or (validation_data is None and n_held_out == 0):
            return TrainingTexts(*data, validation_data, label_texts), False
        order = np.random.default_rng([self.seed, 1]).permutation(n_texts)
        held_out = np.sort(order[:n_held_out] if validation_data is None else validation_data)
        kept = np.setdiff1d(order, held_out)
        matrix = data.labels.to_scipy()
        kept_labels, held_out_labels = Csr.of_scipy(matrix[kept]), Csr.of_scipy(matrix[held_out])
        if kept_labels.values.size == 0 or held_out_labels.values.size == 0:
            raise InputError(
                f"texts contains {n_texts} texts, which is too few for a validation split. Pass validation_data, or "
                "set validation_fraction=0."
            )
        validation_texts = LabeledTexts([data.texts[row] for row in held_out], held_out_labels)
        return TrainingTexts([data.texts[row] for row in kept], kept_labels, validation_texts, label_texts), True

    def encode(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Return the embeddings of the texts as an array of shape (texts, width); each embedding has norm 1."""
        encoder = self._check_fitted().encoder
        return encoder.encode_texts(check_texts(texts), max_length=self.max_length)

    def predict(
        self, texts: Iterable[str], *, top_k: int = 10, beam_width: int | None = None, using: str | None = None
    ) -> sp.csr_array:
        """Return the scores of the best labels as a (texts, labels) matrix; each row is sorted by descending score.

        Parameters
        ----------
        texts : list of str
        top_k : int
            Number of labels per text.
        beam_width : int, optional
            Number of nodes kept per level; by default, each ranker uses its own beam width.
        using : {"head", "concatenated", "linear", "neighbors", "label_texts"}, optional
            Name of a single ranker to use instead of the combination.
        """
        return self._predict(self._check_fitted(), texts, top_k=top_k, beam_width=beam_width, using=using)

    def _predict(
        self,
        state: FittedTransformer,
        texts: Iterable[str],
        *,
        top_k: int,
        beam_width: int | None,
        using: str | None = None,
    ) -> sp.csr_array:
        count = validation.check_positive_int(top_k, "top_k")
        inputs = self._inputs(state.vectorizer, state.encoder, check_texts(texts))
        return state.rankers.predict(
            inputs, top_k=count, beam_width=beam_width, using=using, threads=_core.thread_count(self.n_jobs)
        )

    def _inputs(self, vectorizer: Tfidf, encoder: Encoder, texts: list[str]) -> RankerInputs:
        embeddings = encoder.encode_texts(texts, max_length=self.max_length)
        return RankerInputs(vectorizer.transform(texts), embeddings, self.embedding_weight)

    @property
    def vectorizer_(self) -> Tfidf:
        """The fitted vectorizer."""
        return self._check_fitted().vectorizer

    @property
    def weights_(self) -> dict[str, float]:
        """The weight of each ranker in the weighted sum; unused if a mixture was learned."""
        return dict(self._check_fitted().rankers.weights)

    @property
    def rankers_(self) -> dict[str, RankerModel]:
        """The rankers by name; ``neighbors`` is a NearestNeighbors model, and all others are XRLinear models."""
        return dict(self._check_fitted().rankers.models)

    def save(self, path: str | os.PathLike[str], *, weight_dtype: str | None = None) -> None:
        """Save the model to a folder atomically: concurrent readers see either the old or the new model.

        The encoder is saved in a subfolder that can be loaded with ``transformers``.
        """
        state = self._check_fitted()
        saved = replace(pack(state, self, self.kind, weight_dtype=weight_dtype), data_options=self.data_options_)
        storage.save(path, saved, extra=lambda folder: state.encoder.save(folder / ENCODER_FOLDER))

    @classmethod
    def from_saved(cls, saved: storage.SavedModel) -> Self:
        """Restore a model from an opened folder; called by :func:`carya.load`."""
        require_transformer_packages(cls.__name__)
        model, fitted = unpack(saved, cls)
        model.set_fitted(fitted)
        return model

    def set_fitted(self, state: FittedTransformer) -> None:
        """Set the fitted state."""
        state.encoder.eval()
        self._state = state  # assigned atomically, because other threads may be ranking
