"""Tests for training and prediction on a Ray cluster with several nodes on this machine."""

from __future__ import annotations

import functools
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.cluster.rank_rows import Rankings, RankRows, SharedModel, concatenate
from carya.cluster.row_sources import FeatureFiles, Shard, TextFiles, divide_rows
from carya.data.io.matrix_files import read_matrix
from carya.errors import InputError, ParameterError
from carya.models.xr_linear import matching_task, representation_task
from carya.ranking import NeuralRanker
from carya.ranking.tasks import parts, solve_part

from command_line import run
from matrix_helpers import same_matrix
from small_tree import X, Y, content, tree
from topics import corpus

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

MEMORY = 80 * 2**20
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data")  # Ray itself uses deprecated settings


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster with two nodes, whose workers import this copy of the package and the tests."""
    os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.getenv("PYTHONPATH")]))
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": MEMORY})
    cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide training into many small tasks."""
    monkeypatch.setattr(solve_part, "divide", functools.partial(parts.divide, max_work=3e5))
    monkeypatch.setattr(representation_task, "MAX_WORK", 2e3)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("local") / "model"
    tree().fit(X, Y).save(folder)
    return content(folder)


def test_the_result_is_the_same_on_a_cluster(cluster: Any, local: list[bytes], tmp_path: Path) -> None:
    engine = carya.RayEngine(cluster.address)
    tree(checkpoint_dir=str(tmp_path / "checkpoints")).fit(X, Y, engine=engine).save(tmp_path / "model")
    assert content(tmp_path / "model") == local
    names = {path.name.split("-")[0] for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"features", "label", "layer", "matcher", "positives", "problem", "shortlist"}
    assert len(list((tmp_path / "checkpoints").glob("label-vectors-*"))) > 3
    assert len(list((tmp_path / "checkpoints").glob("layer-3-*"))) > 3


@pytest.mark.parametrize("attempt", range(3))
def test_a_failing_node_does_not_change_the_result(
    cluster: Any, local: list[bytes], tmp_path: Path, attempt: int
) -> None:
    node = cluster.add_node(num_cpus=2, object_store_memory=MEMORY)
    delay = random.Random(attempt).uniform(0, 0.5)
    timer = threading.Timer(delay, functools.partial(cluster.remove_node, node, allow_graceful=False))
    timer.start()
    engine = carya.RayEngine(cluster.address)
    tree(checkpoint_dir=str(tmp_path / "checkpoints")).fit(X, Y, engine=engine).save(tmp_path / "model")
    timer.join()
    assert content(tmp_path / "model") == local


def test_ensembles_and_rerankers(cluster: Any, tmp_path: Path) -> None:
    texts, labels = corpus(300)
    weights = np.arange(300) % 2 + 1
    engine = carya.RayEngine(cluster.address)

    def models(checkpoint_dir: str | None) -> list[Any]:
        base = tree(checkpoint_dir=checkpoint_dir)
        return [
            carya.Ensemble(base, n_trees=2),
            carya.Ensemble([base, carya.NearestNeighbors()]),
            carya.Reranked(base, NeuralRanker(epochs=2)),
            tree(checkpoint_dir=checkpoint_dir, clusters_per_label=2, transform="l3-hinge"),
        ]

    for on_cluster, alone in zip(models(str(tmp_path / "checkpoints")), models(None), strict=True):
        fit = functools.partial(carya.TextRanker(carya.Tfidf(min_df=1), on_cluster).fit, texts, labels)
        fit(sample_weight=weights, engine=engine).save(tmp_path / "a")
        carya.TextRanker(carya.Tfidf(min_df=1), alone).fit(texts, labels, sample_weight=weights).save(tmp_path / "b")
        assert content(tmp_path / "a") == content(tmp_path / "b")


class SlowRanker:
    """Function that ranks the rows of a shard slowly, and records the node on which it runs."""

    def __init__(self, function: RankRows, folder: Path) -> None:
        self.function = function
        self.folder = folder

    def __call__(self, shard: Shard) -> Rankings:
        node = ray.get_runtime_context().get_node_id()
        (self.folder / f"{node}-{shard.first}").touch()
        time.sleep(0.1)
        return self.function(shard)


def test_a_failing_node_does_not_change_predictions(cluster: Any, tmp_path: Path) -> None:
    model = tree().fit(X, Y)
    model.save(tmp_path / "model")
    sp.save_npz(tmp_path / "x.npz", X)
    records = tmp_path / "records"
    records.mkdir()
    node = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)

    def kill() -> None:
        while not any(records.glob(f"{node.node_id}-*")):
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    source = FeatureFiles(tmp_path / "x.npz", functools.partial(read_matrix, tmp_path / "x.npz"))
    function = SlowRanker(RankRows(SharedModel.of(tmp_path / "model"), source, {"top_k": 5}, 20, 1), records)
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    results = list(carya.RayEngine(cluster.address).map(function, divide_rows(1500, 20)))
    killer.join()
    indptr, labels, scores = concatenate([(result.indptr, result.labels, result.scores) for result in results])
    expected = model.predict(X, top_k=5)
    for array, other in ((indptr, expected.indptr), (labels, expected.indices), (scores, expected.data)):
        np.testing.assert_array_equal(array, other)
    assert len({path.name.partition("-")[0] for path in records.iterdir()}) == 3


