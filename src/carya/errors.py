"""The errors Carya raises on purpose.

::

    CaryaError
    ├── ParameterError (ValueError)                  a parameter has a wrong value
    │   └── UnknownParameterError (TypeError)        there is no such parameter
    ├── InputError (ValueError)                      X, Y, a tree, candidates or a file cannot be used
    ├── NotFittedError (ValueError, AttributeError)  the model has not been trained
    ├── ModelFormatError (ValueError)                a saved model cannot be read
    └── SaveError (OSError)                          a model or data cannot be written there

Each is also the error a Python user would expect, so ``except ValueError`` works.
"""

from __future__ import annotations

__all__ = [
    "CaryaError",
    "InputError",
    "ModelFormatError",
    "NotFittedError",
    "ParameterError",
    "SaveError",
    "UnknownParameterError",
]


class CaryaError(Exception):
    """Base of all errors raised on purpose."""


class ParameterError(CaryaError, ValueError):
    """A parameter has a value it cannot have."""


class UnknownParameterError(ParameterError, TypeError):
    """A parameter name that does not exist."""


class InputError(CaryaError, ValueError):
    """Data that cannot be used: shapes, values, types."""


class NotFittedError(CaryaError, ValueError, AttributeError):
    """A model was asked before it was trained; the same bases as scikit-learn's error of that name."""


class ModelFormatError(CaryaError, ValueError):
    """A saved model is damaged, foreign or from a newer version."""


class SaveError(CaryaError, OSError):
    """A model or data cannot be written to the given place."""
