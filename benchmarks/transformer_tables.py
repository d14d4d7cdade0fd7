"""Tables for docs/transformers.md, from the results of run_transformers.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_Table = tuple[list[str], list[list[str]]]

MODELS = {"xr": "XR-Transformer", "x": "X-Transformer"}
#: Column headings for the parts of a model, and their keys in the results, which use earlier names.
PARTS = {
    "head": "head",
    "TF-IDF + embeddings": "concatenated",
    "TF-IDF": "linear",
    "nearest texts": "neighbours",
    "mixture": "mixed",
}


def _quality(values: dict[str, float] | None, metric: str) -> str:
    return "–" if values is None else " / ".join(f"{values[f'{metric}@{k}']:.1f}" for k in (1, 3, 5))


def _titles(results: dict[str, Any]) -> list[str]:
    return [f"{run['data']}, {MODELS[name.rpartition('-')[2]]}" for name, run in results.items()]


def precision(results: dict[str, Any]) -> _Table:
    """Return the headings and rows of the table of precision and times; the best part of each data set is bold."""
    best: dict[str, float] = {}
    for run in results.values():
        first = max(values["P@1"] for values in run["test"].values())
        best[run["data"]] = max(best.get(run["data"], 0), first)
    rows = []
    for title, run in zip(_titles(results), results.values(), strict=True):
        cells = [title]
        for part in PARTS.values():
            values = run["test"].get(part)
            shown = _quality(values, "P")
            cells.append(f"**{shown}**" if values and values["P@1"] == best[run["data"]] else shown)
        rows.append([*cells, f"{run['train_s']:.0f}", f"{run['command_s']:.0f}"])
    return ["P@1 / 3 / 5 on test texts", *PARTS, "`fit`, s", "whole command, s"], rows


def propensity_scored(results: dict[str, Any]) -> _Table:
    """Return the headings and rows of the table of propensity-scored precision."""
    parts = {name: key for name, key in PARTS.items() if key in ("head", "concatenated", "mixed")}
    rows = [
        [title, *(_quality(run["test"].get(key), "PSP") for key in parts.values())]
        for title, run in zip(_titles(results), results.values(), strict=True)
    ]
    return ["PSP@1 / 3 / 5 on test texts", *parts], rows


def throughput(results: dict[str, Any]) -> _Table:
    """Return the headings and rows of the table of fine-tuning throughput."""
    runs: Sequence[dict[str, Any]] = results["runs"]
    rows = [
        [
            f"{run['batch_tokens']:,}",
            f"{run['tokens_a_second'] / 1e6:.2f}",
            f"{100 * run['share_of_bf16']:.0f}%",
        ]
        for run in runs
    ]
    rate = f"fraction of the GPU's measured bf16 throughput ({results['bf16_tflops']} TFLOP/s)"
    return ["tokens per batch", "million tokens per second", rate], rows
