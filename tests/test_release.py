"""Tests for releases: the version, the release notes, and metadata that must match pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import carya
from carya import _core

from command_line import CARYA

ROOT = Path(__file__).parent.parent


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings: dict[str, Any] = tomllib.load(file)["project"]
    return settings


def test_all_versions_agree() -> None:
    printed = subprocess.run([*CARYA, "--version"], capture_output=True, text=True, check=True).stdout
    assert printed == f"carya {carya.__version__}\n"
    assert carya.__version__ == importlib.metadata.version("carya")
    assert re.match(r"\d+\.\d+", carya.__version__)


def test_the_extension_uses_the_stable_abi_where_possible() -> None:
    suffixes = "".join(Path(_core.__file__).suffixes)
    assert (".abi3" in suffixes) == (sys.version_info >= (3, 12) and sys.platform != "win32")


def release_notes(version: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/release-notes"), version]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def test_release_notes_contain_the_section_of_one_version() -> None:
    notes = release_notes("0.1.0")
    assert notes.returncode == 0, notes.stderr
    assert notes.stdout.startswith("The first release.\n\n### Added")
    assert "\n## " not in notes.stdout
    assert "[Unreleased]:" not in notes.stdout


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    """Versions have dates and links, and the newest version comes first."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    releases = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})", heading) for heading in headings[1:]]
    assert all(releases)
    dates = [release[2] for release in releases if release]
    assert dates == sorted(dates, reverse=True)
    for name in ["Unreleased", *(release[1] for release in releases if release)]:
        assert f"\n[{name}]: {project()['urls']['Source']}/" in changelog


def test_release_notes_without_a_date_are_rejected() -> None:
    notes = release_notes("Unreleased")
    assert notes.returncode == 1
    assert "has no date" in notes.stderr


def test_release_notes_of_an_unknown_version_are_rejected() -> None:
    notes = release_notes("999.0")
    assert notes.returncode == 1
    assert "no section for version 999.0" in notes.stderr


def test_the_conda_recipe_has_the_same_requirements() -> None:
    recipe = (ROOT / "conda/recipe.yaml").read_text(encoding="utf-8")
    run = re.search(r"^  run:\n((?:    - .*\n)+)", recipe, re.MULTILINE)
    assert run
    listed = {line.strip("- ").replace(" ", "") for line in run[1].splitlines()} - {"python"}
    assert listed == set(project()["dependencies"])
    with (ROOT / "pyproject.toml").open("rb") as file:
        build = tomllib.load(file)["build-system"]["requires"]
    assert all(requirement.replace(">=", " >=") in recipe for requirement in build)


@pytest.mark.parametrize("page", ["CITATION.cff", "conda/recipe.yaml"])
def test_metadata_files_are_valid_yaml(page: str) -> None:
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load((ROOT / page).read_text(encoding="utf-8"))
    assert str(content.get("title") or content["package"]["name"]).lower().startswith("carya")


@pytest.mark.parametrize("page", ["CITATION.cff", "conda/recipe.yaml"])
def test_metadata_files_use_the_project_addresses(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    urls = project()["urls"]
    assert urls["Source"] in text
    assert urls["Documentation"] in text
