"""Tests for transformer models in the server, the explorer and the commands, with tiny encoders on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import carya
from carya.errors import InputError

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from carya.serve.app import create_app
from carya.serve.registry import ModelRegistry
from carya.serve.settings import ServerSettings
from carya.text.explore.explorer import Explorer, compare

import tiny_encoders
from serving import Client

pytestmark = pytest.mark.transformer
torch.set_num_threads(1)  # more threads would not speed up these tiny tensors, but would slow down concurrent tests
TEXTS, LABELS = tiny_encoders.make_corpus(200)
TEXT = "w0 w1 w2 w3 w7"
NAMES = {"l00": "the first", "l01": "the second"}


def fit(name: str, encoder: Path) -> Any:
    """Train a small model of the class with the given name."""
    model = getattr(carya, name)(
        encoder=str(encoder),
        pooling="mean",
        max_length=32,
        epochs=(1,),
        batch_tokens=256,
        matcher_branching=4,
        matcher_leaf_size=6,
        vectorizer=carya.Tfidf(min_df=1, n_jobs=1),
        ranker=carya.XRLinear(max_leaf_size=8, n_jobs=1),
        refit=False,
        n_jobs=2,
        device="cpu",
    )
    return model.fit(TEXTS, LABELS, names=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the saved models ``xr``, ``x`` and ``linear``."""
    folder = tmp_path_factory.mktemp("models")
    encoder = tiny_encoders.save_encoder("bert", tmp_path_factory.mktemp("bert"))
    fit("XRTransformer", encoder).save(folder / "xr")
    fit("XTransformer", encoder).save(folder / "x")
    carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=1)).fit(TEXTS, LABELS, names=NAMES).save(folder / "linear")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Any:
    names = ("xr", "x", "linear")
    with Client(create_app({name: folder / name for name in names}, ServerSettings(log_level="error"))) as client:
        yield client


def tuples(result: dict[str, Any]) -> list[tuple[str, float]]:
    return [(suggestion["label"], suggestion["score"]) for suggestion in result["suggestions"]]


@pytest.mark.parametrize("name", ["xr", "x"])
def test_suggestions_are_those_of_the_model(client: Client, folder: Path, name: str) -> None:
    model = carya.load(folder / name)
    expected: Any = [(best.label, pytest.approx(best.score)) for best in model.suggest(TEXT, top_k=4)]
    response = client.post("/v1/suggest", {"text": TEXT, "model": name, "top_k": 4}).json()
    assert tuples(response["results"][0]) == expected
    batch = client.post("/v1/suggest", {"texts": [TEXT, TEXTS[3], ""], "model": name, "top_k": 4}).json()
    assert tuples(batch["results"][0]) == expected
    assert [len(result["suggestions"]) for result in batch["results"]] == [4, 4, 4]
    assert (
        batch["results"][0]["suggestions"][0]["name"]
        == dict(zip(model.labels_, model.label_names_, strict=True))[expected[0][0]]
    )
    lowest = response["results"][0]["suggestions"][1]["score"]
    above = client.post("/v1/suggest", {"text": TEXT, "model": name, "min_score": lowest}).json()
    assert len(above["results"][0]["suggestions"]) == 2


@pytest.mark.parametrize("name", ["xr", "x"])
def test_label_filters(client: Client, folder: Path, name: str) -> None:
    model = carya.load(folder / name)
    allowed = ["l05", "l11", "l23"]
    filtered = client.post("/v1/suggest", {"text": TEXT, "model": name, "labels": {"allowed": allowed}}).json()
    suggested = tuples(filtered["results"][0])
    assert sorted(label for label, _ in suggested) == allowed
    assert suggested == sorted(suggested, key=lambda pair: -pair[1])
    pattern = np.isin(np.array(list(model.labels_)), allowed)[None]
    scores = dict(zip(sorted(allowed), model.predict_selected([TEXT], pattern).data.tolist(), strict=True))
    assert dict(suggested) == pytest.approx(scores)
    best = model.suggest(TEXT, top_k=1)[0].label
    excluded = client.post("/v1/suggest", {"text": TEXT, "model": name, "labels": {"excluded": [best]}}).json()
    assert best not in dict(tuples(excluded["results"][0]))
    prefix = client.post("/v1/suggest", {"text": TEXT, "model": name, "labels": {"prefix": "l1"}}).json()
    assert all(label.startswith("l1") for label, _ in tuples(prefix["results"][0]))


@pytest.mark.parametrize("name", ["xr", "x"])
def test_only_the_linear_ranker_is_explained(client: Client, folder: Path, name: str) -> None:
    model = carya.load(folder / name)
    refused = client.post("/v1/explain", {"text": TEXT, "model": name})
    assert refused.status_code == 400
    assert "cannot be explained. Use an XRLinear model, or pass 0 as" in refused.json()["detail"]
    explained = client.post("/v1/explain", {"text": TEXT, "model": name, "label": "the first", "tree": 0}).json()
    number = model.label_set_.number("l00")
    assert explained["label"] == "l00"
    assert explained["score"] == pytest.approx(model.predict([TEXT], using="linear", top_k=24)[0, number], rel=1e-4)
    assert {word for term in explained["terms"] for word in term["term"].split()} <= set(TEXT.split())
    with pytest.raises(InputError, match=r"Combined scores of XR?Transformer models cannot be explained\. Pass tree=0"):
        model.explain(TEXT, "l00")


