"""Run benchmark scripts in separate processes and environments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def run_script(python: str, script: str, *arguments: object, limit: float | None = None) -> dict[str, Any]:
    """Run a script in this folder and return the JSON on its last output line; exit if the script fails.

    Raises subprocess.TimeoutExpired if the script runs for more than `limit` seconds.
    """
    command = [python, str(HERE / script), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{process.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result
