"""Tests for the documentation: docstring examples, code blocks on all pages, generated pages, and links."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import carya
from carya.core import storage

from topics import corpus

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(carya.__path__, "carya.") if "_core" not in module.name
)
#: Pages whose Python blocks are not run by the general test, and the reasons.
NOT_EXECUTED = {
    "docs/cluster.md": "requires Ray, Spark and Dask; the function for Spark and Dask has its own test below",
    "docs/tutorial.md": "mixes Python and shell blocks; has its own test below",
    "docs/format.md": "requires a saved model; has its own test below",
    "docs/transformers.md": "downloads an encoder",
    "docs/hub.md": "requires the Hugging Face Hub and MLflow; has its own tests in test_hub.py",
}


def code_blocks(page: str, language: str) -> list[str]:
    """Return all code blocks in the given language on a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


PAGES = [
    page
    for page in ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
    if code_blocks(page, "python") and page not in NOT_EXECUTED
]


def test_pages_with_python_blocks_are_detected() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/rankers.md"} <= set(PAGES)
    for page in NOT_EXECUTED:
        assert code_blocks(page, "python"), page


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.transformer if name.startswith("carya.transformer.") else ())
        for name in MODULES
    ],
)
def test_examples_in_docstrings(name: str) -> None:
    if name.startswith("carya.transformer."):
        pytest.importorskip("torch")
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_every_public_name_has_an_example() -> None:
    without_example = {"errors", "indexing", "metrics", "data", "ranking", "__version__"}
    for name in sorted({*carya.__all__} - without_example):
        assert ">>>" in getattr(carya, name).__doc__, name
    for module in (carya.metrics, carya.data, carya.ranking):
        for name in module.__all__:
            assert ">>>" in getattr(module, name).__doc__, f"{module.__name__}.{name}"


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_on_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "\n".join(code_blocks(page, "python"))]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_the_function_for_spark_and_dask(tmp_path: Path) -> None:
    texts, labels = corpus(100)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1), carya.XRLinear(max_leaf_size=5)).fit(texts, labels)
    ranker.save(tmp_path / "model")
    blocks = [block for block in code_blocks("docs/cluster.md", "python") if "def rank" in block]
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    exec(blocks[0].replace("/shared/model", str(tmp_path / "model")), names)
    exec(blocks[1].partition("\n\n\n")[0], names)
    frame = pd.DataFrame({"id": [f"t{number}" for number in range(10)], "text": texts[:10]}, index=range(50, 60))
    result = pd.concat(names["rank_batches"]([frame[:4], frame[4:]]), ignore_index=True)
    expected = ranker.suggest_all(texts[:10], top_k=5, as_frame=True)
    assert result["id"].tolist() == [f"t{row}" for row in expected["row"]]
    for column in ("rank", "label", "score"):
        assert result[column].tolist() == expected[column].tolist()


def test_the_format_page_reads_a_saved_model(model: carya.XRLinear, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    (block,) = code_blocks("docs/format.md", "python")
    code = f"{block}\nnp.savez('arrays.npz', **arrays)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, check=True)
    expected = storage.load(tmp_path / "model").arrays
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert sorted(arrays.files) == sorted(expected)
        for name, array in expected.items():
            assert np.array_equal(arrays[name], array), name


def test_the_shell_quickstart_runs(tmp_path: Path) -> None:
    """Run the README's shell block with the `carya` command of this environment, stopping at the first error."""
    (block,) = (block for block in code_blocks("README.md", "sh") if "carya train" in block)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = subprocess.run(
        ["bash", "-eu", "-c", block],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    predictions = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"row"')]
    assert [len(prediction["labels"]) for prediction in predictions] == [2, 2, 2]
    assert "level 1" in run.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="the server does not support Windows")
def test_the_tutorial_runs(tmp_path: Path) -> None:
    """Run all code blocks of the tutorial in order, except for the installation; stop the server at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8").replace("8000", port)
    blocks = re.findall(r"^```(bash|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    steps = []
    for language, block in blocks[1:]:
        if language == "python":
            steps.append(f"python - <<'END'\n{block}END\n")
        elif "carya serve" in block:
            steps.append(f"{block.rstrip()} & server=$!\ntrap 'kill $server; wait $server' EXIT\n")
        else:
            steps.append(block.replace("curl -s", "curl -s --fail --retry 60 --retry-delay 1 --retry-connrefused"))
    environment = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    run = subprocess.run(
        ["bash", "-eu", "-c", "".join(steps)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert re.search(r"^1\t.*\t1\t(compression|gzip|bz2|zipfile|lzma|tarfile)\t", run.stdout, re.MULTILINE)
    response = json.loads(run.stdout.splitlines()[-1])
    assert "internet" in [suggestion["label"] for suggestion in response["results"][0]["suggestions"]]


@pytest.mark.parametrize(
    ("script", "page"), [("tools/parameter-page", "docs/parameters.md"), ("tools/command-page", "docs/commands.md")]
)
def test_generated_pages_are_current(script: str, page: str) -> None:
    run = subprocess.run([sys.executable, ROOT / script], capture_output=True, text=True, encoding="utf-8", check=True)
    assert run.stdout.rstrip() == (ROOT / page).read_text(encoding="utf-8").rstrip(), f"Run: {script} > {page}"


def test_the_figures_of_the_concept_pages_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools/concept-figures", tmp_path], check=True)
    for drawn in sorted(tmp_path.iterdir()):
        shown = ROOT / "docs/concepts" / drawn.name
        assert drawn.read_text(encoding="utf-8") == shown.read_text(encoding="utf-8"), "Run: tools/concept-figures"


def test_the_site_contains_every_page() -> None:
    navigation = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert navigation == pages | {"contributing.md", "changelog.md"}


def test_the_api_reference_lists_every_public_name() -> None:
    listed = set(re.findall(r"^::: carya\.(\w+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {*carya.__all__} - {"__version__"}


def test_the_compatibility_page_is_current() -> None:
    """Rows for packages that are not installed are not checked."""
    script = ROOT / "tools/compatibility-page"
    run = subprocess.run([sys.executable, script, "--available"], capture_output=True, text=True, check=True)
    page = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8").splitlines()
    printed = run.stdout.rstrip().splitlines()
    assert len(printed) > 80
    advice = "Run: tools/compatibility-page > docs/compatibility.md"
    assert [line for line in printed if line not in page] == [], advice
    packages = {"pandas", "polars", "pyarrow", "datasets", "torch"}
    missing = {name for name in packages if importlib.util.find_spec(name) is None}
    if "torch" in missing:
        page = page[
            : next(number for number, line in enumerate(page) if line.startswith("## Methods for transformers"))
        ]
    remaining = [line for line in page if line not in printed]
    assert all(any(name in line for name in missing) for line in remaining), advice
    assert not [line for line in page if "differs" in line]


def test_relative_links_exist() -> None:
    links = 0
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
            links += 1
    assert links > 20
