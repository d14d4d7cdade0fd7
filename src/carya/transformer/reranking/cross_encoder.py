"""Cross-encoder: a sequence-classification model from ``transformers`` that scores (text, label name) pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import Parameterized, parameter, to_json
from carya.core.progress import show_progress
from carya.core.rules import Choice, Instance, Integer, Real
from carya.errors import InputError, NotFittedError
from carya.ranking.pairs import Pairs, PairTexts
from carya.transformer.settings import require_transformer_packages

if TYPE_CHECKING:
    from carya.transformer.reranking.pair_model import PairModel

_MACHINE_SETTINGS = ("device", "verbose")


@dataclass(eq=False, repr=False, kw_only=True)
class CrossEncoderRanker(Parameterized):
    """Reranker that encodes each text together with a label name.

    The encoder is any model that ``transformers.AutoModelForSequenceClassification`` can load. If its classification
    layer has exactly one output, this layer is used; otherwise, a new one is trained. The listwise loss is the
    cross-entropy between the relevant candidates for a text and the softmax of the scores; the pointwise loss is the
    mean binary cross-entropy of the pairs.

    Use this ranker in :class:`carya.TextReranker`, alone or averaged with a reranker that uses the first-stage scores.
    Requires ``pip install 'carya[transformer]'``.

    Examples
    --------
    >>> import carya
    >>> from carya.ranking import AveragedRanker, NeuralRanker
    >>> cross_encoder = carya.CrossEncoderRanker(encoder="cross-encoder/ms-marco-MiniLM-L6-v2", epochs=1)
    >>> model = carya.TextReranker(carya.TextRanker(), AveragedRanker([cross_encoder, NeuralRanker()]))

    ``model.fit(texts, labels, names=names)`` trains the first-stage model and both rerankers.
    """

    name: ClassVar[str] = "cross-encoder"
    needs_texts: ClassVar[bool] = True
    has_files: ClassVar[bool] = True

    foreign_names: ClassVar[Mapping[str, str]] = {"model_name_or_path": "encoder", "num_train_epochs": "epochs"}

    encoder: str = parameter(
        "cross-encoder/ms-marco-MiniLM-L6-v2",
        Instance((str,), "a folder or the name of a model on the Hugging Face Hub"),
        "sequence-classification model: a folder or the name of a model on the Hugging Face Hub",
    )
    max_length: int = parameter(128, Integer(8), "maximum number of tokens per pair; longer texts are truncated")
    loss: str = parameter("listwise", Choice("listwise", "pointwise"), "loss function")
    epochs: int = parameter(2, Integer(1), "number of passes over the training texts")
    batch_size: int = parameter(8, Integer(1), "number of texts per step")
    n_negatives: int = parameter(8, Integer(1), "maximum number of irrelevant candidates per text and epoch")
    learning_rate: float = parameter(3e-5, Real(0, open_low=True), "peak learning rate")
    warmup_ratio: float = parameter(
        0.1, Real(0, high=0.9), "fraction of the steps during which the learning rate increases"
    )
    weight_decay: float = parameter(0.01, Real(0), "weight decay for the weight matrices")
    score_batch_size: int = parameter(64, Integer(1), "number of pairs per batch when ranking")
    device: str = parameter(
        "auto",
        Instance((str,), "the name of a PyTorch device"),
        "PyTorch device: auto, cpu, cuda, cuda:1, …; auto means the GPU if one is available",
    )
    seed: int = parameter(0, Integer(0, 2**31 - 1), "random seed; on a CPU, the same seed gives the same model")
    verbose: bool = parameter(False, Choice(True, False), "show progress bars on standard error")

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if an optional dependency is missing."""
        require_transformer_packages(type(self).__name__)

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Train the model on pairs with texts; `relevance` contains one non-negative number per pair."""
        self.check_dependencies()
        self.check_parameters()
        texts, targets = _check_texts(pairs), pairs.check_relevance(relevance)
        from carya.transformer.reranking.pair_model import PairModel

        model = PairModel.load(self.encoder, max_length=self.max_length, seed=self.seed, device=self.device)
        with show_progress(self.verbose) as progress, progress.stage("train cross-encoder") as report:
            self.losses_ = model.train_on(texts, pairs.offsets, targets, self, report)
        self._model = model
        return self

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """Return the output of the model for each pair."""
        model = self._check_fitted()
        return model.score(_check_texts(pairs), pairs.queries, batch_size=int(self.score_batch_size))

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the parameters; the model is saved in additional files."""
        self._check_fitted()
        own = self.get_params(deep=False).items()
        return {"parameters": {key: to_json(value) for key, value in own if key not in _MACHINE_SETTINGS}}, {}

    def save_files(self, folder: Path) -> None:
        """Save the weights (safetensors), configuration and tokenizer in the ``transformers`` format."""
        self._check_fitted().save(folder)

    @classmethod
    def from_saved(
        cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]], folder: Path | None = None
    ) -> Self:
        """Restore a saved ranker from its parameters and the folder with its model."""
        require_transformer_packages(cls.__name__)
        ranker = cls.from_saved_parameters(parameters["parameters"])
        if folder is None or arrays:
            raise InputError("The model files of the cross-encoder are missing.")
        from carya.transformer.reranking.pair_model import PairModel

        ranker._model = PairModel.load_saved(folder, max_length=ranker.max_length)
        return ranker

    def use_one_thread(self) -> None:
        """Limit PyTorch to one thread in this process, for callers that run several queries in parallel."""
        import torch

        torch.set_num_threads(1)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def _check_fitted(self) -> PairModel:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("This CrossEncoderRanker is not fitted yet. Call fit first.")
        return self._model


def _check_texts(pairs: Pairs) -> PairTexts:
    if pairs.texts is None:
        raise InputError(
            "CrossEncoderRanker requires the texts of the pairs, but the pairs contain only features. Use it in "
            "carya.TextReranker."
        )
    return pairs.texts
