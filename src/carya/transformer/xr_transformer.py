"""XR-Transformer (Zhang et al. 2021): one encoder fine-tuned down the levels of a label tree, then linear rankers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress
from carya.indexing import Indexer
from carya.transformer.base import TransformerRanker
from carya.transformer.inputs import Texts
from carya.transformer.rankers.rankers import by_neighbours, threads_of
from carya.trees.label_tree import LabelTree

if TYPE_CHECKING:
    from carya.transformer.training.fine_tuning import Matcher

KIND = "xr-transformer"


@dataclass(eq=False, repr=False, kw_only=True)
class XRTransformer(TransformerRanker):
    """Ranks labels of texts by what an encoder reads, and by their terms.

    The encoder learns to find clusters of labels, then smaller ones, then labels: easy tasks first, on short pieces of
    the texts. Then the label tree is built anew on TF-IDF and the encoder's vectors side by side, and a linear ranker
    trained on them. The model's answer is a mixture of the encoder's own head, that ranker, one on TF-IDF alone and the
    votes of near texts, learned from dev texts. With `label_texts` the encoder learns from the names of labels too.

    It needs ``pip install 'carya[transformer]'``; docs/transformers.md is the guide.

    Examples
    --------
    >>> import carya
    >>> model = carya.XRTransformer(encoder="sentence-transformers/all-MiniLM-L6-v2", epochs=(1, 2, 10))
    >>> model
    XRTransformer(epochs=(1, 2, 10))

    ``model.fit(texts, labels)`` trains it, on a GPU if there is one; ``model.suggest(text)``, ``predict``, ``save`` and
    :func:`carya.load` are those of :class:`carya.TextRanker`, and ``model.encode(texts)`` gives the learned vectors.
    ``XRTransformer(fine_tune=False)`` leaves the encoder as it is, which a CPU can do.
    """

    kind: ClassVar[str] = KIND

    def _train(
        self, data: Texts, X: sp.csr_array, stop_after: Sequence[int] | None, progress: Progress, purpose: str
    ) -> tuple[Matcher, dict[str, Any]]:
        from carya.transformer.training.fine_tuning import fine_tuned, frozen

        features, labels = validation.training_pair(X, data.labels.to_scipy())
        models: dict[str, Any] = {}
        if self.fine_tune:
            tree = matcher_tree(self, features, labels, progress)
            levels = range(max(1, tree.depth - _stages(self.epochs) + 1), tree.depth + 1)
            matcher = fine_tuned(
                self,
                data.texts,
                labels,
                tree,
                levels,
                dev=data.dev if self.patience is not None else None,
                stop_after=stop_after,
                about=data.about,
                progress=progress,
                purpose=purpose,
            )
            models["head"] = matcher.head
        else:
            matcher = frozen(self, data.texts, progress=progress)
        both = Features.of(features.sparse, matcher.vectors * np.float32(self.vector_weight))
        costs = {"relevance": "induce"} if self.cost_sensitive else {}
        models["concatenated"] = self.make_ranker(**costs).fit_checked(both, labels)
        models["linear"] = self.make_ranker(**costs).fit_checked(features, labels)
        if self.neighbours:
            models["neighbours"] = by_neighbours(
                matcher.vectors, labels, neighbours=self.neighbours, n_jobs=self.n_jobs
            )
        if matcher.about is not None:
            models["label_texts"] = matcher.about
        return matcher, models


def _stages(epochs: int | Sequence[int]) -> int:
    """How many levels are trained: one for each number of epochs, three if there is one number for all."""
    return 3 if isinstance(epochs, int) else len(epochs)


def matcher_tree(settings: TransformerRanker, features: Features, labels: Csr, progress: Progress) -> LabelTree:
    """The tree that the encoder is trained on, from TF-IDF alone."""
    indexer = Indexer(
        branching=settings.matcher_branching,
        max_leaf=settings.matcher_leaf,
        max_depth=None,
        representation="pifa",
        alpha=0.5,
        index_features=384,
        clustering="spherical",
        balanced=True,
        bisect=True,
        seed=settings.seed,
    )
    return indexer.build(features, labels.with_values(1), None, threads=threads_of(settings.n_jobs), progress=progress)
