"""X-Transformer (paper, section 4; Chang et al. 2020): an encoder finds clusters, linear rankers labels in them.

Not recursive: the encoder is trained once, on the last clusters of the tree, and its head brings texts to them. Labels
of a cluster are ranked by linear rankers on TF-IDF and vectors, trained on the texts of the cluster's labels (teacher)
and those the head brings there (matcher).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from carya import matching
from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress
from carya.core.rules import per_layer, plain
from carya.errors import InputError
from carya.models.ensemble.combine import combine_rankings, ranking_of
from carya.models.xr_linear.model import XRLinear
from carya.ranking import Problem
from carya.transformer.base import TransformerRanker
from carya.transformer.inputs import Texts
from carya.transformer.rankers.rankers import threads_of
from carya.transformer.xr_transformer import matcher_tree
from carya.trees.beam_search import Searcher
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import Learned
from carya.trees.transforms import Transform

if TYPE_CHECKING:
    from carya.transformer.training.fine_tuning import Matcher

KIND = "x-transformer"


@dataclass(eq=False, repr=False, kw_only=True)
class XTransformer(TransformerRanker):
    """Ranks labels of texts: an encoder finds clusters of labels, linear rankers find labels in them.

    The same verbs and parameters as :class:`carya.XRTransformer`, which is quicker to train to the same precision;
    of `epochs` the last counts.

    Examples
    --------
    >>> import carya
    >>> model = carya.XTransformer(encoder="google-bert/bert-base-uncased", epochs=5)
    >>> nine = carya.XTransformer.recipe(["google-bert/bert-base-uncased", "FacebookAI/roberta-base"], trees=3)
    >>> len(nine)
    6
    """

    kind: ClassVar[str] = KIND

    @classmethod
    def recipe(cls, encoders: Sequence[str], *, trees: int = 3, **parameters: Any) -> list[XTransformer]:
        """The models of the paper's ensemble: each encoder with each of some trees; three and three are its nine.

        The trees differ by their seeds. Fit each, and let :func:`together` ask them.
        """
        seed = parameters.pop("seed", 0)
        return [cls(encoder=encoder, seed=seed + tree, **parameters) for encoder in encoders for tree in range(trees)]

    def _train(
        self, data: Texts, X: sp.csr_array, stop_after: Sequence[int] | None, progress: Progress, purpose: str
    ) -> tuple[Matcher, dict[str, Any]]:
        from carya.transformer.training.fine_tuning import fine_tuned

        if not self.fine_tune:
            raise InputError("X-Transformer is its trained matcher: for an encoder as it is use XRTransformer")
        features, labels = validation.training_pair(X, data.labels.to_scipy())
        tree = matcher_tree(self, features, labels, progress)
        if tree.depth < 2:
            raise InputError(f"{labels.cols} labels need no clusters: lower matcher_leaf, or use XRTransformer")
        epochs = self.epochs if isinstance(self.epochs, int) else self.epochs[-1]
        last = type(self)(**(self.get_params(deep=False) | {"epochs": epochs, "head": "all"}))
        matcher = fine_tuned(
            last,
            data.texts,
            labels,
            tree,
            [tree.depth - 1],
            dev=data.dev if self.patience is not None else None,
            stop_after=stop_after,
            about=data.about,
            progress=progress,
            purpose=purpose,
        )
        weight = np.float32(self.vector_weight)
        both = Features.of(features.sparse, matcher.vectors * weight)
        assert matcher.head is not None  # it was trained
        head = matcher.head.layers_[0]
        head = dataclasses.replace(head, dense=head.dense / weight)  # as it is asked with vectors of that length
        models = {
            "concatenated": under_a_matcher(self.make_ranker(), head, tree, both, labels, progress),
            "linear": self.make_ranker().fit_checked(features, labels),
        }
        return matcher, models


def under_a_matcher(
    ranker: XRLinear, head: Layer, tree: LabelTree, features: Features, labels: Csr, progress: Progress
) -> XRLinear:
    """A model of two layers: clusters are found by a head that is given, labels by linear rankers.

    Parameters
    ----------
    ranker : XRLinear
        The parameters.
    head : Layer
        Ranks the last clusters of the tree, by dense features.
    """
    two = LabelTree([np.zeros(tree.level_sizes[-2], np.int32), tree.parents[-1]])
    threads = threads_of(ranker.n_jobs)
    nothing = Csr.of(
        np.zeros(features.widths[0] + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), head.order.size
    )
    above = dataclasses.replace(head, weights=Weights.pack(nothing, head.chunks, "float32"))
    with progress.stage("match") as report:
        found = Searcher([above]).shortlist(
            features, beam_width=ranker.beam_in_training, threads=threads, report=report
        )
    targets = matching.level_targets(labels, two)
    order, chunks = two.children(2)
    transform = Transform.named(per_layer(ranker.transform, 2, "transform")[1])
    shortlist = matching.union([targets[0], found]).transpose()
    problem = Problem(2, plain(ranker.seed), targets[1], shortlist, order, chunks, transform)
    solver = dataclasses.replace(ranker.rankers(), own_costs=False)
    with progress.stage("train the rankers") as report:
        layers = [above, *solver.train(features, [problem], threads=threads, report=report)]
    learned = Learned(two, layers, features.widths, features.sparse.values.size / features.rows)
    return XRLinear.from_learned(learned, **{k: v for k, v in ranker.get_params(deep=False).items() if k != "tree"})


def together(models: Sequence[TransformerRanker], texts: Iterable[str], *, top_k: int = 10) -> sp.csr_array:
    """What several fitted models rank together: the mean of their scores, texts x labels, best first."""
    if not models:
        raise InputError("models is empty: give at least one")
    if len({tuple(model.labels_) for model in models}) != 1:
        raise InputError("the models have different labels")
    count = validation.positive_int(top_k, "top_k")
    gathered = list(texts)
    found = [ranking_of(model.predict(gathered, top_k=max(50, count))) for model in models]
    indptr, labels, scores = combine_rankings(
        found, combine="mean", weights=np.ones(len(found), np.float32), top_k=count, threads=threads_of(-1)
    )
    return sp.csr_array((scores, labels, indptr), shape=(indptr.size - 1, len(models[0].labels_)))
