"""Import optional packages on first use; the error message for a missing package contains the install command."""

from __future__ import annotations

import importlib
from typing import Any

from carya.errors import MissingExtraError


def require(package: str, *, extra: str, purpose: str, alternative: str | None = None) -> Any:
    """Import an optional package.

    Parameters
    ----------
    package : str
        The module name, as in an ``import`` statement.
    extra : str
        The Carya extra that installs the package.
    purpose : str
        The file, parameter value or command that requires the package, for the error message.
    alternative : str, optional
        An alternative that does not require the package, for the error message.

    Raises
    ------
    MissingExtraError
        If the package is not installed or cannot be imported.

    Examples
    --------
    >>> require("json", extra="zstd", purpose="data.jsonl").loads("[1]")
    [1]
    >>> require("no_such_package", extra="zstd", purpose="data.zst")
    Traceback (most recent call last):
    carya.errors.MissingExtraError: data.zst requires no_such_package. Install it with: pip install 'carya[zstd]'
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        name = (error.name or package).partition(".")[0]
        advice = f"Install it with: pip install 'carya[{extra}]'" + (f", or use {alternative}" if alternative else "")
        raise MissingExtraError(f"{purpose} requires {name}. {advice}") from None
    except ImportError as error:  # installed, but broken: for example, a shared library is missing
        name = package.partition(".")[0]
        advice = f" Repair its installation, or use {alternative}." if alternative else " Repair its installation."
        raise MissingExtraError(f"{purpose} requires {name}, which cannot be imported: {error}.{advice}") from error
