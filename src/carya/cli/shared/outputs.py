"""Check output paths before a command does any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carya.cli.options.data_options import path_exists
from carya.errors import SaveError


def check_model_output(path: Path, *, force: bool) -> None:
    """Raise SaveError if a model cannot be saved to a path, or if a model exists there and --force is not given."""
    from carya.core.storage import check_output_path

    check_output_path(path)  # --force replaces models only, never other files
    if not force and path.is_dir() and any(path.iterdir()):
        raise SaveError(f"{path} already contains a model. Pass --force to replace it, or choose a different path.")


def check_not_input(out: str | Path, source: str | Path) -> None:
    """Raise SaveError if a command would overwrite its input file."""
    target = Path(out)
    if str(out) != "-" and target.is_file() and path_exists(str(source)) and target.samefile(source):
        raise SaveError(f"{out} is also the input. Choose a different path for the output.")


def check_matrix_output(out: Path, suffix: str) -> None:
    """Raise SaveError if a path is a folder or does not have the suffix of a matrix file."""
    if out.suffix != suffix:
        raise SaveError(f"{out} must end with {suffix}, the suffix of the matrix format.")
    if out.is_dir():
        raise SaveError(f"{out} is a folder. Pass the path of a file.")


def check_recording(run: Path | None) -> None:
    """Raise SaveError if a run cannot be recorded in a folder; do nothing if the folder is None."""
    if run is not None:
        from carya.report.run import check_run_folder

        check_run_folder(run)


def save_training_record(run: Path | None, result: dict[str, Any]) -> None:
    """Record the training results in a run folder; do nothing if the folder is None."""
    if run is not None:
        from carya.report.run import record_training

        record_training(run, result)
