"""Named settings: the systems that the paper compares, expressed in this framework, and our own choices.

A preset is a dict of parameters for :class:`carya.XRLinear`, or for the members of an :class:`carya.Ensemble`.
"""

from __future__ import annotations

from typing import Any

from carya.errors import ParameterError
from carya.models.ensemble import Ensemble
from carya.models.xr_linear import XRLinear
from carya.params import hint

#: What each is, and its parameters; `trees` of it are one model.
PRESETS: dict[str, dict[str, Any]] = {
    # Prabhu et al. 2018: balanced binary trees over PIFA, one-versus-rest among siblings, squared hinge, three trees.
    "parabel": {
        "trees": 3,
        "branching": 2,
        "max_leaf": 100,
        "negatives": "teacher",
        "transform": "l2-hinge",
    },
    # Khandagale et al. 2020: shallow trees of 100-way, unbalanced splits.
    "bonsai": {
        "trees": 3,
        "branching": 100,
        "max_leaf": 100,
        "max_depth": 3,
        "balanced": False,
        "bisect": False,
        "negatives": "teacher",
        "transform": "l2-hinge",
    },
    # Babbar and Schölkopf 2017: every label against all rows; small weights dropped.
    "dismec": {"max_depth": 1, "threshold": 0.01, "transform": "noop"},
    # Jasinska-Kobus et al. 2020: probabilistic label trees, logistic loss, probabilities multiplied along the path.
    "plt": {"branching": 2, "max_leaf": 100, "loss": "logistic", "negatives": "teacher", "transform": "sigmoid"},
    # Yu et al. 2022, the paper's own: B = 32, one tree, teacher negatives.
    "xr-linear": {"branching": 32, "max_leaf": 100, "negatives": "teacher", "transform": "l3-hinge"},
    # Ours.
    "fast": {"negatives": "teacher", "transform": "l3-hinge"},
    "small": {"threshold": 0.2, "precision": "int8"},
    "accurate": {"trees": 3},
}


def preset(name: str, **changes: Any) -> XRLinear | Ensemble:
    """An untrained model with the settings of that name, and any changes to them.

    >>> preset("parabel", n_jobs=1).members.branching
    2
    >>> preset("fast")
    XRLinear(negatives='teacher', transform='l3-hinge')
    """
    if name not in PRESETS:
        raise ParameterError(f"there is no preset {name!r}{hint(name, PRESETS)}; there are {', '.join(PRESETS)}")
    settings = PRESETS[name] | changes
    trees = settings.pop("trees", 1)
    model = XRLinear(**settings)
    return model if trees == 1 else Ensemble(model, n_trees=trees)
