"""One run of carya.Reranked on a folder of texts: python run_reranked.py DATA [--no-label-texts] [--ranker neural]

Features are those of carya.Tfidf, which are the reference features of the other runs, and, unless --words is told, of
characters, which only the names of labels are compared with. Prints JSON: precision of the trees alone and reranked,
seconds, and seconds of all threads together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import carya
from carya.models.reranked.column_views import views
from carya.ranking import AveragedRanker, BoostedRanker, NeuralRanker
from carya.text.default_vectorizer import about_columns, suited

import measure

RANKERS = {
    "averaged": lambda jobs: AveragedRanker([BoostedRanker(n_jobs=jobs), NeuralRanker()]),
    "pairwise": lambda jobs: BoostedRanker(n_jobs=jobs),
    "listwise": lambda jobs: BoostedRanker(objective="listwise", n_jobs=jobs),
    "neural": lambda jobs: NeuralRanker(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--no-label-texts", action="store_true")
    parser.add_argument("--words", action="store_true", help="features of words alone")
    parser.add_argument("--trees", type=int, default=2)
    parser.add_argument("--ranker", choices=RANKERS, default="averaged")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="test", help="what is ranked: test, or dev")
    arguments = parser.parse_args()
    arguments.words |= arguments.no_label_texts
    data, jobs = arguments.data, arguments.threads
    trees = [carya.XRLinear(n_jobs=jobs, seed=arguments.seed + tree) for tree in range(arguments.trees)]
    ranker = RANKERS[arguments.ranker](jobs)
    training = {"rounds": arguments.rounds, "ranker_rows": arguments.rows, "seed": arguments.seed}
    model = carya.Reranked(trees, ranker, n_jobs=jobs, **training)
    texts = suited(model, n_jobs=jobs, **({"analyzer": "word"} if arguments.words else {}))
    X = texts.fit_transform(measure.read_texts(data, "train"))
    Xt = texts.transform(measure.read_texts(data, arguments.part))
    Y, Yt = (measure.read(data, f"{part}.labels.npz") for part in ("train", arguments.part))
    about: dict[str, Any] = {}
    if not arguments.no_label_texts:
        about = {"label_features": texts.transform(measure.label_names(data)), **about_columns(model, texts)}
    started, worked = time.perf_counter(), time.process_time()
    model.fit(X, Y, **about)
    result = {"fit_s": time.perf_counter() - started, "fit_cpu_s": time.process_time() - worked}
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        result["model_bytes"] = measure.folder_bytes(f"{folder}/model")
        model = carya.load(f"{folder}/model")
        model.predict(Xt[:50])
        started, worked = time.perf_counter(), time.process_time()
        S = model.predict(Xt, top_k=measure.TOP_K)
        result["batch_ms"] = (time.perf_counter() - started) / Xt.shape[0] * 1e3
        result["batch_cpu_ms"] = (time.process_time() - worked) / Xt.shape[0] * 1e3
        result |= measure.precision(Yt, S)
        seen = views(carya.core.validation.features(Xt), about.get("columns", Xt.shape[1])).trees.as_given()
        for number, tree in enumerate(model.members_):
            alone = measure.precision(Yt, tree.predict(seen, top_k=measure.TOP_K))
            result |= {f"tree {number} {name}": value for name, value in alone.items()}
        result |= measure.latency(lambda row: model.rank(Xt[[row]], top_k=measure.TOP_K), Xt.shape[0], count=300)
    measure.emit(result)


if __name__ == "__main__":
    main()
