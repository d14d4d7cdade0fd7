"""XR-Transformer (Zhang et al., 2021): an encoder fine-tuned level by level along a label tree, and linear rankers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from carya import _core
from carya.errors import InputError
from carya.indexing import Indexer
from carya.models.training_data import TrainingData
from carya.transformer.base import TransformerRanker
from carya.transformer.inputs import TrainingRun
from carya.transformer.rankers.rankers import RankerModel, append_embeddings, neighbor_ranker
from carya.transformer.settings import TransformerSettings
from carya.trees.label_tree import LabelTree

if TYPE_CHECKING:
    from carya.transformer.training.fine_tuning import Matcher

KIND = "xr-transformer"

_DEFAULT_LEVELS = 3  # number of trained levels if `epochs` is a single number


@dataclass(eq=False, repr=False, kw_only=True)
class XRTransformer(TransformerRanker):
    """XR-Transformer model: ranks labels with a fine-tuned encoder and with TF-IDF features.

    The encoder is trained to predict large clusters of labels, then smaller clusters, and finally labels, so training
    starts with easy tasks on truncated texts. The label tree is then rebuilt from TF-IDF features concatenated with
    embeddings, and a linear ranker is trained on these features. The model combines the encoder's head, this ranker, a
    linear ranker on TF-IDF features alone, and the votes of similar texts. The combination is learned from validation
    texts. If `fit` is called with `label_texts`, the encoder is also trained on the descriptions of the labels.

    Requires ``pip install 'carya[transformer]'``. See docs/transformers.md.

    Examples
    --------
    >>> import carya
    >>> model = carya.XRTransformer(encoder="sentence-transformers/all-MiniLM-L6-v2", epochs=(1, 2, 10))
    >>> model
    XRTransformer(epochs=(1, 2, 10))

    ``model.fit(texts, labels)`` trains the model, on a GPU if available. ``suggest``, ``predict``, ``save`` and
    :func:`carya.load` work as they do for :class:`carya.TextRanker`. ``model.encode(texts)`` returns the embeddings.
    ``XRTransformer(fine_tune=False)`` uses the encoder without fine-tuning, which is feasible on a CPU.
    """

    kind: ClassVar[str] = KIND
    paper_encoders: ClassVar[Sequence[str]] = (
        "google-bert/bert-base-uncased",
        "FacebookAI/roberta-base",
        "xlnet/xlnet-base-cased",
    )

    def _train(self, run: TrainingRun) -> tuple[Matcher, dict[str, RankerModel]]:
        from carya.transformer.training.fine_tuning import fine_tune, use_frozen

        labels = run.data.labels
        models: dict[str, RankerModel] = {}
        if self.fine_tune:
            tree = build_matcher_tree(self, run)
            n_levels = len(self.epochs) if isinstance(self.epochs, Sequence) else _DEFAULT_LEVELS
            matcher = fine_tune(self, run, tree, range(max(1, tree.depth - n_levels + 1), tree.depth + 1))
            assert matcher.head is not None  # set by fine-tuning
            models["head"] = matcher.head
        else:
            matcher = use_frozen(self, run)
        changes: dict[str, Any] = {"relevance": "induce"} if self.cost_sensitive else {}
        changes |= checkpoints_of_rankers(self, run)
        models["concatenated"] = self.make_ranker(**changes).fit_data(concatenated_data(self, run, matcher))
        models["linear"] = self.make_ranker(**changes).fit_data(linear_data(self, run))
        if self.n_neighbors:
            models["neighbors"] = neighbor_ranker(
                matcher.embeddings, labels, n_neighbors=self.n_neighbors, n_jobs=self.n_jobs
            )
        if matcher.label_texts is not None:
            models["label_texts"] = matcher.label_texts
        return matcher, models


def checkpoints_of_rankers(settings: TransformerSettings, run: TrainingRun) -> dict[str, Any]:
    """Return the parameter `checkpoint_dir` of the linear rankers, which they require only if an engine trains them."""
    if run.engine is None or settings.checkpoint_dir is None:
        return {}
    return {"checkpoint_dir": str(Path(settings.checkpoint_dir) / "rankers")}


def linear_data(settings: TransformerSettings, run: TrainingRun) -> TrainingData:
    """Return the training data for the linear ranker without embeddings."""
    uses_label_features = settings.make_ranker().uses_label_features
    label_features = run.label_features.to_input() if uses_label_features and run.label_features is not None else None
    return TrainingData(run.features, run.data.labels, label_features, engine=run.engine)


def concatenated_data(settings: TransformerSettings, run: TrainingRun, matcher: Matcher) -> TrainingData:
    """Return the training data for the linear ranker that uses features and embeddings.

    If the label features have the same columns as the features, the embeddings of the label texts are appended.
    """
    weight = settings.embedding_weight
    data = linear_data(settings, run)
    label_features, own = data.label_features, run.label_features
    if label_features is not None and own is not None and own.widths == run.features.widths:
        embeddings = matcher.label_embeddings(run.data.label_texts, settings.max_length, run.data.labels.cols)
        label_features = append_embeddings(own, embeddings, weight).to_input()
    features = append_embeddings(run.features, matcher.embeddings, weight)
    return TrainingData(features, data.labels, label_features, engine=run.engine)


def build_matcher_tree(settings: TransformerSettings, run: TrainingRun) -> LabelTree:
    """Return the tree on which the encoder is trained: the user-supplied tree, or a tree built by clustering."""
    n_labels = run.data.labels.cols
    if settings.tree is not None:
        if settings.tree.n_labels != n_labels:
            raise InputError(f"The tree has {settings.tree.n_labels} labels, but the training data has {n_labels}.")
        if settings.tree.leaf_labels is not None:
            raise InputError("tree must have one leaf per label to train an encoder, but its clusters overlap.")
        return settings.tree
    indexer = Indexer(
        branching=settings.matcher_branching,
        max_leaf_size=settings.matcher_leaf_size,
        max_depth=None,
        representation=settings.matcher_representation,
        alpha=0.5,
        index_features=192,
        clustering="spherical",
        balanced=True,
        bisect=True,
        seed=settings.seed,
    )
    threads = _core.thread_count(settings.n_jobs)
    label_features = run.label_features if "lf" in settings.matcher_representation else None
    return indexer.build(
        run.features,
        run.data.labels.with_values(1),
        None if label_features is None else label_features.to_input(),
        threads=threads,
        progress=run.progress,
    )
