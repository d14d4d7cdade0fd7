"""Run a fuzz target with atheris: python tests/fuzz/fuzz_python.py TARGET [libFuzzer options] [CORPUS]."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import FunctionType

import atheris

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import python_targets  # noqa: E402


def instrument() -> None:
    """Record the code coverage of Carya's Python functions.

    The functions are instrumented after all modules have been imported, because atheris cannot instrument modules that
    are imported by the loader of an editable installation.
    """
    for function in [item for item in gc.get_objects() if isinstance(item, FunctionType)]:
        if (function.__module__ or "").partition(".")[0] == "carya":
            atheris.instrument_func(function)


def main() -> None:
    name = sys.argv.pop(1)
    target = python_targets.TARGETS.get(name)
    if target is None:
        raise SystemExit(f"Unknown target {name!r}. Use one of {', '.join(python_targets.TARGETS)}.")
    for seed in target.seeds():
        python_targets.run_target(name, seed)  # imports all modules
    instrument()
    atheris.Setup(sys.argv, lambda data: python_targets.run_target(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
