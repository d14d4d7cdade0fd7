"""Named settings: the systems that the paper compares, expressed in this framework, and our own choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from carya.core.parameters import Parameterised, hint
from carya.errors import ParameterError
from carya.models.ensemble.model import BEAM_SHARE, Ensemble
from carya.models.xr_linear.model import XRLinear


@dataclass(frozen=True)
class Preset:
    """A system by name.

    Attributes
    ----------
    about : str
        Whose it is, and what is typical of it.
    settings : dict
        Parameters of its trees, or of its neighbours.
    trees : int
        How many trees are one model.
    kind : {"trees", "neighbours", "reranked"}
    """

    about: str
    settings: dict[str, Any] = field(default_factory=dict)
    trees: int = 1
    kind: str = "trees"


_HINGE = {"negatives": "teacher", "transform": "l2-hinge"}
_BEAM = round(10 / BEAM_SHARE)  # each tree of an ensemble searches with a share of it, which is the systems' 10

#: All presets, by name.
PRESETS: dict[str, Preset] = {
    "parabel": Preset(
        "Prabhu et al. 2018: three balanced binary trees over PIFA, squared hinge among siblings",
        {"branching": 2, "max_leaf": 100, "beam_width": _BEAM, **_HINGE},
        trees=3,
    ),
    "bonsai": Preset(
        "Khandagale et al. 2020: three shallow trees of unbalanced splits in 100",
        {
            "branching": 100,
            "max_leaf": 100,
            "max_depth": 3,
            "balanced": False,
            "bisect": False,
            "beam_width": _BEAM,
            **_HINGE,
        },
        trees=3,
    ),
    "dismec": Preset(
        "Babbar and Schölkopf 2017: no tree, every label against all rows, small weights dropped",
        {"max_depth": 1, "threshold": 0.01, "transform": "noop"},
    ),
    "plt": Preset(
        "Jasinska-Kobus et al. 2020, as in napkinXC: a probabilistic label tree, logistic, probabilities multiplied",
        {
            "branching": 2,
            "max_leaf": 100,
            "loss": "logistic",
            "cost": 10.0,
            "negatives": "teacher",
            "transform": "sigmoid",
        },
    ),
    "xr-linear": Preset(
        "Yu et al. 2022: one tree with B = 32 and teacher negatives",
        {"branching": 32, "max_leaf": 100, "negatives": "teacher", "transform": "l3-hinge"},
    ),
    "slice": Preset(
        "Jain et al. 2019: labels near a query, each with a ranker trained on near misses",
        {"over": "labels"},
        kind="neighbours",
    ),
    "annexml": Preset(
        "after Tagami 2017: the nearest training rows vote, and linear rankers order what they say",
        {"over": "rows"},
        kind="neighbours",
    ),
    "fast": Preset(
        "trains up to twice as fast as the default, up to a point less precise",
        {"training_beam": 3, "transform": "l4-hinge", "tolerance": 0.01, "threshold": 0.07},
    ),
    "small": Preset("half the bytes of the default", {"threshold": 0.2}),
    "accurate": Preset(
        "trees, neighbours and names of labels find candidates, boosted trees and a network order them (needs "
        "lightgbm to train)",
        trees=2,
        kind="reranked",
    ),
}


def preset(name: str, **changes: Any) -> Any:
    """An untrained model with the settings of that name, and any changes to them.

    Parameters
    ----------
    name : str
        One of ``carya.models.presets.PRESETS``: parabel, bonsai, dismec, plt, xr-linear, slice, annexml, fast, small,
        accurate.
    changes
        Parameters of the trees (of the neighbours in ``slice`` and ``annexml``) that are to be other than the preset's.

    Examples
    --------
    >>> import carya
    >>> carya.preset("parabel", n_jobs=1).members.branching
    2
    >>> carya.preset("fast")
    XRLinear(training_beam=3, tolerance=0.01, threshold=0.07, transform='l4-hinge')
    """
    if name not in PRESETS:
        raise ParameterError(f"there is no preset {name!r}{hint(name, PRESETS)}; there are {', '.join(PRESETS)}")
    chosen = PRESETS[name]
    settings = chosen.settings | changes
    if chosen.kind == "neighbours":
        from carya.models.neighbors.model import NearestNeighbours

        return NearestNeighbours(**settings)
    trees = several(XRLinear(**settings), chosen.trees)
    if chosen.kind == "trees":
        return trees
    from carya.models.reranked.model import Reranked

    return Reranked(trees, rounds=2, ranker_rows=20_000, **_shared(Reranked, changes))


def several(model: XRLinear, trees: int) -> XRLinear | Ensemble:
    """So many trees of a model as one; a single one by itself."""
    return model if trees == 1 else Ensemble(model, n_trees=trees, **_shared(Ensemble, {"n_jobs": model.n_jobs}))


def _shared(kind: type[Parameterised], changes: dict[str, Any]) -> dict[str, Any]:
    """What of some changes concerns the model around the trees as well."""
    known = {one.name for one in kind.parameters()}
    return {key: changes[key] for key in ("n_jobs", "seed", "verbose") if key in changes and key in known}
