"""Test that a fault in any file operation of a save leaves either the complete old model or the complete new model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CC = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(CC is None or sys.platform != "linux", reason="requires a C compiler and LD_PRELOAD")

ATTACKS = Path(__file__).parent


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The output of fault_driver.py, which injects all faults."""
    library = tmp_path_factory.mktemp("faults") / "file_faults.so"
    flags = ["-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run([str(CC), *flags, str(ATTACKS / "file_faults.c"), "-o", str(library), "-ldl"], check=True)
    memory = Path("/dev/shm")  # in memory, because flushing files to disk is slow
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        process = subprocess.run(
            [sys.executable, ATTACKS / "fault_driver.py", folder],
            env=os.environ | {"LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        yield json.loads(process.stdout)


def test_every_fault_leaves_the_old_or_the_new_model(result: dict[str, Any]) -> None:
    """Each operation in turn fails, or the process dies immediately before or after it.

    All faults are injected with and without an existing model, and with and without support for swapping two folders
    atomically. The next save must remove everything that a killed process left behind.
    """
    assert result["problems"] == []
    assert result["faults"] > 400


def test_data_is_flushed_before_it_is_renamed(result: dict[str, Any]) -> None:
    """After a power failure, a file name on disk must never refer to data that was not written to disk."""
    for setting, log in result["logs"].items():
        operations = [(name, Path(path), other) for name, path, other in log]
        publish = next(
            number
            for number, (name, _, other) in enumerate(operations)
            if (name in ("rename", "exchange") and other.endswith("/model") and setting.startswith("exchange=True"))
            or (name == "rename" and other.endswith("/model"))
        )
        temporary = operations[publish][1]
        written = {path for name, path, _ in operations[:publish] if name == "write"}
        assert written == {temporary / name for name in ("arrays.bin", "manifest.json", "encoder/config.json")}
        for path in written | {temporary, temporary / "encoder"}:
            flushed = max(i for i, (name, other, _) in enumerate(operations) if name == "fsync" and other == path)
            changed = [
                i
                for i, (name, other, _) in enumerate(operations[:publish])
                if (name == "write" and other == path) or (name == "mkdir" and other.parent == path)
            ]
            assert max(changed, default=0) < flushed < publish, (setting, path)
        after = [(name, path) for name, path, _ in operations[publish + 1 :]]
        assert ("fsync", temporary.parent) in after, setting
