"""Tests for training plans: estimates that do not depend on the speed of the machine, and the `carya plan` command."""

from __future__ import annotations

import importlib
import itertools
import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import carya
from carya.data.io.matrix_files import map_matrix, read_matrix
from carya.data.synthetic.files import write_matrices
from carya.errors import InputError, ParameterError
from carya.planning import cost_model
from carya.planning.plan import Plan
from carya.planning.sampling import DataSample
from carya.planning.schedule import makespan
from carya.planning.sizes import DataSizes

from command_line import run
from topics import corpus

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module", params=[("amazon-670k", 0.01), ("wiki10-31k", 0.1)])
def data(request: pytest.FixtureRequest) -> Any:
    X, Y = carya.data.synthesize(*request.param).matrices("train")
    return carya.data.Matrices.of(X, Y)


@pytest.fixture(scope="module")
def planned(data: Any) -> Plan:
    return carya.plan(data, carya.XRLinear(n_jobs=1))


@pytest.fixture(scope="module")
def trained(data: Any) -> carya.XRLinear:
    return carya.XRLinear(n_jobs=1).fit(data)


def test_the_tree_and_the_weights_are_those_of_the_trained_model(planned: Plan, trained: carya.XRLinear) -> None:
    assert planned.levels == trained.tree_.level_sizes
    levels = cost_model.train_levels(planned.sizes, carya.XRLinear(n_jobs=1), planned.rates)
    for level, layer in zip(levels, trained.layers_, strict=True):
        assert level.nodes == layer.n_nodes
    assert levels[-1].weights == pytest.approx(trained.layers_[-1].weights.n_weights, rel=0.25)


def test_the_size_of_the_saved_model_is_estimated(planned: Plan, trained: carya.XRLinear, tmp_path: Path) -> None:
    trained.save(tmp_path / "model")
    size = sum(file.stat().st_size for file in (tmp_path / "model").iterdir())
    assert planned.model_bytes == pytest.approx(size, rel=0.25)


def test_the_clusters_of_a_row_are_estimated(planned: Plan, trained: carya.XRLinear, data: Any) -> None:
    for level in range(1, trained.tree_.depth):
        clusters = trained.tree_.clusters(level)
        labels = np.split(data.Y.indices, data.Y.indptr[1:-1])
        mean = np.mean([np.unique(clusters[own]).size for own in labels])
        assert planned.rates.clusters_per_row(planned.sizes, trained.tree_.level_sizes[level]) == pytest.approx(
            mean, rel=0.3
        )


def test_stages_and_totals_are_consistent(planned: Plan) -> None:
    assert [stage.stage for stage in planned.stages] == list(cost_model.STAGES)
    assert all(stage.cpu_seconds > 0 and stage.memory_bytes > 0 for stage in planned.stages)
    assert planned.seconds == pytest.approx(planned.cpu_seconds)  # one thread
    assert json.loads(json.dumps(planned.to_dict()))["peak_bytes"] == planned.peak_bytes


def test_costs_grow_with_the_data(planned: Plan) -> None:
    model = carya.XRLinear(n_jobs=2)

    def total(**changes: Any) -> tuple[float, float]:
        sizes = DataSizes(**(vars(planned.sizes) | changes))
        costs, _ = cost_model.stage_costs(sizes, model, planned.rates, threads=2)
        return sum(cost.cpu_seconds for cost in costs), max(cost.memory_bytes for cost in costs)

    seconds, memory = total()
    for name in ("rows", "labels", "features_per_row"):
        more_seconds, more_memory = total(**{name: 8 * getattr(planned.sizes, name)})
        assert more_seconds > seconds
        assert more_memory > memory


def test_teacher_negatives_and_narrow_beams_take_less_time(planned: Plan) -> None:
    def work(**parameters: Any) -> float:
        return cost_model.train_levels(planned.sizes, carya.XRLinear(**parameters), planned.rates)[-1].work

    assert work(negatives="teacher") < work(training_beam_width=5) < work()


def test_small_data_without_clusters() -> None:
    X, Y = carya.data.make_world(50, 10, seed=0)
    planned = carya.plan(carya.data.Matrices.of(X, Y))
    assert planned.levels == (1, 10)
    assert planned.stages[2].cpu_seconds == 0


def test_dense_features() -> None:
    X, Y = carya.data.make_world(300, 150, seed=0)
    planned = carya.plan(carya.data.Matrices.of(X.toarray()[:, :40], Y), carya.XRLinear(max_leaf_size=20))
    assert planned.sizes.dense_features == 40
    assert planned.sizes.features == 0
    assert planned.seconds > 0


def test_texts_are_sampled_by_label() -> None:
    texts, labels = corpus(600, seed=0)
    examples = [carya.data.Example(text, tuple(own)) for text, own in zip(texts, labels, strict=True)]
    sample = DataSample.of_corpus(carya.data.Corpus.of(examples), carya.Tfidf())
    assert sample.sizes.rows == 600
    assert sample.sizes.labels == len({label for example in examples for label in example.labels})
    planned = carya.plan(carya.data.Corpus.of(examples))
    assert planned.stages[0].stage == "vectorize texts"
    assert planned.sizes.rows == 600


