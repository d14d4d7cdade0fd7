"""Helpers that run the `carya` command in a separate process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

# A shell starts background jobs with SIGINT ignored, and their child processes inherit this setting. Python's default
# handler is restored so that tests that send Ctrl-C also pass in a background job.
RESTORE_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"

#: Command line that runs `carya` in the current environment.
CARYA = [sys.executable, "-c", RESTORE_SIGINT + "from carya.cli import main; main()"]


def run(*arguments: str, cwd: Path | None = None, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run `carya` with the given arguments until it exits; `settings` are passed to :func:`subprocess.run`."""
    return subprocess.run(
        [*CARYA, *arguments], capture_output=True, text=True, check=False, cwd=cwd, timeout=120, **settings
    )


def start(*arguments: str, cwd: Path | None = None, **settings: Any) -> subprocess.Popen[str]:
    """Start `carya` with the given arguments; `settings` are passed to :class:`subprocess.Popen`."""
    return subprocess.Popen([*CARYA, *arguments], text=True, cwd=cwd, **settings)
