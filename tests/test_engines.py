"""Tests for training with an in-process engine, which must produce the same models as training without an engine."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import carya
from carya.cli.app import app
from carya.core.progress import Report
from carya.errors import InputError, ParameterError
from carya.models.xr_linear import representation_task
from carya.ranking import NeuralRanker
from carya.ranking.tasks import parts, solve_part
from carya.ranking.tasks.engine import Task

from small_tree import X, Y, content, tree
from topics import corpus


class LocalEngine:
    """Engine that pickles tasks, as a cluster engine does, but runs them in this process."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run(self, tasks: Sequence[Task], report: Report = None) -> None:
        """Run all tasks in reverse order."""
        for task in reversed(tasks):
            self.names.append(type(task).__name__)
            pickle.loads(pickle.dumps(task)).run(1)


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide training into many small tasks."""
    monkeypatch.setattr(solve_part, "divide", functools.partial(parts.divide, max_work=3e5))
    monkeypatch.setattr(representation_task, "MAX_WORK", 2e3)


def test_rerankers_of_features(tmp_path: Path) -> None:
    models = [carya.Reranked(tree(checkpoint_dir=folder), NeuralRanker(epochs=2)) for folder in (str(tmp_path), None)]
    engine = LocalEngine()
    models[0].fit(X[:400], Y[:400], engine=engine).save(tmp_path / "a")
    models[1].fit(X[:400], Y[:400]).save(tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert set(engine.names) == {"AggregateLabels", "MatchRows", "SolvePart"}


@pytest.mark.parametrize(
    "options",
    [
        {"representation": "pifa", "index_features": 5},
        {"representation": "pifa", "index_features": 0.9},
        {"representation": "pifa-concat-graph"},
        {"representation": "pifa", "clustering": "spherical"},
    ],
)
def test_label_representations(options: dict[str, Any], tmp_path: Path) -> None:
    """The tree is the same if tasks compute the representations of ranges of labels."""
    dense = np.random.default_rng(0).normal(size=(X.shape[0], 3)).astype(np.float32)
    features, weights, engine = (X, dense), np.arange(X.shape[0]) % 3 + 1, LocalEngine()
    tree(checkpoint_dir=str(tmp_path), **options).fit(features, Y, sample_weight=weights, engine=engine).save(
        tmp_path / "a"
    )
    tree(**options).fit(features, Y, sample_weight=weights).save(tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert engine.names.count("AggregateLabels") > 3


def test_the_accurate_preset(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    texts, labels = corpus(150)
    engine = LocalEngine()

    def make(checkpoint_dir: str | None) -> Any:
        return carya.preset("accurate", max_leaf_size=5, n_jobs=1, checkpoint_dir=checkpoint_dir)

    on_cluster, alone = (carya.TextRanker(carya.Tfidf(min_df=1), make(path)) for path in (str(tmp_path), None))
    on_cluster.fit(texts, labels, engine=engine).save(tmp_path / "a")
    alone.fit(texts, labels).save(tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert "SolvePart" in engine.names


def test_the_command_passes_the_engine_to_rerankers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is used to train both text models and models for features."""
    given: list[Any] = []

    def fit(self: carya.Reranked, *arguments: Any, **options: Any) -> None:
        given.append(options["engine"] if "engine" in options else arguments[0].engine)
        raise InputError("stopped")

    monkeypatch.setattr(carya.Reranked, "fit", fit)
    monkeypatch.setattr(carya.Reranked, "fit_data", fit)
    monkeypatch.setattr(carya.Reranked, "check_dependencies", lambda _: None)
    monkeypatch.setattr(carya.RayEngine, "check_dependencies", lambda _: None)
    carya.data.write_data(tmp_path / "data.xmc", carya.data.Matrices(X[:30], Y[:30]))
    carya.data.write_data(tmp_path / "data.jsonl", carya.data.Corpus.of(zip(*corpus(30), strict=True)))
    for name in ("data.xmc", "data.jsonl"):
        arguments = ["train", str(tmp_path / name), "--preset", "accurate", "-o", str(tmp_path / "model"), "-q"]
        result = CliRunner().invoke(app, [*arguments, "--checkpoint", str(tmp_path / "checkpoints"), "--ray", "auto"])
        assert str(result.exception) == "stopped"
    assert given == [carya.RayEngine("auto")] * 2


@pytest.mark.transformer
@pytest.mark.parametrize("name", ["XRTransformer", "XTransformer"])
def test_transformers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import tiny_encoders

    encoder = tiny_encoders.save_encoder("bert", tmp_path / "bert")
    texts, labels = tiny_encoders.make_corpus(120)

    def make(**parameters: Any) -> Any:
        return getattr(carya, name)(
            encoder=str(encoder),
            max_length=32,
            epochs=(1,),
            batch_tokens=256,
            matcher_branching=4,
            matcher_leaf_size=6,
            vectorizer=carya.Tfidf(min_df=1, n_jobs=1),
            ranker=carya.XRLinear(max_leaf_size=4, branching=4, n_jobs=1),
            n_jobs=1,
            device="cpu",
            **parameters,
        )

    engine = LocalEngine()
    make(checkpoint_dir=str(tmp_path / "checkpoints")).fit(texts, labels, engine=engine).save(tmp_path / "a")
    make().fit(texts, labels).save(tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert "SolvePart" in engine.names
    assert any((tmp_path / "checkpoints" / "rankers").iterdir())
    with pytest.raises(ParameterError, match="engine requires checkpoint_dir, a folder that all machines share"):
        make().fit(texts, labels, engine=engine)
