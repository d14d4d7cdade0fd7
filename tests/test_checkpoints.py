"""Tests for resuming interrupted training, which must produce the same model files as uninterrupted training."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.core import storage
from carya.core.matrices import Csr, Features
from carya.errors import ModelFormatError, ParameterError, SaveError
from carya.ranking import NeuralRanker, linear
from carya.ranking.tasks import parts, solve_part
from carya.ranking.tasks.checkpoint_folder import CheckpointFolder, fingerprint

from command_line import run
from small_tree import X, Y, content, tree
from topics import corpus


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide the training of each layer into many small parts."""
    monkeypatch.setattr(linear, "divide", functools.partial(parts.divide, max_work=3e5))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted") / "model"
    tree().fit(X, Y).save(folder)
    return content(folder)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the steps that are computed rather than loaded from checkpoints."""
    names: list[str] = []
    store = CheckpointFolder.store

    def spy(self: CheckpointFolder, name: str, key: str, arrays: dict[str, Any]) -> None:
        names.append(name)
        store(self, name, key, arrays)

    monkeypatch.setattr(CheckpointFolder, "store", spy)
    return names


def test_the_result_is_the_same_with_checkpoints(
    uninterrupted: list[bytes], computed: list[str], tmp_path: Path
) -> None:
    folder = str(tmp_path / "checkpoints")
    model = tree(checkpoint_dir=folder).fit(X, Y)
    model.save(tmp_path / "model")
    assert content(tmp_path / "model") == uninterrupted
    assert carya.load(tmp_path / "model").checkpoint_dir is None
    assert {"label-tree", "shortlist", "layer-1", "layer-2", "layer-3"} == set(computed)
    assert computed.count("layer-3") > 3
    computed.clear()
    tree(checkpoint_dir=folder, n_jobs=1).fit(X, Y).save(tmp_path / "model")
    assert computed == []
    assert carya.load(tmp_path / "model").n_jobs == 1
    tree().set_params(n_jobs=1).fit(X, Y).save(tmp_path / "single")
    assert content(tmp_path / "model") == content(tmp_path / "single")


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"C": 0.3}, {"loss": "hinge"}, {"weight_dtype": "float32"}, {"beam_width": 3}, {"branching": 5}],
    ids=str,
)
def test_results_of_other_settings_are_not_used(change: dict[str, Any], tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    tree(checkpoint_dir=folder).fit(X, Y)
    changed = {"max_leaf_size": 10, "branching": 6, **change}
    carya.XRLinear(**changed, checkpoint_dir=folder).fit(X, Y).save(tmp_path / "resumed")
    carya.XRLinear(**changed).fit(X, Y).save(tmp_path / "new")
    assert content(tmp_path / "resumed") == content(tmp_path / "new")


def test_results_of_other_data_are_not_used(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    weights = np.arange(X.shape[0]) % 3 + 1
    for rows, sample_weight in ((slice(None), None), (slice(0, 1400), None), (slice(None), weights)):
        fit = functools.partial(tree(checkpoint_dir=folder).fit, X[rows], Y[rows], sample_weight=sample_weight)
        fit().save(tmp_path / "resumed")
        tree().fit(X[rows], Y[rows], sample_weight=sample_weight).save(tmp_path / "new")
        assert content(tmp_path / "resumed") == content(tmp_path / "new")


_KILLED = """
import functools, os, signal, sys
sys.path.insert(0, {tests!r})
from carya.core import storage
from carya.ranking import linear
from carya.ranking.tasks import parts
import small_tree

linear.divide = functools.partial(parts.divide, max_work=3e5)
remaining = int(sys.argv[1])
write = getattr(storage, sys.argv[2])

def write_or_die(*arguments):
    global remaining
    remaining -= 1
    if remaining == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(*arguments)

