"""Train and query one model on a folder of matrices: python run_scale.py FOLDER --threads 2 [--set name=JSON ...]

The script prints the time and the peak memory of every training stage, the size of the saved model and the single-query
latency as one line of JSON.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import carya
from carya.core.matrices import Csr
from carya.core.progress import Progress, Report
from carya.matching import union_shortlists

import measure

QUERIES = 3000


class StageCosts(Progress):
    """Progress display that records the time and peak memory of each stage; "other" is the time between stages."""

    def __init__(self) -> None:
        self.stages: list[dict[str, Any]] = []
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        measure.reset_peak()

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        """Record the resource usage since the last stage as "other", and then the resource usage of this stage."""
        self.record("other")
        yield None
        self.record(name)

    def record(self, name: str) -> None:
        """Record the resource usage since the last call."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.stages.append(
            {
                "stage": name,
                "wall_s": wall - self._wall,
                "cpu_s": cpu - self._cpu,
                "peak_mb": measure.peak_since_reset_mb(),
            }
        )
        measure.reset_peak()
        self._wall, self._cpu = time.perf_counter(), time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a parameter of XRLinear")
    arguments = parser.parse_args()
    model = carya.XRLinear(n_jobs=arguments.threads, **measure.settings(arguments.set))
    costs = StageCosts()
    data: Any = carya.data.open_data(arguments.folder)
    costs.record("read")
    (n_rows, n_features), n_labels = data.X.shape, data.Y.shape[1]
    result: dict[str, Any] = {
        "rows": n_rows,
        "features": n_features,
        "labels": n_labels,
        "features_per_row": data.X.nnz / n_rows,
        "labels_per_row": data.Y.nnz / n_rows,
        "threads": arguments.threads,
        "parameters": measure.settings(arguments.set),
    }
    shortlists: list[float] = []

    def union(*arguments: Any, **options: Any) -> Csr:
        shortlist = union_shortlists(*arguments, **options)
        shortlists.append(shortlist.indices.size / n_rows)
        return shortlist

    training = "carya.models.xr_linear.training"
    with (
        mock.patch(f"{training}.show_progress", return_value=costs),
        mock.patch(f"{training}.union_shortlists", side_effect=union),
    ):
        model.fit(data)
    costs.record("other")
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        costs.record("save")
        result["stages"] = costs.stages
        result["wall_s"] = sum(stage["wall_s"] for stage in costs.stages)
        result["cpu_s"] = sum(stage["cpu_s"] for stage in costs.stages)
        result["peak_mb"] = max(stage["peak_mb"] for stage in costs.stages)
        result["model_bytes"] = measure.folder_bytes(f"{folder}/model")
        result["tree"] = list(model.tree_.level_sizes)
        result["layers"] = [
            {"nodes": layer.n_nodes, "weights": layer.weights.n_weights, "bytes": layer.weights.n_bytes}
            for layer in model.layers_
        ]
        result["clusters_per_row"] = shortlists  # for each layer except the first
        del data, model
        opened = carya.load(f"{folder}/model")
        test: Any = carya.data.open_data(arguments.folder, part="test")
        queries = test.X
        count = min(QUERIES, queries.shape[0])
        rows = [queries[[row]] for row in range(count)]
        wall = measure.latency(lambda row: opened.rank(rows[row], top_k=measure.TOP_K), count, count=count, repeats=3)
        result |= wall
        _, _, single_cpu_s = measure.timed(lambda: [opened.rank(row, top_k=measure.TOP_K) for row in rows])
        result["one_row_cpu_us"] = 1e6 * single_cpu_s / count
        batch = queries[:count]
        _, _, batch_cpu_s = measure.timed(lambda: opened.predict(batch, top_k=measure.TOP_K))
        result["batch_cpu_us"] = 1e6 * batch_cpu_s / count
        result["test_features_per_row"] = float(np.diff(batch.indptr).mean())
    measure.emit(result)


if __name__ == "__main__":
    main()
