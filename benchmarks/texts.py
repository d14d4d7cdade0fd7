"""From raw texts to a model: Carya against scikit-learn's TF-IDF with libpecos, and the vectorizers alone.

    python benchmarks/texts.py DATA --peer-python VENV/bin/python [--flags FLAGS] [--vectorizers] [--out FILE]

DATA is a folder of texts (train.texts.txt.gz, train.labels.npz, …). Runs alternate; the medians are printed and, with
every run, written as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from launch import run_script


def alternate(rounds: int, runs: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name, run in runs.items():
            results[name].append(run(turn))
            print(f"round {turn + 1}, {name}: {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    return results


def medians(results: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Medians of times and sizes; means of precisions, which differ by the seed."""
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
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--vectorizers", action="store_true", help="compare the vectorizers alone")
    parser.add_argument("--flags", default="--preset fast", help="a second way to train, as flags of carya train")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    mine, peer, data = sys.executable, arguments.peer_python, arguments.data
    threads = ("--threads", arguments.threads)
    if arguments.vectorizers:
        runs = {
            "carya": lambda turn: run_script(mine, "run_tfidf.py", data, "--who", "carya", *threads),
            "sklearn": lambda turn: run_script(mine, "run_tfidf.py", data, "--who", "sklearn", *threads),
            "libpecos": lambda turn: run_script(peer, "run_tfidf.py", data, "--who", "libpecos", *threads),
        }
        measured = "fit_transform_s"
    else:
        runs = {
            "carya": lambda turn: run_script(mine, "run_texts_carya.py", data, *threads, "--seed", turn),
            f"carya {arguments.flags}": lambda turn: run_script(
                mine, "run_texts_carya.py", data, *threads, "--seed", turn, *arguments.flags.split()
            ),
            "sklearn + libpecos": lambda turn: run_script(
                peer, "run_texts_libpecos.py", data, *threads, "--seed", turn
            ),
        }
        measured = "text_to_model_s"
    results = alternate(arguments.rounds, runs)
    found = medians(results)
    for name, one in found.items():
        print(name, json.dumps({key: round(value, 3) for key, value in one.items()}))
    for name, one in found.items():
        ratio = one[measured] / found["carya"][measured]
        print(f"{name}: {measured} {one[measured]:.2f}, {ratio:.1f} times carya's")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        about = {"data": data.name, "threads": arguments.threads}
        arguments.out.write_text(json.dumps({**about, "medians": found, "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
