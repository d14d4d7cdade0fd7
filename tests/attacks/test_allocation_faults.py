"""Test that a failed memory allocation in the native code raises MemoryError, leaks nothing and changes no model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CXX = shutil.which("c++") or shutil.which("g++")
pytestmark = pytest.mark.skipif(CXX is None or sys.platform != "linux", reason="requires a C++ compiler and LD_PRELOAD")

ATTACKS = Path(__file__).parent
MAX_FAULTS = 20  # per operation; pass a larger number to allocation_driver.py to make every allocation fail


def test_failed_allocations_raise_memory_error(tmp_path: Path) -> None:
    library = tmp_path / "allocation_faults.so"
    flags = ["-shared", "-fPIC", "-O1", "-std=c++20", "-Wall", "-Werror"]
    subprocess.run([str(CXX), *flags, str(ATTACKS / "allocation_faults.cpp"), "-o", str(library)], check=True)
    process = subprocess.run(
        [sys.executable, ATTACKS / "allocation_driver.py", str(MAX_FAULTS)],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout)
    assert {name: result["problems"] for name, result in results.items() if result["problems"]} == {}
    assert all(set(result["outcomes"]) == {"MemoryError", ""} for result in results.values())
    for name in ("fit", "fit with dense features", "fit texts", "load"):
        assert results[name]["faults"] == MAX_FAULTS
    for name in ("predict", "suggest"):
        assert results[name]["outcomes"]["MemoryError"] > 0