def test_prediction(cluster: Any, tmp_path: Path) -> None:
    texts, labels = corpus(300)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1), tree()).fit(texts, labels)
    ranker.save(tmp_path / "model")
    (tmp_path / "data.txt").write_text("\n".join(texts) + "\n")
    engine = carya.RayEngine(cluster.address)
    assert same_matrix(engine.predict(tmp_path / "model", tmp_path / "data.txt"), ranker.predict(texts))
    assert engine.predict(tmp_path / "model", []).shape == (0, len(ranker.labels_))
    arguments = ["predict", "model", "data.txt", "--top-k", "3"]
    alone, on_cluster = (run(*arguments, *more, cwd=tmp_path) for more in ([], ["--ray", cluster.address]))
    assert on_cluster.returncode == 0, on_cluster.stderr
    assert on_cluster.stdout == alone.stdout
    with pytest.raises(InputError, match="has only 300 rows on the machine"):
        list(engine.map(TextFiles(tmp_path, functools.partial(list, texts)).read, [Shard(0, 10), Shard(290, 20)]))


def test_tuning(cluster: Any, tmp_path: Path) -> None:
    """Trials on a cluster give the same results as on this machine, and a failed worker does not end the search."""
    pytest.importorskip("optuna")
    texts, labels = corpus(300)
    options: dict[str, Any] = {"budget": "5m", "max_trials": 2, "models": ["trees"], "n_parallel": 1}
    engine = carya.RayEngine(cluster.address)
    on_cluster = carya.tune(texts, labels, engine=engine, work_dir=tmp_path / "work", **options)
    alone = carya.tune(texts, labels, n_jobs=1, **options)
    assert on_cluster.recipe.to_dict()["model"] == alone.recipe.to_dict()["model"]
    for trial, other in zip(on_cluster.trials, alone.trials, strict=True):
        assert trial.measured is not None
        assert other.measured is not None
        assert trial.measured.metrics == other.measured.metrics
    assert not list((tmp_path / "work").iterdir())
    pool = engine.open_pool(functools.partial(getattr, os, "_exit"), 1)
    pool.start(7, 1)
    assert pool.running == [7]
    number, result, error = next(filter(None, (next(iter(pool.wait(1)), None) for _ in range(60))))
    assert (number, result, pool.n_idle) == (7, None, 1)
    assert error is not None
    assert error.startswith("the worker failed")
    pool.close()


def test_errors_of_tasks_are_raised(cluster: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    carya.RayEngine(cluster.address).run([])
    task = matching_task.MatchRows(folder, "no such data", "", 0, 10)
    with pytest.raises(carya.errors.ModelFormatError, match="must be shared by all machines"):
        carya.RayEngine(cluster.address).run([task])
    message = "threads_per_task must be at most 1, the number of CPUs of the largest machine in the cluster, got 2"
    with pytest.raises(InputError, match=message):
        carya.RayEngine(cluster.address, threads_per_task=2).run([task])


def test_invalid_engines_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="engine requires checkpoint_dir, a folder that all machines share"):
        tree().fit(X, Y, engine=carya.RayEngine())
    with pytest.raises(InputError, match=r"engine must be an engine such as carya\.RayEngine, or None, got 'ray'"):
        tree(checkpoint_dir=str(tmp_path)).fit(X, Y, engine="ray")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="threads_per_task must be an integer >= 1, got 0"):
        carya.RayEngine(threads_per_task=0)
    with pytest.raises(InputError, match="engine is not used by any of the models"):
        carya.TextRanker(model=carya.NearestNeighbors()).fit(["a b", "b c"], ["x", "y"], engine=carya.RayEngine())


def test_command_line(cluster: Any, tmp_path: Path) -> None:
    texts, labels = corpus(300)
    lines = [f"{text},{';'.join(names)}" for text, names in zip(texts, labels, strict=True)]
    (tmp_path / "data.csv").write_text("text,labels\n" + "\n".join(lines) + "\n")
    arguments = ["train", "data.csv", "--max-leaf-size", "5", "--trees", "2"]
    options = ["--checkpoint", "checkpoints", "--ray", cluster.address]
    for command in ([*arguments, "-o", "a", *options], [*arguments, "-o", "b"]):
        result = run(*command, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert content(tmp_path / "a") == content(tmp_path / "b")
    for wrong, message in (
        (["--ray", "auto"], "--ray requires --checkpoint, a folder that all machines share."),
        (["--ray", "auto", "--preset", "annexml"], "--ray requires a model with label trees"),
    ):
        result = run("train", "data.csv", "-o", "c", *wrong, cwd=tmp_path)
        assert result.returncode == 2
        assert message in result.stderr
