"""The verbs of transformer models: the same as those of :class:`carya.TextRanker`, and `encode`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.matrices import Csr
from carya.core.progress import Bars, Progress
from carya.errors import InputError, NotFittedError
from carya.models.reranked.features import frequency_of
from carya.text.labels import LabelSet, label_matrix
from carya.text.text_ranker import Suggestion
from carya.text.tfidf import Tfidf
from carya.transformer.inputs import Labels, LabelTexts, Texts, checked, checked_dev
from carya.transformer.rankers.rankers import Inputs, Rankers, alike, mixed, threads_of
from carya.transformer.settings import TransformerParameters, need_torch

if TYPE_CHECKING:
    from carya.transformer.encoder.encoder import Encoder
    from carya.transformer.training.fine_tuning import Matcher


@dataclass(frozen=True, eq=False)
class Fitted:
    """All that training finds out."""

    encoder: Encoder
    vectorizer: Tfidf
    rankers: Rankers
    labels: LabelSet


@dataclass(eq=False, repr=False, kw_only=True)
class TransformerRanker(TransformerParameters):
    """What X-Transformer and XR-Transformer share."""

    kind: ClassVar[str]

    def fit(
        self,
        texts: Iterable[str],
        labels: Labels,
        *,
        dev: tuple[Iterable[str], Labels] | NDArray[Any] | None = None,
        names: Mapping[str, str] | None = None,
        label_texts: Mapping[str, str] | None = None,
    ) -> Self:
        """Learn from texts and the labels of each.

        Parameters
        ----------
        texts : list of str
        labels : list of list of str, or sparse matrix of shape (texts, labels)
            Labels of a matrix are called by their numbers: ``"0"``, ``"1"``, …
        dev : pair of such texts and labels, or array of int, optional
            To choose epochs and the mixture of rankers by: other texts, or the numbers of those to hold out, instead of
            some chosen at random.
        names : mapping of str to str, optional
            What people call a label.
        label_texts : mapping of str to str, optional
            What is written about a label, such as its name. The encoder learns from each as from a text that has this
            label alone, and a label whose text resembles a given text ranks higher: labels gain that few texts have.
        """
        need_torch()
        self.check_parameters()
        all_texts, Y, ids = checked(texts, labels)
        known = LabelSet.of(ids, names, label_texts)
        about = LabelTexts.of(label_texts, ids)
        data, cut = self._split(all_texts, Y, checked_dev(dev, ids, len(all_texts)), about)
        with Bars() if self.verbose else Progress() as progress:
            parts, matcher = self._fit_once(data, None, None, progress, "chosen" if cut else "whole")
            if cut and self.refit:
                whole = Texts(all_texts, Y, None, about)
                parts, matcher = self._fit_once(whole, parts[1], matcher.account.epochs, progress, "whole")
        self._set_learned(Fitted(matcher.encoder, *parts, known))
        self.history_ = matcher.account.history
        return self

    def _fit_once(
        self, data: Texts, chosen: Rankers | None, epochs: list[int] | None, progress: Progress, purpose: str
    ) -> tuple[tuple[Tfidf, Rankers], Matcher]:
        """Train all parts; the mixture is `chosen`, or chosen by dev texts, or equal."""
        vectorizer = self.make_vectorizer()
        X = vectorizer.fit_transform(data.texts)
        matcher, models = self._train(data, X, epochs or None, progress, purpose)
        if chosen is not None:
            mixture = chosen.mixture and replace(chosen.mixture, frequency=frequency_of(data.labels))
            return (vectorizer, Rankers(models, chosen.weights, mixture)), matcher
        if data.dev is None:
            return (vectorizer, alike(models)), matcher
        inputs = self._inputs(vectorizer, matcher.encoder, data.dev[0])
        with progress.stage("mix the rankers"):
            rankers, self.dev_ = mixed(
                models,
                inputs,
                data.dev[1].to_scipy(),
                frequency_of(data.labels),
                how=self.mixture,
                seed=self.seed,
                threads=threads_of(self.n_jobs),
            )
        return (vectorizer, rankers), matcher

    def _train(
        self, data: Texts, X: sp.csr_array, stop_after: Sequence[int] | None, progress: Progress, purpose: str
    ) -> tuple[Matcher, dict[str, Any]]:
        """The encoder, and the rankers by name."""
        raise NotImplementedError

    def _split(
        self,
        texts: list[str],
        Y: Csr,
        given: tuple[list[str], Csr] | NDArray[np.int64] | None,
        about: LabelTexts | None,
    ) -> tuple[Texts, bool]:
        """What to train on first, and whether that is less than everything."""
        held = int(len(texts) * self.held_out)
        if isinstance(given, tuple) or (given is None and held == 0):
            return Texts(texts, Y, given if isinstance(given, tuple) else None, about), False
        order = np.random.default_rng([self.seed, 1]).permutation(len(texts))
        unseen = np.sort(order[:held] if given is None else given)
        seen = np.setdiff1d(order, unseen)
        matrix = Y.to_scipy()
        first, second = Csr.of_scipy(matrix[seen]), Csr.of_scipy(matrix[unseen])
        if first.values.size == 0 or second.values.size == 0:
            raise InputError(f"{len(texts)} texts are too few to hold some out; give dev, or held_out=0")
        dev = [texts[row] for row in unseen], second
        return Texts([texts[row] for row in seen], first, dev, about), True

    def encode(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """The learned vectors of texts, shape (texts, width), each of length 1."""
        return self._vectors(self._ready().encoder, texts)

    def _vectors(self, encoder: Encoder, texts: Iterable[str]) -> NDArray[np.float32]:
        from carya.transformer.encoder.encoder import encode_texts

        return encode_texts(encoder, texts, max_length=self.max_length)

    def predict(
        self, texts: Iterable[str], *, top_k: int = 10, beam_width: int | None = None, using: str | None = None
    ) -> sp.csr_array:
        """Scores of the best labels of every text, texts x labels, each row sorted best first; `labels_` names them.

        Parameters
        ----------
        using : {"head", "concatenated", "linear", "neighbours", "label_texts"}, optional
            Ask one of the rankers only, instead of their mixture.
        """
        fitted = self._ready()
        count = validation.positive_int(top_k, "top_k")
        inputs = self._inputs(fitted.vectorizer, fitted.encoder, list(texts))
        return fitted.rankers.predict(
            inputs, top_k=count, beam_width=beam_width, using=using, threads=threads_of(self.n_jobs)
        )

    def _inputs(self, vectorizer: Tfidf, encoder: Encoder, texts: list[str]) -> Inputs:
        return Inputs(vectorizer.transform(texts), self._vectors(encoder, texts), self.vector_weight)

    def suggest(
        self, text: str, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> list[Suggestion]:
        """The best labels of one text, best first; with `min_score`, none below it."""
        if not isinstance(text, str):
            raise InputError(f"text must be a string, got {type(text).__name__}; for several use suggest_all")
        return self.suggest_all([text], top_k=top_k, beam_width=beam_width, min_score=min_score)[0]

    def suggest_all(
        self, texts: Iterable[str], *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> list[list[Suggestion]]:
        """The best labels of each of several texts; with `min_score`, none below it."""
        S = self.predict(texts, top_k=top_k, beam_width=beam_width)
        least = -np.inf if min_score is None else float(min_score)
        labels = self._ready().labels
        found, scores = S.indices.tolist(), S.data.tolist()
        return [
            [
                Suggestion(labels.ids[found[i]], scores[i], labels.name(found[i]))
                for i in range(a, b)
                if scores[i] >= least
            ]
            for a, b in itertools.pairwise(S.indptr.tolist())
        ]

    def label_matrix(self, labels: Iterable[Iterable[str]]) -> sp.csr_array:
        """Lists of labels as a matrix, rows x `labels_`; those that the model does not know are left out."""
        return label_matrix(labels, self._ready().labels.ids)[0]

    def score(self, texts: Iterable[str], labels: Labels) -> float:
        """P@1, what scikit-learn compares models by unless told otherwise."""
        S = self.predict(texts, top_k=1)
        Y = labels if sp.issparse(labels) else self.label_matrix(labels)
        return metrics.precision(Y, S, k=1)

    @property
    def labels_(self) -> Sequence[str]:
        """The labels in the order of a prediction's columns."""
        return self._ready().labels.ids

    @property
    def label_names_(self) -> Sequence[str]:
        """What people call them."""
        labels = self._ready().labels
        return labels.ids if labels.names is None else labels.names

    @property
    def weights_(self) -> dict[str, float]:
        """How much each ranker counts in a sum of scores; a mixture that is learned goes its own way."""
        return dict(self._ready().rankers.weights)

    @property
    def rankers_(self) -> dict[str, Any]:
        """The rankers by name: neighbours a NearestNeighbours, each other an XRLinear."""
        return dict(self._ready().rankers.models)

    def save(self, path: str | os.PathLike[str], *, precision: str | None = None) -> None:
        """Write the model to a folder, in one step; the encoder's own folder in it is one of ``transformers``."""
        from carya.transformer.serialize import pack

        fitted = self._ready()
        saved = pack(fitted, self, precision=precision)
        storage.save(path, saved, others=lambda folder: fitted.encoder.save(folder / "encoder"))

    @classmethod
    def from_saved(cls, saved: storage.Saved) -> Self:
        """The model in an opened folder; what :func:`carya.load` calls."""
        from carya.transformer.serialize import unpack

        need_torch()
        fitted, parameters = unpack(saved, cls)
        made = cls(**parameters)
        made._set_learned(fitted)
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def _set_learned(self, fitted: Fitted) -> None:
        fitted.encoder.eval()
        self._fitted = fitted  # in one step: other threads may be asking
        self.vectorizer_ = fitted.vectorizer

    def _ready(self) -> Fitted:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._fitted
