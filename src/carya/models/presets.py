"""Presets: settings of the systems compared in the paper, and recommended settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from carya.core.parameters import Parameterized, did_you_mean
from carya.errors import ParameterError
from carya.models.ensemble.model import BEAM_SHARE, Ensemble
from carya.models.xr_linear.model import XRLinear


@dataclass(frozen=True)
class Preset:
    """A named configuration: a published system or recommended settings.

    Attributes
    ----------
    description : str
        The source and the characteristics of the configuration.
    settings : dict
        Parameters of the trees, or of the nearest-neighbor model.
    trees : int
        The number of trees.
    kind : {"trees", "neighbors", "reranked"}
    reranking : dict
        Parameters of the Reranked model.
    boosting : dict or None
        Parameters of the BoostedRanker; None means the default reranker.
    """

    description: str
    settings: dict[str, Any] = field(default_factory=dict)
    trees: int = 1
    kind: str = "trees"
    reranking: dict[str, Any] = field(default_factory=dict)
    boosting: dict[str, Any] | None = None


#: The recommended presets, by purpose.
ADVICE = (
    ("no preset", "one XRLinear tree: start here"),
    ("fast, small", "faster training or smaller models, with precision up to one percentage point lower"),
    ("tail", "higher precision, especially for rare labels, in about the same time; pass label names if possible"),
    (
        "balanced",
        "most of the gain of accurate in a fraction of the time; ranking takes less than a millisecond per row",
    ),
    (
        "accurate",
        "the highest precision without a GPU; ranking takes milliseconds per row; with a GPU, use xr-transformer",
    ),
    ("slice, annexml", "few rows per label, or dense embeddings"),
    ("parabel, bonsai, dismec, plt, xr-linear", "published systems, for comparison"),
)

_HINGE = {"negatives": "teacher", "transform": "l2-hinge"}
_BEAM_WIDTH = round(10 / BEAM_SHARE)  # gives each tree of an ensemble a beam width of 10, as in these systems

#: All presets, by name.
PRESETS: dict[str, Preset] = {
    "parabel": Preset(
        "Prabhu et al. 2018: three balanced binary trees built from PIFA, squared hinge loss with sibling negatives",
        {"branching": 2, "max_leaf_size": 100, "beam_width": _BEAM_WIDTH, **_HINGE},
        trees=3,
    ),
    "bonsai": Preset(
        "Khandagale et al. 2020: three shallow trees with unbalanced splits into 100 clusters",
        {
            "branching": 100,
            "max_leaf_size": 100,
            "max_depth": 3,
            "balanced": False,
            "bisect": False,
            "beam_width": _BEAM_WIDTH,
            **_HINGE,
        },
        trees=3,
    ),
    "dismec": Preset(
        "Babbar and Schölkopf 2017: one-versus-rest without a tree; small weights are dropped",
        {"max_depth": 1, "threshold": 0.01, "transform": "noop"},
    ),
    "plt": Preset(
        "Jasinska-Kobus et al. 2020, as in napkinXC: a probabilistic label tree with logistic loss",
        {
            "branching": 2,
            "max_leaf_size": 100,
            "loss": "logistic",
            "C": 10.0,
            "negatives": "teacher",
            "transform": "sigmoid",
        },
    ),
    "xr-linear": Preset(
        "Yu et al. 2022: three trees with B = 32, PIFA with all features, teacher negatives and a beam width of 10 "
        "per tree",
        {
            "branching": 32,
            "max_leaf_size": 100,
            "index_features": None,
            "negatives": "teacher",
            "transform": "l3-hinge",
            "beam_width": _BEAM_WIDTH,
        },
        trees=3,
    ),
    "slice": Preset(
        "Jain et al. 2019: the labels nearest to a query, each with a ranker trained on hard negatives",
        {"over": "labels"},
        kind="neighbors",
    ),
    "annexml": Preset(
        "based on Tagami 2017: the nearest training rows vote, and linear rankers order their labels",
        {"over": "rows"},
        kind="neighbors",
    ),
    "fast": Preset(
        "trains up to twice as fast as the default, with precision up to one percentage point lower",
        {"training_beam_width": 3, "transform": "l4-hinge", "tol": 0.01, "threshold": 0.07},
    ),
    "small": Preset("models half the size of the default", {"threshold": 0.2}),
    "tail": Preset(
        "rare labels have higher costs, and label names are added as training rows; usually higher precision than the "
        "default",
        {"tail_weight": 1.0, "label_row_weight": 1.0},
    ),
    "balanced": Preset(
        "candidates from a tree, nearest neighbors and label names, ordered by a few boosted trees (training requires "
        "lightgbm)",
        kind="reranked",
        reranking={"max_ranker_rows": 4000, "pool_size": 20, "n_neighbors": 20, "extra_candidates": 8},
        boosting={"n_estimators": 60, "max_leaf_nodes": 15, "negative_fraction": 0.5},
    ),
    "accurate": Preset(
        "candidates from trees, nearest neighbors and label names, ordered by boosted trees and a neural network "
        "(training requires lightgbm)",
        trees=2,
        kind="reranked",
        reranking={"n_rounds": 2, "max_ranker_rows": 20_000},
    ),
}


def preset(name: str, **changes: Any) -> Any:
    """Return an unfitted model with the settings of a preset.

    Parameters
    ----------
    name : str
        One of ``carya.models.presets.PRESETS``: parabel, bonsai, dismec, plt, xr-linear, slice, annexml, fast, small,
        tail, balanced, accurate.
    changes
        Parameters that override those of the preset: parameters of the trees or, for ``slice`` and ``annexml``, of the
        nearest-neighbor model.

    Examples
    --------
    >>> import carya
    >>> carya.preset("parabel", n_jobs=1).members.branching
    2
    >>> carya.preset("fast")
    XRLinear(training_beam_width=3, tol=0.01, threshold=0.07, transform='l4-hinge')
    """
    if name in ("x-transformer", "xr-transformer"):
        raise ParameterError(
            f"The preset {name!r} is an ensemble of text models. Use carya.XTransformer.recipe or "
            "carya.XRTransformer.recipe."
        )
    if name not in PRESETS:
        raise ParameterError(f"Unknown preset {name!r}.{did_you_mean(name, PRESETS)} Presets: {', '.join(PRESETS)}.")
    chosen = PRESETS[name]
    if chosen.kind == "neighbors":
        from carya.models.neighbors.model import NearestNeighbors

        return NearestNeighbors(**(chosen.settings | NearestNeighbors.resolve_names(changes)))
    changes = XRLinear.resolve_names(changes)
    trees = with_trees(XRLinear(**(chosen.settings | changes)), chosen.trees)
    if chosen.kind == "trees":
        return trees
    from carya.models.reranked.model import Reranked

    ranker = None
    if chosen.boosting is not None:
        from carya.ranking.boosted import BoostedRanker

        ranker = BoostedRanker(**chosen.boosting, n_jobs=changes.get("n_jobs", -1))
    return Reranked(trees, ranker, **chosen.reranking, **_general_parameters(Reranked, changes))


def with_trees(model: XRLinear, n_trees: int) -> XRLinear | Ensemble:
    """Return an ensemble of `n_trees` trees, or the model itself if `n_trees` is 1."""
    return model if n_trees == 1 else Ensemble(model, n_trees=n_trees, n_jobs=model.n_jobs)


def _general_parameters(cls: type[Parameterized], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes that also apply to the model that contains the trees."""
    general = {"n_jobs", "seed", "verbose"} & set(cls.parameter_names())
    return {name: value for name, value in changes.items() if name in general}
