"""Packages that only some formats need: imported when such a file is met, or an error that says how to install them."""

from __future__ import annotations

import importlib
from typing import Any

from carya.errors import InputError


def need(package: str, extra: str, source: str) -> Any:
    """An imported package; raises InputError with the line that installs it.

    Parameters
    ----------
    package : str
        The module, as in ``import``.
    extra : str
        The extra of Carya that brings it.
    source : str
        The file that needs it.

    Examples
    --------
    >>> need("json", "zstd", "data.jsonl").loads("[1]")
    [1]
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        raise InputError(f"{source}: this needs {name}; pip install 'carya[{extra}]'") from None
