"""Tests that the documentation matches the code and the results: names, tables, outputs and the folder map."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya.core import storage
from carya.ranking import AveragedRanker, BoostedRanker, NeuralRanker

ROOT = Path(__file__).parent.parent


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """Return the text of the section under the given second-level heading."""
    match = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", read(page), re.DOTALL | re.MULTILINE)
    assert match, heading
    return match[1]


def code_spans(text: str) -> list[str]:
    """Return the contents of all code spans outside code blocks, with line breaks replaced by spaces."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md", "docs/scale.md"])
def test_tables_show_the_recorded_results(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    table = importlib.import_module("table")
    assert "<!-- table " in read(page)
    assert table.fill(read(page), table.all_tables()) == read(page), "Run: python benchmarks/table.py --write"


def test_readme_shows_the_output_of_its_example(tmp_path: Path) -> None:
    match = re.search(r"^```python\n(.*?)^```\n\n^```\n(.*?)^```", read("README.md"), re.DOTALL | re.MULTILINE)
    assert match
    run = subprocess.run(
        [sys.executable, "-c", match[1]], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert run.stdout == match[2]


def test_rankers_page_lists_the_reranking_features() -> None:
    X, Y = carya.data.make_world(200, 20, seed=0)
    model = carya.Reranked([carya.XRLinear(), carya.XRLinear(seed=1)], NeuralRanker(epochs=1))
    pairs, _ = model.fit(X, Y, label_features=X[:20]).pairs(X[:5])
    rows = re.findall(r"^\| (.*?) \|", section("docs/rankers.md", "Features"), re.MULTILINE)
    documented = [name for row in rows for name in code_spans(row)]
    # The page lists all features of the first tree, but only the score of the second tree.
    emitted = [name for name in pairs.names if not name.startswith("tree1.") or name == "tree1.score"]
    assert sorted(documented) == sorted(emitted)


def saved_models() -> dict[str, Any]:
    """Return saved models that together contain all arrays of the model format, except those that require PyTorch."""
    X, Y = carya.data.make_world(200, 20, seed=0)
    dense = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    tree = carya.XRLinear(max_leaf_size=5, branching=2)
    neighbors = carya.NearestNeighbors(over="rows")
    rankers = [BoostedRanker(n_estimators=2, min_samples_leaf=1), NeuralRanker(epochs=1)]
    models: list[Any] = [
        tree.clone(clusters_per_label=2).fit((X, dense), Y),
        neighbors.fit(X, Y),
        carya.NearestNeighbors(search="graph").fit(dense, Y),
        carya.Ensemble([tree, neighbors]).fit(X, Y),
        carya.Reranked([tree], AveragedRanker(rankers)).fit(X, Y, label_features=X[:20]),
    ]
    texts = [f"text about topic {number % 5} number {number}" for number in range(60)]
    labels = [[f"topic-{number % 5}"] for number in range(60)]
    names = {f"topic-{number}": f"Topic {number}" for number in range(5)}
    ranker = carya.TextRanker().fit(texts, labels, names=names, label_texts=names).calibrate(texts, labels)
    return {type(model).__name__: model.to_saved() for model in models} | {"TextRanker": ranker}


def test_format_page_names_all_arrays_and_shapes(tmp_path: Path) -> None:
    models = saved_models()
    models.pop("TextRanker").save(tmp_path / "model")
    models["TextRanker"] = storage.load(tmp_path / "model")
    documented = set(code_spans(read("docs/format.md")))
    missing = set()
    for saved in models.values():
        assert saved.kind in documented
        missing |= saved.shape.keys() - documented
        for name in saved.arrays:
            *prefixes, array = name.split("/")
            array = re.sub(r"^\d+\.(?=parents|weights|dense|offsets)", "t.", array)
            array = re.sub(r"^text\.\d+\.", "text.p.", array)
            array = re.sub(r"^\d+\.", "", array)  # index of a ranker in an AveragedRanker
            written_with_prefix = f"{'/'.join(prefixes)}/{array}" in documented
            if array not in documented and not written_with_prefix:
                missing.add(name)
            for prefix in prefixes:
                generic = re.sub(r"^\d+$", "m", prefix)
                if not written_with_prefix and not {f"{generic}/", f"{generic}/…"} & documented:
                    missing.add(f"{prefix}/")
    assert not missing


def folder_map() -> dict[str, set[str]]:
    """Parse the folder map in docs/architecture.md; return the names of the modules in each folder."""
    match = re.search(r"^```\n(src/carya/\n.*?)^```", read("docs/architecture.md"), re.DOTALL | re.MULTILINE)
    assert match
    folders: dict[str, set[str]] = defaultdict(set)
    path: list[tuple[int, str]] = []
    for line in match[1].splitlines():
        content = line.partition("#")[0]
        indent = len(content) - len(content.lstrip())
        words = content.split()
        if words and words[0].endswith("/"):
            while path and path[-1][0] >= indent:
                path.pop()
            path.append((indent, words.pop(0)))
        folders["".join(name for _, name in path).rstrip("/")] |= set(words)
    return folders


@pytest.mark.parametrize(("root", "suffixes"), [("src/carya", {".py"}), ("native", {".cpp", ".hpp", ".h"})])
def test_folder_map_lists_every_source_file(root: str, suffixes: set[str]) -> None:
    actual: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / root).rglob("*"):
        if path.suffix in suffixes and path.stem != "__init__" and not path.stem.startswith("_core"):
            actual[path.parent.relative_to(ROOT).as_posix()].add(path.stem)
    actual.pop("src/carya/include", None)  # created by the build; contains a copy of the C header
    mapped = {folder: names for folder, names in folder_map().items() if folder.startswith(root) and names}
    assert mapped == dict(actual)


def test_data_flow_names_existing_functions() -> None:
    steps = [span.split(": ") for span in code_spans(section("docs/architecture.md", "Data flow")) if ".py: " in span]
    assert len(steps) > 10
    for file, name in steps:
        source = read(f"src/carya/{file}")
        assert re.search(rf"^ *(?:async def|def|class) {name}\b|^{name}\b.* = ", source, re.MULTILINE), (
            f"{file}: {name}"
        )


def test_links_to_sections_match_headings() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            text = (page.parent / target).read_text(encoding="utf-8") if target else page.read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name}: {target}#{anchor}"
