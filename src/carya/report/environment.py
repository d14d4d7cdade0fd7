"""Describe the hardware and software used for a measurement."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "usearch", "torch", "transformers")


def describe_environment() -> dict[str, Any]:
    """Return the processor, the memory, the operating system, and the versions of the relevant packages.

    >>> sorted(describe_environment())
    ['machine', 'versions']
    """
    from carya.version import __version__

    return {
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gb": _memory_gb(),
            "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        },
        "versions": {"carya": __version__, "python": platform.python_version()} | _versions(),
    }


def _versions() -> dict[str, str]:
    """Return the versions of the installed packages that affect results."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """Return the name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    """Return the size of the main memory in GiB, or None if it is unknown."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None
