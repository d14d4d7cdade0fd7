"""Helpers that compile and run C programs that use the C interface."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from carya.c_library import compiler_flags

#: Path of the C compiler, or None if no compiler is installed.
CC = shutil.which("cc") or shutil.which("gcc")


def compile_program(source: Path, folder: Path) -> Path:
    """Compile a C program, treating warnings as errors; return the path of the executable."""
    program = folder / source.stem
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]
    subprocess.run([str(CC), *strict, str(source), *compiler_flags(), "-o", str(program)], check=True)
    return program


def run(program: Path, model: Path, queries: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program with a model folder as its argument and the queries as its standard input."""
    return subprocess.run(
        [program, model], input=queries, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
