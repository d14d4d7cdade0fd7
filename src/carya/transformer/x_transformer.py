"""X-Transformer (section 4 of the paper; Chang et al., 2020): an encoder selects clusters, and rankers rank labels.

Unlike XR-Transformer, the model is not recursive: the encoder is trained once, on the leaf clusters of the tree, and
its head selects the clusters for a text. Linear rankers on TF-IDF features and embeddings rank the labels in each
selected cluster. The rankers of a cluster are trained on the texts that have at least one of its labels (teacher) and
on the texts for which the head selects the cluster (matcher).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from carya import _core
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress
from carya.core.rules import expand_per_layer, to_python_scalar
from carya.errors import InputError
from carya.matching import level_targets, union_shortlists
from carya.models.xr_linear.model import XRLinear
from carya.ranking import LayerProblem
from carya.text.combined.text_ensemble import TextEnsemble
from carya.transformer.base import TransformerRanker
from carya.transformer.inputs import TrainingRun
from carya.transformer.rankers.rankers import RankerModel, append_embeddings
from carya.transformer.xr_transformer import build_matcher_tree, checkpoints_of_rankers, linear_data
from carya.trees.beam_search import BeamSearcher
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

if TYPE_CHECKING:
    from carya.transformer.training.fine_tuning import Matcher

KIND = "x-transformer"


@dataclass(eq=False, repr=False, kw_only=True)
class XTransformer(TransformerRanker):
    """X-Transformer model: an encoder selects clusters of labels, and linear rankers rank the labels in the clusters.

    The methods and parameters are the same as in :class:`carya.XRTransformer`, which reaches the same precision with
    less training. If `epochs` contains several numbers, only the last one is used.

    Examples
    --------
    >>> import carya
    >>> model = carya.XTransformer(encoder="google-bert/bert-base-uncased", epochs=5)
    >>> encoders = ["google-bert/bert-base-uncased", "FacebookAI/roberta-base"]
    >>> ensemble = carya.XTransformer.recipe(encoders, n_trees=3)
    >>> len(ensemble.members)
    6
    """

    kind: ClassVar[str] = KIND
    paper_encoders: ClassVar[Sequence[str]] = (
        "google-bert/bert-large-cased-whole-word-masking",
        "FacebookAI/roberta-large",
        "xlnet/xlnet-large-cased",
    )

    @classmethod
    def recipe(cls, encoders: Sequence[str] | None = None, *, n_trees: int = 3, **parameters: Any) -> TextEnsemble:
        """Return the unfitted ensemble from the paper: three encoders with three label trees each.

        See :meth:`carya.XRTransformer.recipe`.
        """
        return super().recipe(encoders, n_trees=n_trees, **parameters)

    def _train(self, run: TrainingRun) -> tuple[Matcher, dict[str, RankerModel]]:
        from carya.transformer.training.fine_tuning import fine_tune

        if not self.fine_tune:
            raise InputError("fine_tune must be True for XTransformer, got False. Use XRTransformer instead.")
        features, labels = run.features, run.data.labels
        tree = build_matcher_tree(self, run)
        if tree.depth < 2:
            if self.tree is not None:
                raise InputError("tree must have at least one level of clusters above the labels for XTransformer.")
            raise InputError(
                f"matcher_leaf_size must be small enough for at least two clusters, but all {labels.cols} labels fit "
                "into one. Decrease it, or use XRTransformer."
            )
        epochs = self.epochs[-1] if isinstance(self.epochs, Sequence) else self.epochs
        matcher = fine_tune(self.clone(epochs=epochs, head_mode="all"), run, tree, [tree.depth - 1])
        assert matcher.head is not None  # set by fine-tuning
        weight = np.float32(self.embedding_weight)
        concatenated = append_embeddings(features, matcher.embeddings, self.embedding_weight)
        head = matcher.head.layers_[0]
        # The head ignores user-supplied dense features, so their weights are 0; the division compensates for the
        # scaling of the embeddings.
        no_weights = np.zeros((len(head.dense), features.widths[1]), np.float32)
        dense = np.ascontiguousarray(np.hstack([no_weights, head.dense / weight]))
        head = dataclasses.replace(head, dense=dense)
        models: dict[str, RankerModel] = {
            "concatenated": train_cluster_rankers(self.make_ranker(), head, tree, concatenated, labels, run.progress),
            "linear": self.make_ranker(**checkpoints_of_rankers(self, run)).fit_data(linear_data(self, run)),
        }
        return matcher, models


def train_cluster_rankers(
    ranker: XRLinear, head: Layer, tree: LabelTree, features: Features, labels: Csr, progress: Progress
) -> XRLinear:
    """Train a two-layer model: the given head selects clusters, and linear rankers rank the labels in the clusters.

    Parameters
    ----------
    ranker : XRLinear
        An unfitted model with the parameters for the rankers.
    head : Layer
        The layer that ranks the leaf clusters of the tree, using only dense features.
    """
    two_levels = LabelTree([np.zeros(tree.level_sizes[-2], np.int32), tree.parents[-1]])
    threads = _core.thread_count(ranker.n_jobs)
    no_weights = Csr.of(
        np.zeros(features.widths[0] + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), head.order.size
    )
    matcher = dataclasses.replace(head, weights=Weights.pack(no_weights, head.chunks, "float32"))
    with progress.stage("match") as report:
        matched = BeamSearcher([matcher]).shortlist(
            features, beam_width=ranker.effective_training_beam_width, threads=threads, report=report
        )
    targets = level_targets(labels, two_levels)
    order, chunks = two_levels.children(2)
    transform = Transform.from_name(expand_per_layer(ranker.effective_transform, 2, "transform")[1])
    shortlist = union_shortlists([targets[0], matched]).transpose()
    problem = LayerProblem(2, to_python_scalar(ranker.seed), targets[1], shortlist, order, chunks, transform)
    solver = dataclasses.replace(ranker.linear_solver(), use_target_costs=False)
    with progress.stage("train rankers") as report:
        layers = [matcher, *solver.train(features, [problem], threads=threads, report=report)]
    trained = TrainedTree(two_levels, layers, features.widths, features.sparse.values.size / features.rows)
    parameters = ranker.get_params(deep=False) | {"tree": None}
    return XRLinear.from_trained_tree(trained, **parameters)
