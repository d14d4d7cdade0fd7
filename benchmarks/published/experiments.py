"""The experiments of the paper: one cell per data set and configuration; each cell is measured in its own process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: The paper's XR-Linear settings that are constant in the ablation.
PAPER_SETTINGS: dict[str, Any] = {"max_leaf_size": 100, "threshold": 0.1, "transform": "l3-hinge", "beam_width": 10}
BRANCHING = (2, 8, 32)
TREES = (1, 3)
#: Display names of the negative sampling schemes, and the corresponding values of the parameter `negatives`.
NEGATIVES = {"TFN": "teacher", "TFN + MAN": "both"}

#: The cell whose model is saved, and then measured with every layout.
LAYOUT_MODEL = "T=1, B=32, TFN"
#: The cells shown as XR-Linear in the main results and in the table of training times.
MAIN_MODEL = "T=3, B=32, TFN"
HARD_MODEL = "T=3, B=32, TFN + MAN"


@dataclass(frozen=True)
class Cell:
    """One measurement on one data set.

    Attributes
    ----------
    name : str
    kind : {"statistics", "labels", "linear", "layouts", "transformer"}
        The type of measurement, which selects the function in run_paper.py.
    settings : dict
        Model parameters, for linear models and transformers.
    n_trees : int
        The number of trees in a linear model.
    """

    name: str
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    n_trees: int = 1

    @property
    def file_name(self) -> str:
        """The name of the cell's result file."""
        return self.name.lower().replace(" + ", "+").replace(", ", "-").replace("=", "").replace(" ", "-") + ".json"


def linear_name(n_trees: int, branching: int, negatives: str) -> str:
    """Return the name of a cell of the ablation."""
    return f"T={n_trees}, B={branching}, {negatives}"


def cells_of(data: str, *, transformers: bool) -> list[Cell]:
    """Return the cells of one data set, in the order in which they are measured."""
    cells = [Cell("statistics", "statistics"), Cell("label distribution", "labels")]
    for n_trees in TREES:
        for branching in BRANCHING:
            for name, negatives in NEGATIVES.items():
                settings = PAPER_SETTINGS | {"branching": branching, "negatives": negatives}
                cells.append(Cell(linear_name(n_trees, branching, name), "linear", settings, n_trees))
    if data == "eurlex-4k":
        settings = PAPER_SETTINGS | {"branching": 32, "negatives": "teacher", "clustering": "random"}
        cells.append(Cell("random tree", "linear", settings, 3))
    cells += [Cell("Carya, default settings", "linear"), Cell("layouts", "layouts")]
    if transformers:
        cells += [Cell("XR-Transformer", "transformer"), Cell("X-Transformer", "transformer")]
    return cells


def find_cell(data: str, name: str) -> Cell:
    """Return the cell with the given name."""
    return next(cell for cell in cells_of(data, transformers=True) if cell.name == name)
