"""Parameters of X-Transformer and XR-Transformer. This module can be imported without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from carya.core.extras import require
from carya.core.parameters import Parameterized, parameter
from carya.core.rules import Choice, Either, Instance, Integer, PerLayer, Real
from carya.models.xr_linear.model import XRLinear
from carya.text.tfidf import Tfidf
from carya.trees.label_tree import LabelTree

#: Loss functions of the heads, defined in :mod:`carya.transformer.training.losses`.
LOSSES = ("bce", "squared-hinge", "hinge", "softmax", "decoupled-softmax")
#: Methods for pooling token embeddings into a text embedding.
POOLINGS = ("first", "mean", "last")

_PATH = Either(Instance((str,), "a path"), Choice(None))
_PARTS = ("vectorizer", "ranker", "tree")
_MACHINE_SETTINGS = ("checkpoint_dir", "cache_dir", "device", "verbose")
_NOT_FOR_FINE_TUNING = (
    *_MACHINE_SETTINGS,
    "checkpoint_steps",
    "compile",
    "n_jobs",
    "validation_fraction",
    "refit",
    "match_label_texts",
)


@dataclass(eq=False, repr=False, kw_only=True)
class TransformerSettings(Parameterized):
    """Parameters shared by X-Transformer and XR-Transformer."""

    foreign_names: ClassVar[Mapping[str, str]] = {
        "model_shortcut": "encoder",
        "init_model_dir": "encoder",
        "truncate_length": "max_length",
        "num_train_epochs": "epochs",
        "batch_size": "batch_tokens",
        "warmup_steps": "warmup_ratio",
        "loss_function": "head_loss",
        "negative_sampling": "head_negatives",
        "bootstrap_method": "bootstrap",
        "cost_sensitive_ranker": "cost_sensitive",
        "hidden_dropout_prob": "head_dropout",
        "max_no_improve_cnt": "patience",
        "save_steps": "checkpoint_steps",
        "threads": "n_jobs",
    }

    # Encoder
    encoder: str = parameter(
        "sentence-transformers/all-MiniLM-L6-v2",
        Instance((str,), "a folder or the name of a model on the Hugging Face Hub"),
        "text encoder: the folder of a model that transformers.AutoModel can load, or its name on the Hugging Face Hub",
        group="transformer",
    )
    pooling: str = parameter(
        "auto",
        Choice("auto", *POOLINGS),
        "pooling of the token embeddings: first (the first token), mean (the mean of all tokens), last (the last "
        "token), or auto (as configured in the encoder's folder, or the usual method for its architecture)",
        group="transformer",
    )
    pooled_layers: int = parameter(
        1, Integer(1), "number of final encoder layers whose embeddings are concatenated", group="transformer"
    )
    max_length: int = parameter(
        128, Integer(8), "maximum number of tokens per text; longer texts are truncated", group="transformer"
    )
    fine_tune: bool = parameter(
        True,
        Choice(True, False),
        "fine-tune the encoder; otherwise, the embeddings of the pretrained encoder are used in addition to TF-IDF",
        group="transformer",
    )

    # Curriculum
    epochs: int | Sequence[int] = parameter(
        (2, 3, 10),
        PerLayer(Integer(0)),
        "number of epochs at each trained tree level, from coarse to fine, ending with the label level; a single "
        "number applies to the last three levels",
        group="transformer",
    )
    progressive_length: bool = parameter(
        True,
        Choice(True, False),
        "train upper levels on shorter texts: the maximum length is halved at each level above the last, but not below "
        "32 tokens",
        group="transformer",
    )
    tree: LabelTree | None = parameter(
        None,
        Either(Instance(LabelTree, "a LabelTree"), Choice(None)),
        "label tree for training the encoder and the linear rankers; None means trees built by clustering",
        group="transformer",
    )
    matcher_representation: str = parameter(
        "pifa",
        Choice("pifa", "pii", "lf", "pifa+lf", "pifa-concat-lf", "graph", "spectral"),
        "label representation for the tree that the encoder is trained on; the values are those of XRLinear's "
        "representation, and values with lf require label_texts or label_features",
        group="transformer",
    )
    matcher_branching: int = parameter(
        16,
        Integer(2),
        "maximum number of children per cluster in the tree that the encoder is trained on",
        group="transformer",
    )
    matcher_leaf_size: int = parameter(
        16,
        Integer(1),
        "maximum number of labels per leaf cluster in the tree that the encoder is trained on",
        group="transformer",
    )

    # Heads
    head_loss: str = parameter("bce", Choice(*LOSSES), "loss function for the heads", group="transformer")
    head_mode: str = parameter(
        "auto",
        Choice("auto", "all", "shortlist"),
        "nodes scored for each text during training: all (all nodes of the level), shortlist (the children of "
        "head_beam_width clusters), or auto (all if the weights of the level fit into memory)",
        group="transformer",
    )
    head_negatives: str = parameter(
        "both",
        Choice("both", "teacher", "matcher"),
        "negatives in a shortlist: teacher (siblings of the positive nodes), matcher (children of the clusters that "
        "the heads of the levels above rank highest), or both",
        group="transformer",
    )
    head_beam_width: int = parameter(
        20, Integer(1), "number of clusters per shortlist, and the beam width of the trained heads", group="transformer"
    )
    bootstrap: str = parameter(
        "parent",
        Choice("parent", "linear", "random"),
        "initial weights of a head: parent (the weights of the parent clusters), linear (the weights of linear rankers "
        "trained on the current embeddings), or random",
        group="transformer",
    )
    cost_sensitive: bool = parameter(
        False,
        Choice(True, False),
        "use the label values as misclassification costs; the cost of a cluster is the sum of its children's costs",
        group="transformer",
    )
    head_dropout: float = parameter(
        0.1, Real(0, high=0.9), "dropout probability applied to the embeddings before the heads", group="transformer"
    )

    # Label texts
    label_text_repeats: int = parameter(
        2,
        Integer(0),
        "number of times per epoch that each label text is used as a training text with only this label",
        group="transformer",
    )
    label_text_weight: float = parameter(
        4.0,
        Real(0),
        "weight of the cosine similarity between text and label text in the scores of the head",
        group="transformer",
    )
    match_label_texts: bool = parameter(
        True,
        Choice(True, False),
        "compare the character n-grams of texts and label texts, and use the similarities in the learned mixture, to "
        "find labels that are mentioned in a text",
        group="transformer",
    )
    contrastive_epochs: int = parameter(
        0,
        Integer(0),
        "number of epochs in which the encoder is trained to distinguish the label texts of a text from those of other "
        "texts in the batch, before the heads are trained; requires label_texts",
        group="transformer",
    )
    contrastive_batch_size: int = parameter(
        256,
        Integer(2),
        "number of texts per batch in the contrastive epochs; the batches contain texts with similar labels, which are "
        "hard negatives for each other",
        group="transformer",
    )

    # Optimizer
    learning_rate: float = parameter(
        2e-4, Real(0, open_low=True), "peak learning rate of the encoder", group="transformer"
    )
    head_learning_rate: float = parameter(
        1e-3, Real(0, open_low=True), "peak learning rate of the heads", group="transformer"
    )
    weight_decay: float = parameter(
        0.01, Real(0), "weight decay for the encoder's weight matrices", group="transformer"
    )
    warmup_ratio: float = parameter(
        0.1,
        Real(0, open_low=True, high=0.9),
        "fraction of the training steps at each level during which the learning rate increases; afterwards, it "
        "decreases linearly",
        group="transformer",
    )
    batch_tokens: int = parameter(8192, Integer(1), "number of tokens per batch", group="transformer")
    gradient_accumulation_steps: int = parameter(
        1,
        Integer(1),
        "number of batches whose gradients are accumulated before an optimizer step",
        group="transformer",
    )
    gradient_checkpointing: bool = parameter(
        False,
        Choice(True, False),
        "recompute the encoder's activations in the backward pass instead of storing them, to save memory",
        group="transformer",
    )
    patience: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "number of epochs without improvement on the validation texts after which the training of a level stops; None "
        "disables early stopping",
        group="transformer",
    )

    # Rankers
    use_tfidf: bool = parameter(
        True,
        Choice(True, False),
        "use TF-IDF features of the texts; otherwise, only the features passed to fit are used",
        group="transformer",
    )
    vectorizer: Tfidf | None = parameter(
        None,
        Either(Instance(Tfidf, "a Tfidf"), Choice(None)),
        "the vectorizer; None means Tfidf()",
        group="transformer",
    )
    ranker: XRLinear | None = parameter(
        None,
        Either(Instance(XRLinear, "an XRLinear"), Choice(None)),
        "the parameters of both linear rankers (on TF-IDF with embeddings, and on TF-IDF alone); None means XRLinear()",
        group="transformer",
    )
    embedding_weight: float = parameter(
        0.5,
        Real(0, open_low=True),
        "norm of the embeddings when they are concatenated with TF-IDF features of norm 1; the default is below 1 "
        "because the embeddings overfit the training texts",
        group="transformer",
    )
    n_neighbors: int = parameter(
        50,
        Integer(0),
        "number of training texts with the nearest embeddings, which vote for their labels; 0 disables this ranker",
        group="transformer",
    )
    mixture: str = parameter(
        "auto",
        Choice("auto", "learned", "weights"),
        "combination of the rankers: learned (a small neural network trained on the validation texts), weights (a "
        "weighted sum), or auto (the better of the two; weights if there are fewer than 500 validation texts)",
        group="transformer",
    )
    validation_fraction: float = parameter(
        0.1,
        Real(0, high=0.9),
        "fraction of held-out texts for validation if validation_data is not passed to fit; 0 disables validation",
        group="transformer",
    )
    refit: bool = parameter(
        True,
        Choice(True, False),
        "train again on all texts, with the number of epochs and the combination of rankers that were chosen on the "
        "validation texts",
        group="transformer",
    )

    # Machine
    checkpoint_dir: str | None = parameter(
        None, _PATH, "folder for training checkpoints; fit resumes from the latest checkpoint", group="transformer"
    )
    checkpoint_steps: int = parameter(
        500, Integer(1), "number of optimizer steps between checkpoints", group="transformer"
    )
    cache_dir: str | None = parameter(
        None, _PATH, "cache folder for the embeddings of encoders that are not fine-tuned", group="transformer"
    )
    device: str = parameter(
        "auto",
        Instance((str,), "the name of a PyTorch device"),
        "PyTorch device: auto, cpu, cuda, cuda:1, …; auto means the GPU if one is available",
        group="transformer",
    )
    compile: bool | None = parameter(
        None,
        Choice(None, True, False),
        "compile the training steps on a GPU; None compiles them only for levels with more than 50 million training "
        "tokens",
        group="transformer",
    )
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "number of threads for the rankers; -1 means all cores")
    seed: int = parameter(
        0, Integer(0, 2**31 - 1), "random seed; on a CPU, the same seed gives the same model", group="transformer"
    )
    verbose: bool = parameter(False, Choice(True, False), "show progress on standard error")

    def check_parameters(self) -> None:
        """Raise ParameterError if a parameter of the model, the vectorizer or the ranker is invalid."""
        super().check_parameters()
        for part in (self.vectorizer, self.ranker):
            if part is not None:
                part.check_parameters()

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if a package for training transformers or for the vectorizer is not installed."""
        require_transformer_packages(type(self).__name__)
        if self.vectorizer is not None:
            self.vectorizer.check_dependencies()

    def make_vectorizer(self) -> Tfidf:
        """Return an unfitted vectorizer."""
        return Tfidf(n_jobs=self.n_jobs) if self.vectorizer is None else self.vectorizer.clone()

    def make_ranker(self, **changes: Any) -> XRLinear:
        """Return an unfitted linear ranker; `changes` override its parameters."""
        ranker = XRLinear(n_jobs=self.n_jobs, seed=self.seed) if self.ranker is None else self.ranker
        if self.tree is not None and ranker.tree is None:
            changes = {"tree": self.tree} | changes
        return ranker.clone(**changes)

    @property
    def needs_label_features(self) -> bool:
        """Whether a label tree is built from label features."""
        matcher = self.fine_tune and self.tree is None and "lf" in self.matcher_representation
        return matcher or self.make_ranker().needs_label_features

    def parameters_to_save(self) -> dict[str, Any]:
        """Return the parameters to save: all except machine-specific settings and separately saved components."""
        return self._without(*_PARTS, *_MACHINE_SETTINGS)

    def fine_tuning_parameters(self) -> dict[str, Any]:
        """Return the parameters that identify a fine-tuning run; changing one of them invalidates the checkpoints."""
        return self._without(*_PARTS, *_NOT_FOR_FINE_TUNING)

    def _without(self, *excluded: str) -> dict[str, Any]:
        return {name: value for name, value in self.get_params(deep=False).items() if name not in excluded}


def require_transformer_packages(purpose: str) -> None:
    """Raise MissingExtraError if a package from the ``transformer`` extra is not installed."""
    for package in ("torch", "transformers", "safetensors"):
        require(package, extra="transformer", purpose=purpose)
