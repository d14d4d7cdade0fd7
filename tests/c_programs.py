"""Helpers that compile and run C programs that use the C interface."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from carya.c_library import compiler_flags

#: The C compiler, or None.
CC = shutil.which("cc") or shutil.which("gcc")


def compile_program(source: Path, folder: Path) -> Path:
    """Compile a C program with warnings as errors, and return its path."""
    program = folder / source.stem
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]
    subprocess.run([str(CC), *strict, str(source), *compiler_flags(), "-o", str(program)], check=True)
    return program


def run(program: Path, model: Path, queries: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program with a model folder as its argument and queries on standard input."""
    return subprocess.run(
        [program, model], input=queries, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