def test_model_information(client: Client, folder: Path) -> None:
    info = client.get("/v1/model", params={"model": "xr"}).json()
    model = carya.load(folder / "xr")
    assert (info["kind"], info["is_explainable"], info["n_trees"], info["level_sizes"]) == (
        "XRTransformer",
        False,
        1,
        [],
    )
    assert (info["n_labels"], info["n_features"]) == (24, model.vectorizer_.n_features_)
    assert client.get("/v1/labels", params={"model": "x", "q": "THE F"}).json()["labels"][0]["label"] == "l00"
    projects = client.get("/v1/projects").json()["projects"]
    assert [project["project_id"] for project in projects] == ["xr", "x", "linear"]
    subjects = client.post("/v1/projects/xr/suggest", data={"text": TEXT, "limit": "3"}).json()["results"]
    assert [subject["uri"] for subject in subjects] == [best.label for best in model.suggest(TEXT, top_k=3)]


@pytest.mark.parametrize("name", ["xr", "x"])
def test_explorer(client: Client, folder: Path, name: str) -> None:
    query = {"model": name}
    models = {model["name"]: model for model in client.get("/v1/explore/models").json()["models"]}
    assert (models[name]["kind"], len(models[name]["trees"]), models[name]["n_texts"]) == (
        {"xr": "XRTransformer", "x": "XTransformer"}[name],
        1,
        200,
    )
    trace = client.post("/v1/explore/text", {"text": TEXT, "top_k": 3}, params=query).json()
    model = carya.load(folder / name)
    assert [row["label"]["label"] for row in trace["labels"]] == [best.label for best in model.suggest(TEXT, top_k=3)]
    linear = model.predict([TEXT], using="linear", top_k=3)
    assert [row["label"]["label"] for row in trace["reached"]] == [model.labels_[label] for label in linear.indices]
    assert trace["levels"]
    explained = client.post("/v1/explore/explain", {"text": TEXT, "label": "l00"}, params=query).json()
    assert explained["levels"][0]["cluster"]["n_labels"] > 1
    card = client.get("/v1/explore/label", params=query | {"label": "l00"}).json()
    assert card["label"]["count"] == sum("l00" in labels for labels in LABELS)
    assert card["positions"][0]["positive_terms"]
    page = client.get("/v1/explore/tree", params=query).json()
    assert page["cluster"]["n_labels"] == 24
    compared = client.post("/v1/explore/compare", {"text": TEXT, "top_k": 3}, params=query | {"other": "linear"}).json()
    assert all(row["scores"][0] is not None and row["scores"][1] is not None for row in compared)


def test_explorers_compare_transformers(folder: Path) -> None:
    first, second = (Explorer(carya.load(folder / name)) for name in ("xr", "x"))
    rows = compare(first, second, TEXT, top_k=3)
    assert [row.ranks[0] for row in rows[:3]] == [1, 2, 3]
    assert all(None not in row.scores for row in rows)


def test_calibration_is_saved_with_the_model(folder: Path, tmp_path: Path) -> None:
    model = carya.load(folder / "xr").calibrate(*tiny_encoders.make_corpus(120, seed=4))
    model.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert np.array_equal(loaded.calibration_.scores, model.calibration_.scores)
    with Client(create_app({"m": tmp_path / "model"}, ServerSettings(log_level="error"))) as client:
        (result,) = client.post("/v1/suggest", {"text": TEXT}).json()["results"]
    assert [suggestion["probability"] for suggestion in result["suggestions"]] == pytest.approx(
        [suggestion.probability for suggestion in model.suggest(TEXT)]
    )


def test_served_models_use_one_thread(folder: Path) -> None:
    ranker = ModelRegistry.open({"m": folder / "xr"}).get().ranker
    assert isinstance(ranker, carya.XRTransformer)
    assert torch.get_num_threads() == 1
    assert ranker.n_jobs == 1
    assert ranker.vectorizer_ is not None
    assert ranker.vectorizer_.n_jobs == 1
    assert {model.n_jobs for model in ranker.rankers_.values()} == {1}


def test_commands(folder: Path, tmp_path: Path) -> None:
    from carya.cli.app import app

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    model = str(folder / "xr")
    result = run("explain", model, TEXT, "--label", "l00", "--tree", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("the first (l00): score")
    refused = str(run("explain", model, TEXT).exception)
    message = "Combined scores of XRTransformer models cannot be explained, only the scores of individual trees."
    assert f"{message} Pass --tree 1." in refused
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    result = run("calibrate", model, str(tmp_path / "data.jsonl"), "-o", str(tmp_path / "calibrated"), "--json")
    assert result.exit_code == 0, result.output
    assert carya.load(tmp_path / "calibrated").calibration_ is not None
    (tmp_path / "texts.txt").write_text(f"{TEXT}\nw9\n")
    result = run("predict", model, str(tmp_path / "texts.txt"), "--top-k", "2", "--n-jobs", "1", "--min-score", "0.01")
    first, second = (json.loads(line)["labels"] for line in result.stdout.splitlines())
    assert first[0]["label"] == carya.load(model).suggest(TEXT, top_k=1)[0].label
    assert len(second) <= 2
    assert run("inspect", str(folder / "x")).exit_code == 0
