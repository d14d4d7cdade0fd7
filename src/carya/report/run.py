"""Runs: folders in which `carya train` and `carya evaluate` record their measurements."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carya.core.atomic import atomic_file
from carya.errors import InputError, SaveError
from carya.report.environment import describe_environment

_TRAINING, _EVALUATION = "training.json", "evaluation.json"
_FORMAT = 1


@dataclass(frozen=True)
class Run:
    """A recorded run.

    Attributes
    ----------
    name : str
        The name of the run's folder.
    training : dict or None
        The measurements recorded by `carya train --record`; None if the training was not recorded.
    evaluation : dict
        The measurements recorded by `carya evaluate --record`.
    """

    name: str
    training: dict[str, Any] | None
    evaluation: dict[str, Any]


def record_training(folder: str | os.PathLike[str], measured: dict[str, Any]) -> None:
    """Record the training of a run, together with a description of the machine and the package versions."""
    _write(Path(folder), _TRAINING, measured)


def record_evaluation(folder: str | os.PathLike[str], measured: dict[str, Any]) -> None:
    """Record the evaluation of a run, together with a description of the machine and the package versions."""
    _write(Path(folder), _EVALUATION, measured)


def check_run_folder(folder: str | os.PathLike[str]) -> None:
    """Raise SaveError if the folder cannot be used to record a run.

    >>> check_run_folder("/nonexistent/runs/a")
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise SaveError(f"{path} is not a folder. Pass the folder of a run.")
    entries = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    other = [name for name in entries if name not in (_TRAINING, _EVALUATION)]
    if other:
        raise SaveError(f"{path} contains {other[0]!r}, which is not part of a run. Pass a new or empty folder.")


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read a run.

    Raises
    ------
    InputError
        If the folder does not contain an evaluation, or if a file is invalid.
    """
    path = Path(folder)
    if not (path / _EVALUATION).is_file():
        raise InputError(f"{path} is not a run folder. Create one with: carya evaluate MODEL DATA --record {path}")
    training = _read(path / _TRAINING) if (path / _TRAINING).exists() else None
    evaluation = _read(path / _EVALUATION)
    missing = [key for key in ("metrics", "latency_ms", "model", "rows") if key not in evaluation]
    if missing:
        raise InputError(f"{path / _EVALUATION} has no key {missing[0]!r}. Record the run again.")
    return Run(path.resolve().name, training, evaluation)


def _write(folder: Path, name: str, measured: dict[str, Any]) -> None:
    check_run_folder(folder)
    content = {"format": _FORMAT, **measured, "environment": describe_environment()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(folder / name) as file:
            file.write((json.dumps(content, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise SaveError(f"{folder / name} cannot be written: {error.strerror or error}.") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InputError(f"{path} is not a run file with format version {_FORMAT}. Record the run again.")
    return content
