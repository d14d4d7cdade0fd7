"""The results of compare.py as one Markdown table: python benchmarks/table.py benchmarks/results/*.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    print("| data, negatives | index + train, s | P@1 / 3 / 5 | memory, MB |")
    print("|---|---|---|---|")
    for name in sys.argv[1:]:
        result = json.loads(Path(name).read_text())
        if "summary" not in result:
            continue
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


if __name__ == "__main__":
    main()