def test_a_sample_has_all_texts_of_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    from carya.planning import sampling

    monkeypatch.setattr(sampling, "MAX_TEXTS", 100)
    examples = [carya.data.Example(f"word{row % 7} text", (str(row % 60), str(row % 61))) for row in range(2000)]
    sample = DataSample.of_corpus(carya.data.Corpus.of(examples), carya.Tfidf())
    assert 0 < sample.Y.shape[0] <= 100
    assert sample.sizes.labels == 61
    counts = sample.Y.sum(axis=0)
    true = sorted({sum(str(label) in example.labels for example in examples) for label in range(61)})
    assert {int(count) for count in counts} <= set(true)


def test_ensembles_share_the_label_representations(data: Any, planned: Plan) -> None:
    three = carya.plan(data, carya.Ensemble(carya.XRLinear(n_jobs=1), n_trees=3))
    assert three.trees == 3
    assert three.model_bytes == pytest.approx(3 * planned.model_bytes, rel=0.01)
    assert three.peak_bytes > planned.peak_bytes


def test_a_cluster_needs_tasks_memory_and_network(data: Any) -> None:
    planned = carya.plan(data, carya.XRLinear(n_jobs=1), nodes=3, cpus=2, memory="1kB")
    cluster = planned.cluster
    assert cluster is not None
    assert cluster.tasks >= 3
    assert cluster.network_bytes > 8 * data.X.nnz
    assert len(planned.warnings) == 2
    assert "1kB" not in planned.warnings[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 0}, "nodes must be an integer >= 1, got 0"),
        ({"cpus": 2}, "cpus requires nodes"),
        ({"memory": "much"}, "Expected a size such as '8GB'"),
        ({"model": carya.NearestNeighbors()}, "plan supports XRLinear and ensembles of trees with the same parameters"),
        ({"model": carya.XRLinear(representation="pii")}, "representation='pii'"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    X, Y = carya.data.make_world(50, 10, seed=0)
    with pytest.raises(ParameterError, match=message):
        carya.plan(carya.data.Matrices.of(X, Y), **arguments)


def test_invalid_data() -> None:
    with pytest.raises(InputError, match=r"data must be Matrices or a Corpus, got list\."):
        carya.plan([])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no labeled texts"):
        carya.plan(carya.data.Corpus.of([("a text", [])]))


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    write_matrices(carya.data.synthesize("amazon-670k", 0.002), tmp_path)
    shown = run("plan", str(tmp_path), "--threads", "1", "--quiet", "--memory", "1MB")
    assert shown.returncode == 0, shown.stderr
    assert "train last layer" in shown.stdout
    assert "warning: Training needs about" in shown.stderr
    printed = run("plan", str(tmp_path), "--json", "--quiet", "--nodes", "2", "--trees", "2")
    result = json.loads(printed.stdout)
    assert result["sizes"]["labels"] == 1340
    assert result["trees"] == 2
    assert result["cluster"]["nodes"] == 2
    refused = run("plan", str(tmp_path), "--cpus", "2")
    assert refused.returncode == 2
    assert refused.stderr == (
        "carya: --cpus requires --nodes, the number of machines. For one machine, pass --threads.\n"
    )


def test_mapped_matrices_equal_those_read(tmp_path: Path) -> None:
    import scipy.sparse as sp

    write_matrices(carya.data.synthesize("amazon-670k", 0.0005), tmp_path)
    path = tmp_path / "X.trn.npz"
    mapped, matrix = map_matrix(path), read_matrix(path)
    for array in (mapped.data, mapped.indices):
        while isinstance(array.base, np.ndarray):
            array = array.base  # noqa: PLW2901 - finds the owner of the memory
        assert isinstance(array.base, mmap.mmap)
    assert (mapped != matrix).nnz == 0
    sp.save_npz(tmp_path / "compressed.npz", matrix, compressed=True)
    assert (map_matrix(tmp_path / "compressed.npz") != matrix).nnz == 0
    (tmp_path / "damaged.npz").write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="does not contain a matrix"):
        map_matrix(tmp_path / "damaged.npz")


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(1, 3))
def test_makespan_is_that_of_list_scheduling(durations: list[int], workers: int) -> None:
    ends = [0] * workers
    for duration in durations:
        first = ends.index(min(ends))
        ends[first] += duration
    assert makespan(durations, workers) == (max(ends) if durations else 0)
    optimal = min(
        (
            max(sum(d for d, w in zip(durations, chosen, strict=True) if w == worker) for worker in range(workers))
            for chosen in itertools.product(range(workers), repeat=len(durations))
        ),
        default=0,
    )
    assert makespan(sorted(durations, reverse=True), workers) <= 4 / 3 * optimal


def test_the_engine_runs_on_a_simulated_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    simulation = importlib.import_module("cluster_simulation")
    problem = simulation.Problem(2_000_000, 100_000, 100, 4, 11, 0.5)
    runs = [simulation.simulate("", problem, nodes=4, cpus=2, failures=failures) for failures in (0.0, 0.0, 40.0)]
    for phase in runs[0]["phases"]:
        assert phase["lower_bound_s"] <= phase["seconds"] <= 2 * phase["lower_bound_s"]
    assert runs[0]["phases"] == runs[1]["phases"]
    assert runs[2]["failures"] > 0
    assert runs[2]["wasted_share"] > 0
    assert runs[2]["seconds"] > runs[0]["seconds"]
    assert [phase["tasks"] for phase in runs[2]["phases"]] == [phase["tasks"] for phase in runs[0]["phases"]]