setattr(storage, sys.argv[2], write_or_die)
small_tree.tree(checkpoint_dir="checkpoints").fit(small_tree.X, small_tree.Y).save("model")
"""


@pytest.mark.parametrize("function", ["_write_arrays", "replace_folder"])
def test_a_training_that_is_killed_again_and_again(function: str, uninterrupted: list[bytes], tmp_path: Path) -> None:
    """Each run is killed at its third save, before writing the arrays or before moving the folder into place."""
    script = _KILLED.format(tests=str(Path(__file__).parent))
    killed = 0
    while True:
        result = subprocess.run([sys.executable, "-c", script, "3", function], cwd=tmp_path, check=False)
        if result.returncode == 0:
            break
        assert result.returncode == -signal.SIGKILL
        assert not (tmp_path / "model").exists()
        killed += 1
    assert killed > 3
    assert content(tmp_path / "model") == uninterrupted


def test_a_full_disk_stops_the_training(
    uninterrupted: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(storage, "_write_arrays", fail)
        with pytest.raises(SaveError, match="No space left on device"):
            tree(checkpoint_dir=str(folder)).fit(X, Y)
    assert list(folder.iterdir()) == []
    tree(checkpoint_dir=str(folder)).fit(X, Y).save(tmp_path / "model")
    assert content(tmp_path / "model") == uninterrupted


def test_damaged_checkpoints_are_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    tree(checkpoint_dir=str(folder)).fit(X, Y)
    (damaged,) = folder.glob("layer-1-*")
    data = bytearray((damaged / "arrays.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (damaged / "arrays.bin").write_bytes(data)
    with pytest.raises(ModelFormatError, match=rf"layer-1-.*Delete {damaged} to recompute this step"):
        tree(checkpoint_dir=str(folder)).fit(X, Y)
    shutil.rmtree(damaged)
    tree().fit(X, Y).save(damaged)
    with pytest.raises(ModelFormatError, match="is not a checkpoint"):
        tree(checkpoint_dir=str(folder)).fit(X, Y)
    with pytest.raises(SaveError, match=r"is a file\. Pass a folder for the checkpoints"):
        tree(checkpoint_dir=__file__).fit(X, Y)


def test_other_models_resume_too(computed: list[str], tmp_path: Path) -> None:
    texts, labels = corpus(300)
    folder = str(tmp_path / "checkpoints")

    def models(checkpoint_dir: str | None) -> list[Any]:
        base = tree(checkpoint_dir=checkpoint_dir)
        return [
            carya.Ensemble(base, n_trees=2),
            carya.Ensemble([base, carya.NearestNeighbors()], weights="learned"),
            carya.Reranked(base, NeuralRanker(epochs=2)),
            tree(checkpoint_dir=checkpoint_dir, clusters_per_label=2, transform="l3-hinge"),
            tree(checkpoint_dir=checkpoint_dir, negatives="teacher", penalty="l1"),
        ]

    for with_checkpoints, without in zip(models(folder), models(None), strict=True):
        ranker = carya.TextRanker(carya.Tfidf(min_df=1), with_checkpoints).fit(texts, labels)
        computed.clear()
        again = carya.TextRanker(carya.Tfidf(min_df=1), with_checkpoints.clone()).fit(texts, labels)
        assert computed == []
        expected = carya.TextRanker(carya.Tfidf(min_df=1), without).fit(texts, labels)
        for number, model in enumerate((ranker, again, expected)):
            model.save(tmp_path / f"model{number}")
        assert content(tmp_path / "model0") == content(tmp_path / "model1") == content(tmp_path / "model2")


def test_tasks_can_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a task is retried, another process may already have stored its result."""
    monkeypatch.setattr(solve_part, "divide", functools.partial(parts.divide, max_work=3e5))
    checkpoints = CheckpointFolder(tmp_path)
    ran = []

    class Repeat:
        def run(self, tasks: Any, report: Any = None) -> None:
            for task in [*tasks, *tasks]:
                ran.append(task)
                task.run(1)

    tree(checkpoint_dir=str(checkpoints.path)).fit(X, Y, engine=Repeat()).save(tmp_path / "model")
    tree().fit(X, Y).save(tmp_path / "expected")
    assert len(ran) > 10
    assert content(tmp_path / "model") == content(tmp_path / "expected")


def test_command_line(tmp_path: Path) -> None:
    texts, labels = corpus(300)
    lines = [f"{text},{';'.join(names)}" for text, names in zip(texts, labels, strict=True)]
    (tmp_path / "data.csv").write_text("text,labels\n" + "\n".join(lines) + "\n")
    for name, options in (("a", ["--checkpoint", "c"]), ("b", ["--checkpoint", "c", "--threads", "-1"]), ("d", [])):
        result = run("train", "data.csv", "-o", name, "--max-leaf-size", "5", *options, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert content(tmp_path / "a") == content(tmp_path / "b") == content(tmp_path / "d")
    assert {path.name.rpartition("-")[0] for path in (tmp_path / "c").iterdir()} >= {"label-tree", "layer-1"}
    result = run("train", "data.csv", "-o", "e", "--checkpoint", "data.csv", cwd=tmp_path)
    assert (result.returncode, result.stderr.splitlines()[-1]) == (
        2,
        "carya: data.csv is a file. Pass a folder for the checkpoints.",
    )


def test_parts_cover_all_parents_once() -> None:
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(sp.random_array((50, 20), density=0.3, random_state=rng), dtype=np.float32)
    features = Features.of(Csr.of_scipy(matrix))
    shortlist = Csr.of_scipy(sp.csr_array(sp.random_array((30, 50), density=0.2, random_state=rng), dtype=np.float32))
    problem = linear.LayerProblem(
        level=2,
        seed=0,
        targets=Csr.of_scipy(sp.csr_array((50, 90), dtype=np.float32)),
        shortlist=shortlist,
        order=np.arange(90, dtype=np.int32),
        chunks=np.arange(0, 91, 3),
        transform=carya.trees.transforms.Transform.from_name("noop"),
    )
    for max_work in (1.0, 500.0, 5000.0, 1e9):
        divided = parts.divide([problem, problem], features, max_work=max_work)
        for number in (0, 1):
            own = [part for part in divided if part.number == number]
            assert [own[0].first, own[-1].last] == [0, 30]
            assert all(a.last == b.first and a.first < a.last for a, b in itertools.pairwise(own))
            assert np.concatenate([part.select(problem).order for part in own]).tolist() == list(range(90))
    assert 20 < len(parts.divide([problem], features, max_work=1.0)) <= 30
    assert len(parts.divide([problem], features, max_work=1e9)) == 1


def test_fingerprints_distinguish_types_and_shapes() -> None:
    values = [0, 0.0, "0", None, True, np.zeros(1), np.zeros(2), np.zeros((1, 1)), np.zeros(1, np.float32), [0], [[0]]]
    assert len({fingerprint([value]) for value in values}) == len(values)
    assert fingerprint([1, [2]]) != fingerprint([[1, 2]])
    with pytest.raises(TypeError, match="Cannot hash a value of type set"):
        fingerprint([{1}])


def test_checkpoint_dir_must_be_a_string() -> None:
    with pytest.raises(ParameterError, match="checkpoint_dir must be a path or None, got 3"):
        tree(checkpoint_dir=3).fit(X, Y)
