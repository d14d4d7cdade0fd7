"""Tests for the example notebooks: they run, and their plots are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples" / "notebooks").glob("*.ipynb"))


def plots(notebook: Any) -> list[str]:
    """Return the plots in the outputs of a notebook."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return ["".join(output.data["image/svg+xml"]) for output in outputs if "image/svg+xml" in output.get("data", {})]


def test_there_are_two_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["product-to-query", "text-tagging"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    assert not [output for cell in stored.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    executed = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(executed, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert len(plots(executed)) == len(plots(stored)) == 3
    assert all(plot.count("<path") > 10 for plot in plots(executed))
