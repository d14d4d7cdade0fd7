"""Results as Markdown tables: python benchmarks/table.py benchmarks/results/*.json

First those of compare.py, then those of latency.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def training(results: list[dict[str, Any]]) -> None:
    print("| data, negatives | index + train, s | P@1 / 3 / 5 | memory, MB |")
    print("|---|---|---|---|")
    for result in results:
        ours, theirs = result["summary"]["carya"], result["summary"][result["peer"]]
        title = f"{result['data']}, {result['negatives']}"
        if result["dense"]:
            title += f", + {result['dense']} dense columns"
        if result["seeds"] != 3:
            title += f" ({result['seeds']} seed)"
        precision = [" / ".join(f"{one[f'P@{k}']:.2f}" for k in (1, 3, 5)) for one in (ours, theirs)]
        print(
            f"| {title} | **{ours['total_s']:.1f}** vs {theirs['total_s']:.1f}: "
            f"**{result['ratios']['total_s']:.0f}×** | {precision[0]} vs {precision[1]} | "
            f"{ours['train_peak_mb']:.0f} vs {theirs['train_peak_mb']:.0f} |"
        )


def answering(results: list[dict[str, Any]]) -> None:
    print("| data | system | one row, µs: median, p99 | batch, µs a row | open, ms | model, MB | serving, MB |")
    print("|---|---|---|---|---|---|---|")
    for result in results:
        for system, one in result["systems"].items():
            batch = f"{1e3 * one['batch_ms']:.1f}" if "batch_ms" in one else "–"
            print(
                f"| {result['data']} | {system} | {1e3 * one['one_row_ms']:.0f}, {1e3 * one['one_row_ms_p99']:.0f} | "
                f"{batch} | {1e3 * one['load_s']:.0f} | {one['model_bytes'] / 1e6:.0f} | {one['resident_mb']:.0f} |"
            )


def main() -> None:
    results = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    if compared := [result for result in results if "summary" in result]:
        training(compared)
    if timed := [result for result in results if "systems" in result]:
        answering(timed)


if __name__ == "__main__":
    main()
