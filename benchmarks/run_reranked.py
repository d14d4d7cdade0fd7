"""Run carya.Reranked once on a text folder: python run_reranked.py DATA [--no-label-texts] [--ranker neural]

The features are computed with carya.Tfidf, as in the other benchmarks; without --words, they also include character
n-grams, which are compared only with label names. The script prints JSON with the precision with and without reranking,
and with wall-clock and CPU times.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import carya
from carya.core import validation
from carya.models.reranked.column_views import first_columns
from carya.models.training_data import TrainingData
from carya.ranking import AveragedRanker, BoostedRanker, NeuralRanker
from carya.text.default_vectorizer import default_vectorizer, name_columns

import measure

RANKERS: dict[str, Callable[[int], Any]] = {
    "averaged": lambda jobs: AveragedRanker([BoostedRanker(n_jobs=jobs), NeuralRanker()]),
    "pairwise": lambda jobs: BoostedRanker(n_jobs=jobs),
    "listwise": lambda jobs: BoostedRanker(objective="listwise", n_jobs=jobs),
    "neural": lambda jobs: NeuralRanker(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--no-label-texts", action="store_true", help="ignore the label names; implies --words")
    parser.add_argument("--words", action="store_true", help="use word features only")
    parser.add_argument("--trees", type=int, default=2)
    parser.add_argument("--ranker", choices=RANKERS, default="averaged")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=10_000, help="maximum number of rows for training the reranker")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="test", help="split for evaluation: test or dev")
    arguments = parser.parse_args()
    words_only = arguments.words or arguments.no_label_texts
    data, jobs = arguments.data, arguments.threads
    model = carya.Reranked(
        [carya.XRLinear(n_jobs=jobs, seed=arguments.seed + tree) for tree in range(arguments.trees)],
        RANKERS[arguments.ranker](jobs),
        n_rounds=arguments.rounds,
        max_ranker_rows=arguments.rows,
        seed=arguments.seed,
        n_jobs=jobs,
    )
    vectorizer = default_vectorizer(model, n_jobs=jobs, **({"analyzer": "word"} if words_only else {}))
    X = vectorizer.fit_transform(measure.read_texts(data, "train"))
    Xt = vectorizer.transform(measure.read_texts(data, arguments.part))
    Y, Yt = (measure.read(data, f"{part}.labels.npz") for part in ("train", arguments.part))
    options: dict[str, Any] = {}
    if not arguments.no_label_texts:
        options["label_features"] = vectorizer.transform(measure.label_names(data))
        options["name_columns"] = name_columns(model, vectorizer)
    _, fit_s, fit_cpu_s = measure.timed(lambda: model.fit_data(TrainingData.of(X, Y, **options)))
    result: dict[str, float] = {"fit_s": fit_s, "fit_cpu_s": fit_cpu_s}
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        result["model_bytes"] = measure.folder_bytes(f"{folder}/model")
        opened = carya.load(f"{folder}/model")
        opened.predict(Xt[:50])
        S, batch_s, batch_cpu_s = measure.timed(lambda: opened.predict(Xt, top_k=measure.TOP_K))
        result["batch_ms"] = batch_s / Xt.shape[0] * 1e3
        result["batch_cpu_ms"] = batch_cpu_s / Xt.shape[0] * 1e3
        result |= measure.precision(Yt, S)
        n_columns = Xt.shape[1] - (options.get("name_columns") or 0)
        tree_queries = first_columns(validation.check_features(Xt), n_columns).to_input()
        for number, tree in enumerate(opened.members_):
            alone = measure.precision(Yt, tree.predict(tree_queries, top_k=measure.TOP_K))
            result |= {f"tree {number} {name}": value for name, value in alone.items()}
        result |= measure.latency(lambda row: opened.rank(Xt[[row]], top_k=measure.TOP_K), Xt.shape[0], count=300)
    measure.emit(result)


if __name__ == "__main__":
    main()
