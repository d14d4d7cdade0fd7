"""Exceptions and warnings raised by Carya.

::

    CaryaError
    ├── ParameterError (ValueError)                  a parameter has an invalid value
    │   └── UnknownParameterError (TypeError)        a parameter name is unknown
    ├── InputError (ValueError)                      an input (data, tree, candidates, file) is invalid
    │   └── MissingExtraError (ImportError)          an optional dependency is not installed
    ├── NotFittedError (ValueError, AttributeError)  the model has not been fitted
    ├── ModelFormatError (ValueError)                a saved model cannot be read
    ├── PartUnavailableError (ConnectionError)       a part of a split model cannot be reached
    └── SaveError (OSError)                          a model or a data set cannot be written

Each exception also derives from the corresponding built-in exception, so ``except ValueError`` works.

::

    CaryaWarning (UserWarning)
    ├── FewTermsWarning                              most training texts have very few terms
    ├── SlowTrainingWarning                          fine-tuning on a CPU is expected to take long
    └── UnknownTextWarning                           a query text contains no known terms
"""

from __future__ import annotations

__all__ = [
    "CaryaError",
    "CaryaWarning",
    "FewTermsWarning",
    "InputError",
    "MissingExtraError",
    "ModelFormatError",
    "NotFittedError",
    "ParameterError",
    "PartUnavailableError",
    "SaveError",
    "SlowTrainingWarning",
    "UnknownParameterError",
    "UnknownTextWarning",
]


class CaryaError(Exception):
    """Base class of all exceptions raised by Carya."""


class ParameterError(CaryaError, ValueError):
    """Raised when a parameter has an invalid value."""


class UnknownParameterError(ParameterError, TypeError):
    """Raised when a parameter name is unknown."""


class InputError(CaryaError, ValueError):
    """Raised when an input has an invalid shape, value or type, or cannot be used in this environment."""


class MissingExtraError(InputError, ImportError):
    """Raised when an optional dependency is not installed; the message contains the installation command."""


class NotFittedError(CaryaError, ValueError, AttributeError):
    """Raised when a model is used before it is fitted.

    Like scikit-learn's exception of the same name, it derives from ValueError and AttributeError.
    """


class ModelFormatError(CaryaError, ValueError):
    """Raised when a folder is not a Carya model, or when the model is damaged or was written by a newer version."""


class PartUnavailableError(CaryaError, ConnectionError):
    """Raised when no replica of a part of a split model responds.

    Attributes
    ----------
    part : str
        The name of the part.
    problems : list of str
        For each replica, the reason why it is unavailable.
    """

    def __init__(self, part: str, problems: list[str]) -> None:
        super().__init__(f"{part} is not available: {'; '.join(problems)}.")
        self.part = part
        self.problems = problems


class SaveError(CaryaError, OSError):
    """Raised when a model or a data set cannot be written to the given path."""


class CaryaWarning(UserWarning):
    """Base class of all warnings issued by Carya."""


class FewTermsWarning(CaryaWarning):
    """Issued when a vectorizer is fitted and most of the texts have very few terms."""


class SlowTrainingWarning(CaryaWarning):
    """Issued before an encoder is fine-tuned on a CPU if this is expected to take more than five minutes."""


class UnknownTextWarning(CaryaWarning):
    """Issued when query texts contain no known terms, so no labels can be suggested for them.

    Attributes
    ----------
    rows : list of int
        The indices of these texts, starting at 0.
    """

    def __init__(self, message: str, rows: list[int]) -> None:
        super().__init__(message)
        self.rows = rows
