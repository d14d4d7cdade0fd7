"""Tables for docs/scale.md, from the results of scale.py and cluster_simulation.py."""

from __future__ import annotations

from typing import Any

_Table = tuple[list[str], list[list[str]]]


def _by_size(results: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(results["runs"], key=lambda run: (run["data"], run["labels"]))


def planned(run: dict[str, Any], name: str) -> float:
    """Return the mean of the estimates made before and after a run."""
    return float(sum(plan[name] for plan in run["plans"]) / len(run["plans"]))


def costs(results: dict[str, Any]) -> _Table:
    """Return the headings and rows of the table of measured times, memory use and model sizes."""
    headings = ["data", "rows", "features", "labels", "labels per row", "CPU s / threads", "peak memory, MB"]
    rows = [
        [
            f"{run['data']} × {run['scale']:g}",
            f"{run['rows']:,}",
            f"{run['features']:,}",
            f"{run['labels']:,}",
            f"{run['labels_per_row']:.1f}",
            f"{run['cpu_s'] / run['threads']:.1f}",
            f"{run['peak_mb']:,.0f}",
            f"{run['model_bytes'] / 1e6:,.1f}",
            f"{run['one_row_cpu_us']:.0f}",
        ]
        for run in _by_size(results)
    ]
    return [*headings, "model, MB", "one query, CPU µs"], rows


def plans(results: dict[str, Any]) -> _Table:
    """Return the headings and rows of the table that compares estimates with measurements."""
    rows = [
        [
            f"{run['data']} × {run['scale']:g}",
            f"{run['labels']:,}",
            *(
                f"{100 * (planned(run, name) / measured - 1):+.0f}%"
                for name, measured in (
                    ("cpu_seconds", run["cpu_s"]),
                    ("peak_bytes", run["peak_mb"] * 2**20),
                    ("model_bytes", run["model_bytes"]),
                    ("query_us", run["one_row_cpu_us"]),
                )
            ),
        ]
        for run in _by_size(results)
    ]
    return ["data", "labels", "CPU time", "peak memory", "model size", "latency"], rows


def simulation(results: dict[str, Any]) -> _Table:
    """Return the headings and rows of the table of simulated training runs."""
    rows = [
        [
            run["name"] if number == 0 else "",
            phase["phase"],
            f"{phase['tasks']:,}",
            f"{phase['seconds'] / 60:,.1f}",
            f"{phase['lower_bound_s'] / 60:,.1f}",
            f"{phase['longest_task_s'] / 60:,.1f}",
            f"{100 * phase['utilization']:.0f}%",
        ]
        for run in results["runs"]
        for number, phase in enumerate(run["phases"])
    ]
    headings = ["training", "phase", "tasks", "time, min", "lower bound, min", "longest task, min", "workers busy"]
    return headings, rows
