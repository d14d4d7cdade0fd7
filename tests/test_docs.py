"""Documentation that is run: examples in docstrings, every Python block of the pages, and the generated page."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import carya

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(carya.__path__, "carya.") if "_core" not in module.name
)
PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/data.md",
    "docs/explorer.md",
    "docs/framework.md",
    "docs/neighbours.md",
    "docs/rankers.md",
    "docs/serve.md",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    if name.startswith("carya.transformer."):
        pytest.importorskip("torch")
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_there_are_examples_for_every_public_name() -> None:
    own = {"errors", "indexing", "metrics", "data", "ranking", "__version__"}
    for name in sorted({*carya.__all__} - own):
        assert ">>>" in getattr(carya, name).__doc__, name
    for module in (carya.metrics, carya.data):
        for name in module.__all__:
            assert ">>>" in getattr(module, name).__doc__, f"{module.__name__}.{name}"


@pytest.mark.parametrize("page", PAGES)
def test_pages_run_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks
    command = [sys.executable, "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_shell_quickstart_runs(tmp_path: Path) -> None:
    """Line by line, with the command of this environment."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = (one for one in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "carya train" in one)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-eu", "-c", block],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"labels"')]
    assert [len(answer["labels"]) for answer in answers] == [2, 2, 2]
    assert "level 1" in done.stdout


def test_the_parameter_page_is_current() -> None:
    made = subprocess.run([sys.executable, ROOT / "tools/parameter-page"], capture_output=True, text=True, check=True)
    assert made.stdout.rstrip() == (ROOT / "docs/parameters.md").read_text(encoding="utf-8").rstrip()


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
