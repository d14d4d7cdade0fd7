"""Provenance of results: the machine, package versions and commit that are recorded with every result."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import Any

from carya.report.environment import describe_environment

from launch import HERE


def provenance() -> dict[str, Any]:
    """Return the machine, the package versions, the commit of this checkout and the current time."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return describe_environment() | {"commit": commit(), "measured": now}


def commit() -> str:
    """Return the commit of this checkout, with ``+changes`` if files are modified, or "unknown" outside a checkout."""
    try:
        name = _git("rev-parse", "--short=12", "HEAD")
        return f"{name}+changes" if _git("status", "--porcelain", "--untracked-files=no") else name
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(HERE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
