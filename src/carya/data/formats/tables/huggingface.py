"""Folders saved by Hugging Face's `datasets` with ``save_to_disk``; only pyarrow is required to read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carya.data.corpus import Corpus, Example
from carya.data.formats.columns import Columns, quote_names
from carya.data.formats.tables.arrow import class_names, examples_of_table, import_pyarrow, open_arrow
from carya.data.io.files import PathLike, read_bytes
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

_SPLITS, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
#: The usual names of the splits, for each value of `part`.
_PART_NAMES = {"train": ("train",), "test": ("test",), "dev": ("validation", "dev", "valid", "val")}


def has_dataset(folder: Path, part: str) -> bool:
    """Return whether a folder contains a saved data set or a saved dictionary of data sets."""
    return (folder / _SPLITS).is_file() or ((folder / _STATE).is_file() and (folder / _INFO).is_file())


def read_dataset(
    folder: PathLike,
    *,
    part: str = "train",
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Corpus:
    """Open a saved data set, or one split of a saved dictionary of data sets.

    Parameters
    ----------
    folder : path
    part : str
        The split to read; ``dev`` also selects ``validation``. Ignored if the folder contains a single data set, which
        has no splits.
    text_column, label_column, label_separator
        See :func:`carya.data.formats.tables.arrow.read_arrow`. Class numbers are converted to class names, which form
        the vocabulary.
    """
    root = _find_split(Path(folder), part)
    import_pyarrow(root / _STATE, "Arrow")
    files = _data_files(root)
    columns = Columns(text_column, label_column, label_separator)

    def examples() -> Iterator[Example]:
        row = 1
        for file in files:
            with open_arrow(file) as table:
                for example in examples_of_table(table, columns, str(file), first_row=row):
                    row += 1
                    yield example

    return Corpus(examples, source=str(root), vocabulary=_classes(root, label_column))


def _find_split(folder: Path, part: str) -> Path:
    if not (folder / _SPLITS).is_file():
        return folder
    splits = _read_json(folder / _SPLITS).get("splits")
    if not isinstance(splits, list) or not all(isinstance(split, str) for split in splits):
        raise InputError(f'{folder / _SPLITS}: "splits" must be a list of strings.')
    for name in _PART_NAMES[part]:
        if name in splits:
            return folder / name
    raise InputError(f"{folder} contains no data for part {part!r}. The splits are {quote_names(splits)}.")


def _data_files(folder: Path) -> list[Path]:
    state = _read_json(folder / _STATE)
    if state.get("_indices_data_files"):
        raise InputError(
            f"{folder}: The rows were selected or shuffled, but the files contain the original rows. Call "
            "flatten_indices() and save the data set again."
        )
    files = state.get("_data_files")
    if not isinstance(files, list):
        raise InputError(f'{folder / _STATE}: "_data_files" must be a list.')
    paths = []
    for entry in files:
        name = entry.get("filename") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name != Path(name).name or name in (".", ".."):
            raise InputError(f'{folder / _STATE}: "_data_files" must contain the names of files in the folder.')
        paths.append(folder / name)
        if not paths[-1].is_file():
            raise InputError(f"{paths[-1]}: No such file or directory.")
    return paths


def _classes(folder: Path, label_column: str | None) -> Vocabulary | None:
    features = _read_json(folder / _INFO).get("features") if (folder / _INFO).is_file() else None
    names = class_names(features.get(label_column)) if isinstance(features, dict) else None
    return None if names is None else Vocabulary(names, source=str(folder / _INFO))


def _read_json(path: Path) -> dict[str, Any]:
    content = read_bytes(path)
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: Invalid JSON: {error}.") from None
    if not isinstance(record, dict):
        raise InputError(f"{path}: The file must contain a JSON object.")
    return record
