"""The values of ``transform="auto"`` and ``C="auto"``, chosen on held-out training rows from three data sets.

docs/design-notes.md shows the measurements, and benchmarks/auto_settings.py reproduces them.
"""

from __future__ import annotations

#: The parameter value that requests automatic selection by the functions in this module.
AUTO = "auto"

_C = {
    ("squared-hinge", "l2"): 1.0,
    ("hinge", "l2"): 2.0,
    ("logistic", "l2"): 64.0,
    ("squared-hinge", "l1"): 8.0,
    ("logistic", "l1"): 32.0,
}
#: Transforms for the inner layers and the last layer, by loss and by whether the last layer has hard negatives.
_TRANSFORMS = {
    ("squared-hinge", True): ("l3-hinge", "l4-hinge"),
    ("squared-hinge", False): ("l4-hinge", "l4-hinge"),
    ("hinge", True): ("l3-hinge", "l4-hinge"),
    ("hinge", False): ("l3-hinge", "l4-hinge"),
    ("logistic", True): ("l2-hinge", "l2-hinge"),
    ("logistic", False): ("sigmoid", "sigmoid"),
}


def auto_C(loss: str, penalty: str = "l2") -> float:  # noqa: N802 - named like the parameter
    """Return the inverse regularization strength for a loss and a penalty.

    >>> auto_C("squared-hinge")
    1.0
    """
    return _C[loss, penalty]


def auto_transform(loss: str, *, hard_negatives: bool) -> tuple[str, str]:
    """Return the transforms for the inner layers and the last layer, given the loss and the type of negatives.

    Parameters
    ----------
    hard_negatives : bool
        Whether the negatives of the last layer include rows selected by a matcher or by the user. In this case, the
        margins of the last layer are smaller.

    Examples
    --------
    >>> auto_transform("squared-hinge", hard_negatives=True)
    ('l3-hinge', 'l4-hinge')
    """
    return _TRANSFORMS[loss, hard_negatives]
