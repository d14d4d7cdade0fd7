"""Tests for memory limits: the model does not change, large arrays are stored in files, and errors are clear."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya import _core
from carya.core import memory
from carya.data.io.matrix_files import read_matrix
from carya.errors import InputError, ParameterError

from command_line import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory limits are supported only on Linux")


@pytest.fixture(autouse=True)
def folder_on_disk(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Skip the tests in this file if the temporary folder is not on a disk."""
    try:
        with memory.limit_memory("1TB"):
            pass
    except ParameterError:
        pytest.skip("The temporary folder is not on a disk.")


def _problem(rows: int, features: int, labels: int, seed: int = 0) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    rng = np.random.default_rng(seed)
    X = sp.random(rows, features, density=30 / features, format="csr", dtype=np.float32, random_state=rng)
    Y = sp.random(rows, labels, density=3 / labels, format="csr", dtype=np.float32, random_state=rng)
    Y.data[:] = 1
    return sp.csr_matrix(X), sp.csr_matrix(Y)


@pytest.mark.parametrize(
    ("text", "size"), [("8GB", 8 * 10**9), ("1.5 GiB", 3 * 2**29), ("512m", 512 * 10**6), ("100", 100)]
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert memory.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "8 XB", "-1GB", "0", "GB", "1e3GB", "9" * 30])
def test_invalid_sizes_are_rejected(text: str) -> None:
    with pytest.raises(ParameterError, match="a size such as"):
        memory.parse_size(text)
    with pytest.raises(ParameterError, match="memory must be a size such as '8GB'"):
        carya.XRLinear(memory=text).fit(np.eye(2, dtype=np.float32), np.eye(2))


@pytest.mark.parametrize("negatives", ["teacher", "both"])
def test_limited_training_gives_the_same_model(tmp_path: Path, negatives: str) -> None:
    X, Y = _problem(30_000, 3000, 2000)  # large enough for arrays to be stored in files
    options: dict[str, Any] = {"negatives": negatives, "n_jobs": 2, "max_leaf_size": 20}
    carya.XRLinear(**options).fit(X, Y).save(tmp_path / "a")
    carya.XRLinear(memory="4GB", **options).fit(X, Y).save(tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        assert (tmp_path / "b" / file.name).read_bytes() == file.read_bytes()
    assert _core.memory_limit() == 0


def test_large_arrays_are_in_files_only_while_a_limit_is_set() -> None:
    with memory.limit_memory("1TB"):
        array = memory.empty(1 << 20, np.float32)
        array[:] = 1
        nested = memory.limit_memory("1GB")
        with nested:
            assert _core.memory_limit() == 10**12
    assert _core.memory_limit() == 0
    assert _mapping_of(array).endswith("(deleted)")
    assert array.sum() == 1 << 20
    assert not _mapping_of(memory.empty(1 << 20, np.float32)).endswith("(deleted)")


def _mapping_of(array: np.ndarray) -> str:
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return line
    raise AssertionError("The array is not mapped.")


def test_pages_are_unmapped_before_the_limit_is_reached() -> None:
    code = """
import time
import numpy as np
from carya import _core
from carya.core import memory
limit = _core.resident_bytes() + 200_000_000
with memory.limit_memory(str(limit)):
    arrays = [memory.empty(25_000_000, np.float32) for _ in range(6)]
    peak = 0
    for number, array in enumerate(arrays):
        for first in range(0, array.size, 1_000_000):
            array[first : first + 1_000_000] = number
            peak = max(peak, _core.resident_bytes())
            time.sleep(0.002)
    assert peak <= 1.1 * limit, (peak, limit)
    assert all((array == number).all() for number, array in enumerate(arrays))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_saving_does_not_keep_the_model_in_memory(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
import numpy as np
from carya import _core
from carya.core import memory, storage
with memory.limit_memory("8GB"):
    array = memory.empty(40_000_000, np.float32)
array[:] = np.arange(array.size)
memory.page_out()
before = _core.resident_bytes()
Path("/proc/self/clear_refs").write_text("5")  # reset the peak
storage.save(sys.argv[1], storage.SavedModel("test", {}, {}, {"values": array}))
(peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
assert int(peak) * 1024 < before + 120_000_000, (peak, before)
assert (storage.load(sys.argv[1]).arrays["values"] == array).all()
"""
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_a_limit_that_is_too_low_is_rejected_before_training() -> None:
    X, Y = _problem(2000, 500, 50)
    with pytest.raises(ParameterError, match=r"memory must be at least [\d.]+ [MG]B for this training run, got 1 MB"):
        carya.XRLinear(memory="1MB").fit(X, Y)
    assert _core.memory_limit() == 0


def test_unusable_folders_are_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, Y = _problem(50, 60, 5)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ParameterError, match=r"requires a temporary folder on disk.*Set the environment variable"):
        carya.XRLinear(memory="1GB").fit(X, Y)
    if Path("/dev/shm").exists():
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
        with pytest.raises(ParameterError, match="is stored in memory, not on a disk"):
            carya.XRLinear(memory="1GB").fit(X, Y)


def test_matrices_are_read_into_files(tmp_path: Path) -> None:
    X, _ = _problem(30_000, 3000, 10)
    sp.save_npz(tmp_path / "X.npz", X)
    sp.save_npz(tmp_path / "C.npz", X.tocsc())
    with memory.limit_memory("1TB"):
        limited = read_matrix(tmp_path / "X.npz")
        assert _mapping_of(limited.data).endswith("(deleted)")
        assert (limited != X).nnz == 0
        assert (read_matrix(tmp_path / "C.npz") != X).nnz == 0
        content = (tmp_path / "X.npz").read_bytes()
        (tmp_path / "X.npz").write_bytes(content[: len(content) // 2])
        with pytest.raises(InputError, match="does not contain a matrix"):
            read_matrix(tmp_path / "X.npz")


def test_train_command_with_a_limit_writes_the_same_model(tmp_path: Path) -> None:
    texts = tmp_path / "texts.tsv"
    texts.write_text("labels\ttext\n" + "".join(f"label{i % 7}\tword{i % 7} word{i % 11} common\n" for i in range(200)))
    for options in (["--out", str(tmp_path / "a")], ["--out", str(tmp_path / "b"), "--memory", "2GB"]):
        result = run("train", str(texts), *options)
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "a" / "arrays.bin").read_bytes() == (tmp_path / "b" / "arrays.bin").read_bytes()
