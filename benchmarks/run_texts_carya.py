"""Measure the time from raw texts to a saved model with the `carya` command, and the precision of the model."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure


def carya(*arguments: object) -> tuple[dict[str, Any], float]:
    """Run the `carya` command; return its JSON output and the wall-clock time in seconds."""
    command = [sys.executable, "-c", "from carya.cli import main; main()", *map(str, arguments)]
    started = time.perf_counter()
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(process.stdout), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments, train_options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        # The peers use word unigrams and bigrams. Options passed to this script override --analyzer.
        options = ["--analyzer", "word", "--n-jobs", arguments.threads, "--seed", arguments.seed, *train_options]
        trained, seconds = carya("train", arguments.data, "-o", model, "--json", *options)
        measured, _ = carya("evaluate", model, arguments.data, "--json")
    precision = {f"P@{k}": 100 * measured[f"P@{k}"] for k in measure.KS}
    measure.emit({"text_to_model_s": seconds, "model_bytes": trained["bytes"], **precision})


if __name__ == "__main__":
    main()
