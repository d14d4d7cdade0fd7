"""What X-Transformer and XR-Transformer have in common: their parameters, and the parts that these describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from carya.core.parameters import Parameterised, parameter
from carya.core.rules import Choice, Either, Instance, Integer, PerLayer, Real
from carya.errors import InputError
from carya.models.xr_linear.model import XRLinear
from carya.text.tfidf import Tfidf
from carya.transformer.constants import LOSSES, POOLINGS

_PLACE = Either(Instance((str,), "a path"), Choice(None))


@dataclass(eq=False, repr=False, kw_only=True)
class TransformerParameters(Parameterised):
    """The parameters."""

    # The encoder.
    encoder: str = parameter(
        "sentence-transformers/all-MiniLM-L6-v2",
        Instance((str,), "a folder, or a name on the Hugging Face hub"),
        "what makes texts vectors: anything transformers.AutoModel can load",
    )
    pooling: str = parameter(
        "auto",
        Choice("auto", *POOLINGS),
        "which tokens a text's vector is taken from; auto goes by the encoder's folder and kind",
    )
    layers: int = parameter(1, Integer(1), "how many of the encoder's last layers make up a vector, side by side")
    max_length: int = parameter(128, Integer(8), "the most tokens of a text that are read")
    fine_tune: bool = parameter(
        True, Choice(True, False), "train the encoder; if not, its vectors are used as they are, beside TF-IDF"
    )

    # The curriculum.
    epochs: int | Sequence[int] = parameter(
        (2, 3, 10),
        PerLayer(Integer(0)),
        "passes over the texts at each trained level of the tree, coarse to fine; the last counts back from the labels",
    )
    shorter_first: bool = parameter(
        True, Choice(True, False), "read half as many tokens at each level above the last, down to 32"
    )
    matcher_branching: int = parameter(16, Integer(2), "the most children of a cluster in the tree that is trained on")
    matcher_leaf: int = parameter(16, Integer(1), "the most labels in a last cluster of that tree")

    # The heads.
    objective: str = parameter("bce", Choice(*LOSSES), "the loss of the heads")
    head: str = parameter(
        "auto",
        Choice("auto", "all", "shortlist"),
        "what a text is compared with: all nodes of a level, or a shortlist; auto is all while that fits in memory",
    )
    head_negatives: str = parameter(
        "both",
        Choice("both", "teacher", "matcher"),
        "what a shortlist has besides a text's own nodes: their siblings (teacher), or the children of what the heads "
        "above rank highest (matcher)",
    )
    head_beam: int = parameter(20, Integer(1), "how many clusters a shortlist is made of")
    bootstrap: str = parameter(
        "parent",
        Choice("parent", "linear", "random"),
        "how the head of a level begins: as that of its parents, as linear rankers solved for the vectors there are, "
        "or at random",
    )
    cost_sensitive: bool = parameter(
        False, Choice(True, False), "values of the labels are what it costs to miss them, summed up the tree"
    )
    dropout: float = parameter(
        0.1, Real(0, most=0.9), "the share of a vector's entries the heads do without in training"
    )

    # What is written about labels.
    label_text_passes: int = parameter(
        2, Integer(0), "how often an epoch reads what is written about each label, as a text that has this label alone"
    )
    label_text_weight: float = parameter(
        4.0,
        Real(0),
        "what the head's score gains if the vectors of a text and of a label's text are the same: this times their "
        "cosine",
    )

    # The optimiser.
    learning_rate: float = parameter(2e-4, Real(0, above=True), "of the encoder, at its highest")
    head_learning_rate: float = parameter(1e-3, Real(0, above=True), "of the heads")
    weight_decay: float = parameter(0.01, Real(0), "of the encoder's matrices")
    warmup: float = parameter(0.1, Real(0, above=True, most=0.9), "the share of training in which the rate rises")
    batch_tokens: int = parameter(8192, Integer(1), "tokens of a batch")
    accumulate: int = parameter(1, Integer(1), "batches whose gradients are added before a step")
    recompute: bool = parameter(
        False, Choice(True, False), "make the encoder's inner values again for the gradient, instead of keeping them"
    )
    patience: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "stop a level after so many epochs without a gain on dev texts"
    )

    # The rankers.
    vectorizer: Tfidf | None = parameter(
        None, Either(Instance(Tfidf, "a Tfidf"), Choice(None)), "how texts become sparse features; None is Tfidf()"
    )
    ranker: XRLinear | None = parameter(
        None,
        Either(Instance(XRLinear, "an XRLinear"), Choice(None)),
        "the ranker on TF-IDF and vectors, and the one on TF-IDF alone; None is XRLinear()",
    )
    vector_weight: float = parameter(
        0.5,
        Real(0, above=True),
        "the length of vectors beside TF-IDF of length 1; less, as those of training texts tell more than others' do",
    )
    neighbours: int = parameter(
        50, Integer(0), "training texts with the nearest vectors that vote for their labels; 0 is no such ranker"
    )
    mixture: str = parameter(
        "auto",
        Choice("auto", "learned", "weights"),
        "how rankers are mixed: by a small network learned from dev texts, or by weights; auto is what proves better, "
        "and weights for fewer than 500 texts",
    )
    held_out: float = parameter(
        0.1, Real(0, most=0.9), "the share of texts that rankers are mixed by, if fit is given no dev texts; 0 is none"
    )
    refit: bool = parameter(
        True,
        Choice(True, False),
        "after that, train again on all texts with the epochs and the mixture that were found",
    )

    # The work.
    checkpoints: str | None = parameter(None, _PLACE, "a folder for the state of training, which goes on from there")
    checkpoint_steps: int = parameter(500, Integer(1), "steps between two writings of that state")
    cache: str | None = parameter(None, _PLACE, "a folder for the vectors of encoders that are not trained")
    device: str = parameter(
        "auto", Instance((str,), "a device of PyTorch"), "where to train: auto, cpu, cuda, cuda:1, …"
    )
    compiled: bool | None = parameter(
        None, Choice(None, True, False), "compile training on a GPU; None is for levels of more than 50 million tokens"
    )
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "threads of the rankers; -1 is all cores")
    seed: int = parameter(0, Integer(0, 2**31 - 1), "same seed, same model, on the same CPU")
    verbose: bool = parameter(False, Choice(True, False), "progress bars on standard error")

    def make_vectorizer(self) -> Tfidf:
        """An unfitted vectorizer."""
        return Tfidf(n_jobs=self.n_jobs) if self.vectorizer is None else Tfidf(**self.vectorizer.get_params(deep=False))

    def make_ranker(self, **changes: Any) -> XRLinear:
        """An unfitted ranker."""
        given = (
            {"n_jobs": self.n_jobs, "seed": self.seed} if self.ranker is None else self.ranker.get_params(deep=False)
        )
        return XRLinear(**(given | changes))

    def plain_parameters(self) -> dict[str, Any]:
        """The parameters that are not parts."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("vectorizer", "ranker")}


def need_torch() -> None:
    """Raise InputError with the line that installs what transformers need."""
    try:
        import safetensors
        import torch
        import transformers

        del safetensors, torch, transformers
    except ImportError as error:
        raise InputError(f"transformer models need {error.name}; pip install 'carya[transformer]'") from None
