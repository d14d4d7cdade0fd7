"""Tests for saved transformer models that contain forged encoders with valid checksums."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya import _core
from carya.errors import CaryaError

from golden_models import GOLDEN

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))

from python_targets import Choices, edit_json, encode_json, seal

pytestmark = pytest.mark.transformer
pytest.importorskip("torch")

TEXT = "the telescope shows a planet"


def forge(folder: Path, change: Callable[[Path], object]) -> Path:
    """Copy a model, change its encoder folder, and update the list of files and all checksums."""
    shutil.copytree(GOLDEN / "xr-transformer", folder)
    change(folder / "encoder")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = [
        {
            "name": path.relative_to(folder).as_posix(),
            "bytes": path.stat().st_size,
            "checksum": f"{_core.xxh64(np.frombuffer(path.read_bytes(), np.uint8)):016x}",
        }
        for path in sorted((folder / "encoder").rglob("*"))
        if path.is_file()
    ]
    text, _ = seal(manifest, (folder / "arrays.bin").read_bytes())
    (folder / "manifest.json").write_bytes(text)
    return folder


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_unchanged_encoders_are_loaded(tmp_path: Path) -> None:
    assert carya.load(forge(tmp_path / "m", lambda _: None)).suggest(TEXT, top_k=1)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_in_encoder_folders_is_not_run(tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"

    def add_code(encoder: Path) -> None:
        (encoder / "evil.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Evil: pass\n")
        classes = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
        edit(encoder / name, auto_map=classes, model_type="evil", tokenizer_class="Evil")

    folder = forge(tmp_path / "m", add_code)
    try:
        carya.load(folder).suggest(TEXT)
    except CaryaError as error:
        assert str(folder) in str(error) or "encoder" in str(error)  # noqa: PT017
    assert not marker.exists()


class Evil:
    """An object whose unpickling creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def test_pickled_weights_are_rejected(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    def pickle_weights(encoder: Path) -> None:
        (encoder / "model.safetensors").unlink()
        (encoder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(marker)))

    with pytest.raises(CaryaError):
        carya.load(forge(tmp_path / "m", pickle_weights)).suggest(TEXT)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors"])
def test_edited_files_are_rejected_or_used(tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    rejected = 0
    for number in range(12):

        def change(encoder: Path) -> None:
            path = encoder / name
            if path.suffix == ".json":
                path.write_bytes(encode_json(edit_json(json.loads(path.read_text()), Choices(rng.randbytes(40)))))
            else:
                data = bytearray(path.read_bytes())
                position = rng.randrange(min(len(data), 2000))
                data[position : position + 4] = rng.randbytes(rng.randrange(8))
                path.write_bytes(data)

        try:
            carya.load(forge(tmp_path / str(number), change)).suggest(TEXT)
        except CaryaError:
            rejected += 1
    assert rejected < 12 or name == "model.safetensors"
