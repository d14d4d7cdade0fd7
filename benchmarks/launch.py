"""Starts one run of a benchmark in a process and an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def run_script(python: str, script: str, *arguments: object, limit: float | None = None) -> dict[str, Any]:
    """The result that a script of this folder prints as its last line; ends the benchmark if it fails.

    Raises subprocess.TimeoutExpired after `limit` seconds.
    """
    command = [python, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
