"""Write data folders atomically, without replacing folders that contain other files."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from carya.core.atomic import replace_folder, temporary_folder
from carya.errors import SaveError


@contextmanager
def atomic_folder(path: str | os.PathLike[str], own_files: Container[str]) -> Iterator[Path]:
    """Create a temporary folder that is renamed to `path` on success and removed after an error or Ctrl-C.

    Parameters
    ----------
    path : path
        The final path. An existing folder is replaced only if it contains nothing but `own_files`.
    own_files : container of str
        The names of the files that a data set of this type can contain.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with atomic_folder(f"{parent}/set", {"x.txt"}) as folder:
    ...         _ = (folder / "x.txt").write_text("hello")
    ...     os.listdir(parent), os.listdir(f"{parent}/set")
    (['set'], ['x.txt'])
    """
    target = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links)
    check_replaceable(target, own_files)
    with ExitStack() as cleanup:
        try:
            temporary = cleanup.enter_context(temporary_folder(target))
        except OSError as error:
            raise SaveError(f"{path} cannot be written: {error.strerror}.") from None
        yield temporary
        _publish(temporary, target, own_files)


def check_replaceable(path: str | os.PathLike[str], own_files: Container[str]) -> None:
    """Raise SaveError if the path exists, unless it is a folder that contains only `own_files`.

    >>> check_replaceable("/nonexistent/folder", ())
    """
    target = Path(path)
    if not target.name:
        raise SaveError(f"{path} is not a valid path for a data set. Pass the path of a folder.")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise SaveError(f"{path} exists and is not a folder. Choose a different path.")
    if target.is_dir():
        foreign = sorted(entry.name for entry in target.iterdir() if entry.name not in own_files)
        if foreign:
            raise SaveError(
                f"{path} exists and contains {foreign[0]!r}, which does not belong to this type of data set. The "
                "folder was not modified. Choose a different path."
            )


def _publish(temporary: Path, target: Path, own_files: Container[str]) -> None:
    try:
        check_replaceable(target, own_files)
        replace_folder(temporary, target)
    except OSError as error:
        if isinstance(error, SaveError):
            raise
        raise SaveError(f"{target} cannot be written: {error.strerror or error}.") from None
