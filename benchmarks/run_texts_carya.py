"""From raw texts to a saved model by the `carya` command, timed from outside, and how well it ranks."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure


def carya(*arguments):
    command = [sys.executable, "-c", "from carya.cli import main; main()", *map(str, arguments)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments, flags = parser.parse_known_args()  # the others are flags of carya train
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        options = ["--threads", arguments.threads, "--seed", arguments.seed, *flags]
        trained, took = carya("train", arguments.data, "-o", model, "--json", *options)
        found, _ = carya("evaluate", model, arguments.data, "--json")
    precision = {f"P@{k}": 100 * found[f"P@{k}"] for k in measure.KS}
    measure.emit({"text_to_model_s": took, "model_bytes": trained["bytes"], **precision})


if __name__ == "__main__":
    main()
