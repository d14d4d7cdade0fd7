"""Check that Carya is imported by the main interpreter of the process."""

from __future__ import annotations

import importlib
from types import ModuleType


def check_main_interpreter() -> None:
    """Raise ImportError in a subinterpreter.

    The native core and NumPy support only the main interpreter: without this check, the first call of the native core
    in a subinterpreter of Python 3.11 never returns.
    """
    interpreters = _interpreters_module()
    if interpreters is not None and interpreters.get_current() != interpreters.get_main():
        raise ImportError(
            "Carya cannot be imported in a subinterpreter. Use threads, which run in parallel because the native core "
            "releases the GIL, or processes."
        )


def _interpreters_module() -> ModuleType | None:
    """Return Python's internal module for subinterpreters, whose name depends on the Python version."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None
