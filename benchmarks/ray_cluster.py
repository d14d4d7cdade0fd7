"""Measure training and prediction on a Ray cluster: times by number of nodes, reproducibility, and fault tolerance.

python benchmarks/ray_cluster.py FOLDER [--nodes 1,2,4] [--kills 20] [--predict-kills 20] [--output ray.json]

FOLDER contains feature and label matrices, such as those written by `carya data synth`. The nodes are separate
processes on this machine, each with one CPU (`ray.cluster_utils.Cluster`). Runs on the cluster alternate with
single-threaded runs without Ray; the reported times are medians. To test node failures, a node is added and then
killed at a random time during training or prediction. Predictions use shards of 256 rows. The results are written to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import platform
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

import carya
from carya.cluster import prediction

RESULTS = Path(__file__).parent / "results"
MEMORY = 80 * 2**20  # size of the object store; matrices and models are read from files instead


def digest(folder: Path) -> str:
    """Return the hash of a saved model."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def train(X: Any, Y: Any, engine: carya.RayEngine | None = None) -> tuple[float, str]:
    """Train a model from scratch, without reusing checkpoints; return the time in seconds and the hash of the model."""
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"n_jobs": 1}
        if engine is not None:
            options["checkpoint_dir"] = f"{folder}/checkpoints"
        started = time.perf_counter()
        model = carya.XRLinear(**options).fit(X, Y, engine=engine)
        seconds = time.perf_counter() - started
        model.save(f"{folder}/model")
        return seconds, digest(Path(folder, "model"))


def predict(model: Path, data: Path, engine: carya.RayEngine) -> tuple[float, str]:
    """Rank labels for all rows; return the time in seconds and the hash of the scores."""
    started = time.perf_counter()
    S = engine.predict(model, data, part="train")
    return time.perf_counter() - started, digest_scores(S)


def digest_scores(S: Any) -> str:
    """Return the hash of a score matrix."""
    arrays = (S.indptr.astype("int64"), S.indices.astype("int32"), S.data)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def start_cluster(n_nodes: int) -> Any:
    """Start a cluster of nodes with one CPU each."""
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": MEMORY})
    for _ in range(n_nodes - 1):
        cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    return cluster


def measure_nodes(X: Any, Y: Any, n_nodes: int, runs: int) -> dict[str, Any]:
    """Return the median training times without Ray and on a cluster, and whether all models are identical."""
    cluster = start_cluster(n_nodes)
    engine = carya.RayEngine(cluster.address)
    train(X, Y, engine)  # starts the worker processes
    results = [(train(X, Y), train(X, Y, engine)) for _ in range(runs)]
    ray.shutdown()
    cluster.shutdown()
    return {
        "nodes": n_nodes,
        "seconds_without_ray": round(statistics.median(alone[0] for alone, _ in results), 2),
        "seconds": round(statistics.median(on_cluster[0] for _, on_cluster in results), 2),
        "identical": len({run[1] for pair in results for run in pair}) == 1,
    }


def measure_kills(X: Any, Y: Any, kills: int) -> dict[str, int]:
    """Train several times, each time killing a node at a random time; return the number of correct models."""
    cluster = start_cluster(1)
    engine = carya.RayEngine(cluster.address)
    seconds, expected = train(X, Y)
    train(X, Y, engine)
    correct = 0
    for number in range(kills):
        node = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        kill = functools.partial(cluster.remove_node, node, allow_graceful=False)
        timer = threading.Timer(random.Random(number).uniform(0, seconds), kill)
        timer.start()
        is_correct = train(X, Y, engine)[1] == expected
        timer.join()
        correct += is_correct
        print(f"training {number}: correct: {is_correct}", flush=True)
    ray.shutdown()
    cluster.shutdown()
    return {"runs": kills, "correct": correct}


def measure_prediction_kills(X: Any, Y: Any, data: Path, kills: int) -> dict[str, Any]:
    """Predict repeatedly, killing a node at a random moment in each run; return the number of correct predictions."""
    prediction.BATCH_SIZE = 256
    cluster = start_cluster(1)
    engine = carya.RayEngine(cluster.address)
    with tempfile.TemporaryDirectory() as folder:
        model = carya.XRLinear(n_jobs=1).fit(X, Y)
        model.save(f"{folder}/model")
        expected = digest_scores(model.predict(X))
        predict(Path(folder, "model"), data, engine)  # starts the worker processes
        seconds, _ = predict(Path(folder, "model"), data, engine)
        times, correct = [], 0
        for number in range(kills):
            node = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
            kill = functools.partial(cluster.remove_node, node, allow_graceful=False)
            timer = threading.Timer(random.Random(number).uniform(0, seconds), kill)
            timer.start()
            own_seconds, result = predict(Path(folder, "model"), data, engine)
            timer.join()
            times.append(own_seconds)
            correct += result == expected
            print(f"prediction {number}: {own_seconds:.1f} s, correct: {result == expected}", flush=True)
    ray.shutdown()
    cluster.shutdown()
    return {
        "runs": kills,
        "correct": correct,
        "seconds_without_failure": round(seconds, 1),
        "seconds": round(statistics.median(times), 1),
    }


def main() -> None:
    """Run the measurements and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", default="1,2,4")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--predict-kills", type=int, default=20)
    parser.add_argument("--output", default="ray.json")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    matrices = carya.data.open_data(folder, part="train")
    if not isinstance(matrices, carya.data.Matrices):
        parser.error(f"{folder} contains texts. Pass a folder with matrices.")
    X, Y = matrices.X, matrices.Y
    results = {
        "data": folder.name,
        "machine": platform.processor() or platform.machine(),
        "ray": ray.__version__,
        "nodes": [measure_nodes(X, Y, int(n), arguments.runs) for n in arguments.nodes.split(",") if n],
        "kills": measure_kills(X, Y, arguments.kills) if arguments.kills else None,
        "prediction_kills": measure_prediction_kills(X, Y, folder, arguments.predict_kills)
        if arguments.predict_kills
        else None,
    }
    (RESULTS / arguments.output).write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
