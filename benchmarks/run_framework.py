"""One configuration of the framework on a folder of texts: python run_framework.py DATA NAME; without NAME, all names.

Features are those of carya.Tfidf, the reference features of the other runs; Reranked has characters too, which only the
names of labels are compared with. Texts of labels are their names. Prints JSON: P@1/3/5, R@10, PSP@1/3/5 on the test
part; seconds of training and milliseconds a row of ranking in batch, by the clock and of all threads together.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import carya
from carya.models.presets import PRESETS
from carya.ranking import BoostedRanker, NeuralRanker
from carya.text.default_vectorizer import about_columns, suited

import measure

PAPER = {"negatives": "teacher", "transform": "l3-hinge"}
BOTH = {"negatives": "both", "transform": ("l3-hinge", "noop")}


def _tree(**settings: Any) -> Callable[[int], Any]:
    return lambda jobs: carya.XRLinear(n_jobs=jobs, **settings)


def _trees(combine: str = "mean", weights: Any = None, **settings: Any) -> Callable[[int], Any]:
    return lambda jobs: carya.Ensemble(
        carya.XRLinear(n_jobs=jobs, **settings), n_trees=3, combine=combine, weights=weights, n_jobs=jobs
    )


def _mixed(jobs: int) -> Any:
    """Trees that differ in what labels are clustered by, and neighbours."""
    members = [
        carya.XRLinear(n_jobs=jobs),
        carya.XRLinear(n_jobs=jobs, representation="spectral", seed=1),
        carya.NearestNeighbours(over="rows", n_jobs=jobs),
    ]
    return carya.Ensemble(members, combine="rank", weights="learned", n_jobs=jobs)


#: Every row of the table, group by group.
ROWS: dict[str, dict[str, Callable[[int], Any]]] = {
    "presets": {"default": _tree()}
    | {name: (lambda jobs, name=name: carya.preset(name, n_jobs=jobs)) for name in PRESETS},
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
        "beam 2, overlapping (copies=3)": _tree(beam_width=2, copies=3),
        "overlapping (copies=3)": _tree(copies=3),
    },
    "ranking": {
        "logistic": _tree(loss="logistic", transform="sigmoid"),
        "hinge": _tree(loss="hinge"),
        "L1, cost 8": _tree(penalty="l1", cost=8.0, **PAPER),
        "weighted clusters (relevance=induce)": _tree(relevance="induce", relevance_norm="max"),
        "reranked, listwise": lambda jobs: carya.Reranked(
            ranker=BoostedRanker(objective="listwise", n_jobs=jobs), n_jobs=jobs
        ),
        "reranked, neural": lambda jobs: carya.Reranked(ranker=NeuralRanker(), n_jobs=jobs),
    },
    "ensembles": {
        "3 trees, mean": _trees(),
        "3 trees, rank": _trees("rank"),
        "3 trees, count": _trees("count"),
        "3 trees, softmax": _trees("softmax"),
        "3 trees, sigmoid": _trees("sigmoid"),
        "trees and neighbours, learned weights": _mixed,
    },
}


def metrics(Y: Any, Yt: Any, S: Any) -> dict[str, float]:
    """The metrics of the table in percent."""
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
    texts = suited(model, n_jobs=jobs)
    X = texts.fit_transform(measure.read_texts(data, "train"))
    Xt = texts.transform(measure.read_texts(data, "test"))
    Y, Yt = (measure.read(data, f"{part}.labels.npz") for part in ("train", "test"))
    about: dict[str, Any] = about_columns(model, texts)
    if model.uses_label_features:
        about["label_features"] = texts.transform(measure.label_names(data))

    def train() -> Any:
        return model.fit(X, Y, **about)

    def rank(model: Any) -> Any:
        return model.predict(Xt, top_k=measure.TOP_K)

    def warm_up(model: Any) -> Any:
        model.predict(Xt[:50])
        return model

    S, times = measure.train_and_rank(train, rank, Xt.shape[0], warm_up)
    measure.emit(times | metrics(Y, Yt, S))


if __name__ == "__main__":
    main()
