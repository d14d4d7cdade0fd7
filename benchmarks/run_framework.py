"""Run one configuration of the framework on a text folder: python run_framework.py DATA NAME

Without NAME, the script prints the names of all configurations. The features are computed with carya.Tfidf, as in the
other benchmarks; Reranked models additionally use character n-grams, which are compared only with label names. Label
names serve as label texts. The script prints JSON with P@1/3/5, R@10 and PSP@1/3/5 on the test set, and with the
wall-clock and CPU times of training (in seconds) and of batch ranking (in milliseconds per row).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import carya
from carya.models.presets import PRESETS
from carya.models.training_data import TrainingData
from carya.ranking import BoostedRanker, NeuralRanker
from carya.text.default_vectorizer import default_vectorizer, name_columns

import measure

PAPER = {"negatives": "teacher", "transform": "l3-hinge"}
BOTH = {"negatives": "both", "transform": ("l3-hinge", "noop")}


def _tree(**settings: Any) -> Callable[[int], Any]:
    return lambda jobs: carya.XRLinear(n_jobs=jobs, **settings)


def _trees(combine: str = "mean", **settings: Any) -> Callable[[int], Any]:
    return lambda jobs: carya.Ensemble(carya.XRLinear(n_jobs=jobs, **settings), n_trees=3, combine=combine, n_jobs=jobs)


def _preset(name: str) -> Callable[[int], Any]:
    return lambda jobs: carya.preset(name, n_jobs=jobs)


def _trees_and_neighbors(jobs: int) -> Any:
    """Return an ensemble of a nearest-neighbor model and trees with different label representations."""
    members = [
        carya.XRLinear(n_jobs=jobs),
        carya.XRLinear(n_jobs=jobs, representation="spectral", seed=1),
        carya.NearestNeighbors(over="rows", n_jobs=jobs),
    ]
    return carya.Ensemble(members, combine="rank", weights="learned", n_jobs=jobs)


def _reranked(ranker: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda jobs: carya.Reranked(ranker=ranker(jobs), n_jobs=jobs)


#: Configurations by group. The names are keys in results/*-framework.json, so they stay the same when parameters are
#: renamed; framework.TITLES contains the display names.
ROWS: dict[str, dict[str, Callable[[int], Any]]] = {
    "presets": {"default": _tree()} | {name: _preset(name) for name in PRESETS},
    "ablation": {
        **{f"B={B}, T=1": _tree(branching=B, **PAPER) for B in (2, 8, 32)},
        **{f"B={B}, T=3": _trees(branching=B, **PAPER) for B in (2, 8, 32)},
        "random tree": _tree(clustering="random", **PAPER),
        "TFN": _tree(**PAPER),
        "TFN + MAN": _tree(**BOTH),
    },
    "indexing": {
        "pii": _tree(representation="pii"),
        "spectral": _tree(representation="spectral"),
        "graph of labels of the same rows": _tree(representation="graph"),
        "pifa + label names": _tree(representation="pifa+lf"),
        "beam 2": _tree(beam_width=2),
        "beam 2, overlapping (copies=3)": _tree(beam_width=2, clusters_per_label=3),
        "overlapping (copies=3)": _tree(clusters_per_label=3),
    },
    "ranking": {
        "logistic": _tree(loss="logistic"),
        "hinge": _tree(loss="hinge"),
        "L1, cost 8": _tree(penalty="l1", C=8.0, **PAPER),
        "weighted clusters (relevance=induce)": _tree(relevance="induce", relevance_norm="max"),
        "reranked, listwise": _reranked(lambda jobs: BoostedRanker(objective="listwise", n_jobs=jobs)),
        "reranked, neural": _reranked(lambda jobs: NeuralRanker()),
    },
    "ensembles": {
        "3 trees, mean": _trees(),
        "3 trees, rank": _trees("rank"),
        "3 trees, count": _trees("count"),
        "3 trees, softmax": _trees("softmax"),
        "3 trees, sigmoid": _trees("sigmoid"),
        "trees and neighbours, learned weights": _trees_and_neighbors,
    },
}


def metrics(Y: Any, Yt: Any, S: Any) -> dict[str, float]:
    """Return the metrics shown in the tables, in percent."""
    report = carya.metrics.report(Yt, S, k=(1, 3, 5, 10), propensity=carya.metrics.propensities(Y))
    return {name: 100 * report[name] for name in ("P@1", "P@3", "P@5", "R@10", "PSP@1", "PSP@3", "PSP@5")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.name is None:
        measure.emit({group: list(rows) for group, rows in ROWS.items()})
        return
    jobs, data = arguments.threads, arguments.data
    model = next(rows[arguments.name] for rows in ROWS.values() if arguments.name in rows)(jobs)
    vectorizer = default_vectorizer(model, n_jobs=jobs)
    X = vectorizer.fit_transform(measure.read_texts(data, "train"))
    Xt = vectorizer.transform(measure.read_texts(data, "test"))
    Y, Yt = (measure.read(data, f"{part}.labels.npz") for part in ("train", "test"))
    options: dict[str, Any] = {"name_columns": name_columns(model, vectorizer)}
    if model.uses_label_features:
        options["label_features"] = vectorizer.transform(measure.label_names(data))

    def train() -> Any:
        model.check_parameters()
        return model.fit_data(TrainingData.of(X, Y, **options))

    def warm_up(model: Any) -> Any:
        model.predict(Xt[:50])
        return model

    S, times = measure.train_and_rank(train, lambda model: model.predict(Xt, top_k=measure.TOP_K), Xt.shape[0], warm_up)
    measure.emit(times | metrics(Y, Yt, S))


if __name__ == "__main__":
    main()
