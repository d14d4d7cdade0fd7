"""Tune hyperparameters on the training rows of a text folder; compare the recipe with the defaults on the test rows.

    python benchmarks/run_tuning.py DATA --budget 10m --out result.json

DATA is a text folder (train.texts.txt.gz, train.labels.npz, …) with label names. The test rows are used only after the
search, to evaluate two models trained on all training rows: one with the defaults, and one with the recipe.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import carya
from carya.core.matrices import Csr
from carya.text.labels import LabelRows

import measure


def read(folder: Path, part: str) -> tuple[list[str], sp.csr_array]:
    return measure.read_texts(folder, part), sp.csr_array(sp.load_npz(folder / f"{part}.labels.npz"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--threads", type=int, default=-1)
    parser.add_argument("--parallel", type=int)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    texts, Y = read(arguments.data, "train")
    ids = [str(label) for label in range(Y.shape[1])]
    labels = LabelRows(Csr.of_scipy(Y).with_values(1), ids)
    names = dict(zip(ids, measure.label_names(arguments.data), strict=True))
    started = time.perf_counter()
    options: dict[str, Any] = {"n_jobs": arguments.threads, "n_parallel": arguments.parallel}
    tuning = carya.tune(texts, labels, names=names, budget=arguments.budget, **options)
    result: dict[str, Any] = {"elapsed": time.perf_counter() - started, "tuning": tuning.to_dict()}
    test_texts, test_Y = read(arguments.data, "test")
    for name, ranker in {"default": carya.TextRanker(), "tuned": tuning.recipe.build()}.items():
        ranker.set_params(n_jobs=arguments.threads)
        started = time.perf_counter()
        ranker.fit(texts, labels, names=names)
        seconds = time.perf_counter() - started
        S = ranker.predict(test_texts, top_k=5)
        columns = np.array([int(label) for label in ranker.labels_])
        S = sp.csr_array((S.data, columns[S.indices], S.indptr), shape=test_Y.shape)
        report = carya.metrics.report(test_Y, S)
        result[name] = {metric: report[metric] for metric in ("P@1", "P@3", "P@5")} | {"fit_seconds": seconds}
        print(name, result[name], flush=True)
    arguments.out.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
