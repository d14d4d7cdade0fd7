"""Fuzz tests: reading a truncated or mutated file of any format succeeds or raises an error with a clear message."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from carya.data import Corpus, Matrices, open_data
from carya.errors import InputError, ParameterError

from format_files import FORMAT_FILES

N_MUTATIONS = 300
_BYTES = b'\x00\xff\xfe\xef\t\n\r "#,:;<>[]{}_|=0139azE-.'
#: Formats with so little structure that almost every line is a valid text, and few mutations are rejected.
_ONLY_TEXTS = {"annif-folder", "fasttext", "lines"}


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return a modified version of the content: truncated, or with bytes replaced, inserted, removed or repeated."""
    mutated = content
    while mutated == content:
        begin, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0:
                mutated = content[:begin]
            case 1:
                mutated = content[begin:]
            case 2:
                mutated = content[:begin] + content[end:]
            case 3:
                mutated = content[:end] + content[begin:]
            case 4:
                noise = bytes(rng.choice(_BYTES) for _ in range(rng.randrange(1, 9)))
                mutated = content[:begin] + noise + content[begin + rng.randrange(9) :]
            case 5:
                position = rng.randrange(len(content))
                mutated = content[:position] + bytes([rng.choice(_BYTES)]) + content[position + 1 :]
    return mutated


def read(path: Path, options: dict[str, Any]) -> Any:
    """Read all data and return it in a form that supports `==`."""
    data = open_data(path, **options)
    if isinstance(data, Corpus):
        return list(data)
    assert isinstance(data, Matrices)
    entries = []
    for matrix in (data.X, data.Y):
        coo = sp.coo_array(matrix)
        assert np.isfinite(coo.data).all()
        entries.append((matrix.shape, coo.coords[0].tolist(), coo.coords[1].tolist(), coo.data.tolist()))
    return entries


@pytest.mark.parametrize("name", FORMAT_FILES)
def test_damaged_files_are_rejected_or_read_as_other_data(name: str, tmp_path: Path) -> None:
    file = FORMAT_FILES[name]
    file.write(tmp_path)
    path = tmp_path / file.path
    options = {key: tmp_path / value if key == "labels" else value for key, value in file.options.items()}
    options["format"] = file.format
    original = read(path, options)
    contents = {entry: entry.read_bytes() for entry in sorted(tmp_path.rglob("*")) if entry.is_file()}
    read_files = [entry for entry in contents if not _is_ignored(entry, name)]
    rng = random.Random(name)
    messages: list[str] = []
    outcomes: Counter[str] = Counter()
    for _ in range(N_MUTATIONS):
        target = rng.choice(read_files)
        target.write_bytes(mutate(contents[target], rng))
        try:
            data = read(path, options)
        except (InputError, ParameterError) as error:
            messages.append(str(error))
        else:
            outcomes["unchanged" if data == original else "changed"] += 1
        target.write_bytes(contents[target])
    assert read(path, options) == original
    assert len(messages) + sum(outcomes.values()) == N_MUTATIONS
    assert len(messages) >= (0.05 if file.format in _ONLY_TEXTS else 0.15) * N_MUTATIONS
    assert all(str(tmp_path) in message and message.endswith(".") and "\n" not in message for message in messages)
    assert outcomes["unchanged"] < 0.5 * N_MUTATIONS


def _is_ignored(entry: Path, name: str) -> bool:
    """Return whether the reader ignores a file, for example because it belongs to another split."""
    if name == "huggingface":
        return "validation" in entry.parts
    if name == "huggingface split":
        return "train" in entry.parts
    return entry.name in ("output_items.txt", "test_v1.txt")


@pytest.mark.parametrize("name", FORMAT_FILES)
def test_files_of_another_kind_are_rejected(name: str, tmp_path: Path) -> None:
    """If random bytes, an image or an archive replace a data file, reading fails with an error in every format."""
    file = FORMAT_FILES[name]
    file.write(tmp_path)
    path = tmp_path / file.path
    options = {key: tmp_path / value if key == "labels" else value for key, value in file.options.items()}
    entries = [path] if path.is_file() else sorted(path.rglob("*.*"))
    target = next(entry for entry in entries if entry.is_file() and not _is_ignored(entry, name))
    rng = random.Random(0)
    for content in (
        bytes(rng.randrange(256) for _ in range(5000)),
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)),
        b"PK\x03\x04" + bytes(range(256)),
        b"\x00" * 1000 + b"\xff",
    ):
        target.write_bytes(content)
        for format_name in (None, file.format):
            with pytest.raises(InputError) as caught:
                read(path, options | {"format": format_name})
            assert str(tmp_path) in str(caught.value)
