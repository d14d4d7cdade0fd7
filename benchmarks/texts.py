"""Compare Carya with scikit-learn's TF-IDF plus libpecos on raw texts, or compare only the vectorizers.

    python benchmarks/texts.py DATA --peer-python VENV/bin/python [--flags FLAGS] [--vectorizers] [--out FILE]

DATA is a text folder (train.texts.txt.gz, train.labels.npz, …). The systems alternate. The script prints the medians
and, with --out, writes the medians and all runs to a JSON file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launch import run_script

#: Measurements of one run by name.
Measurements = dict[str, Any]


def alternate(rounds: int, systems: Mapping[str, Callable[[int], Measurements]]) -> dict[str, list[Measurements]]:
    """Run each system once per round, with the round number as the random seed."""
    results: dict[str, list[Measurements]] = {name: [] for name in systems}
    for number in range(rounds):
        for name, run in systems.items():
            results[name].append(run(number))
            print(f"round {number + 1}, {name}: {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    return results


def summarize(results: Mapping[str, list[Measurements]]) -> dict[str, dict[str, float]]:
    """Return the median times and sizes, and the mean precision, which depends on the seed."""
    return {
        name: {
            key: (statistics.fmean if key.startswith("P@") else statistics.median)(run[key] for run in runs)
            for key in runs[0]
        }
        for name, runs in results.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--peer-python", required=True, help="Python interpreter with libpecos")
    parser.add_argument("--vectorizers", action="store_true", help="compare only the vectorizers")
    parser.add_argument("--flags", default="--preset fast", help="options of `carya train` for a second Carya model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    own, peer, data = sys.executable, arguments.peer_python, arguments.data
    threads = ("--threads", arguments.threads)
    systems: dict[str, Callable[[int], Measurements]]
    if arguments.vectorizers:
        systems = {
            "carya": lambda seed: run_script(own, "run_tfidf.py", data, "--who", "carya", *threads),
            "sklearn": lambda seed: run_script(own, "run_tfidf.py", data, "--who", "sklearn", *threads),
            "libpecos": lambda seed: run_script(peer, "run_tfidf.py", data, "--who", "libpecos", *threads),
        }
        measurement = "fit_transform_s"
    else:
        options = arguments.flags.split()
        systems = {
            "carya": lambda seed: run_script(own, "run_texts_carya.py", data, *threads, "--seed", seed),
            f"carya {arguments.flags}": lambda seed: run_script(
                own, "run_texts_carya.py", data, *threads, "--seed", seed, *options
            ),
            "sklearn + libpecos": lambda seed: run_script(
                peer, "run_texts_libpecos.py", data, *threads, "--seed", seed
            ),
        }
        measurement = "text_to_model_s"
    results = alternate(arguments.rounds, systems)
    medians = summarize(results)
    for name, measured in medians.items():
        print(name, json.dumps({key: round(value, 3) for key, value in measured.items()}))
    for name, measured in medians.items():
        ratio = measured[measurement] / medians["carya"][measurement]
        print(f"{name}: {measurement} {measured[measurement]:.2f}, {ratio:.1f} times Carya's value")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        setting = {"data": data.name, "threads": arguments.threads}
        arguments.out.write_text(json.dumps({**setting, "medians": medians, "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
