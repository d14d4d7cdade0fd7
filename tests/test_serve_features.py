"""Tests for models over features in the server: posted feature vectors, limits and mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import carya
from carya.serve.app import create_app
from carya.serve.settings import ServerSettings

from serving import Client, save_model

NAMES = ["height", "weight", "color"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A text model, and models over sparse features, over sparse and dense features, and over named features."""
    folder = tmp_path_factory.mktemp("features")
    X, Y = carya.data.make_world(300, 30, seed=0)
    dense = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    save_model(folder / "texts")
    carya.XRLinear(max_leaf_size=10).fit(X, Y, calibrate=True).save(folder / "sparse")
    carya.Ensemble([carya.XRLinear(), carya.NearestNeighbors()]).fit((X, dense), Y).save(folder / "both")
    frame = pandas.DataFrame(np.eye(3)[np.arange(60) % 3], columns=NAMES)
    carya.XRLinear().fit(frame, [["tall", "heavy", "red"][row % 3] for row in range(60)]).save(folder / "named")
    return {name: folder / name for name in ("texts", "sparse", "both", "named")}


@pytest.fixture(scope="module")
def client(models: dict[str, Path]) -> Iterator[Client]:
    settings = ServerSettings(log_level="error", max_texts=8, max_labels=100, max_top_k=50)
    with Client(create_app(models, settings)) as client:
        yield client


def post(client: Client, features: Any, **options: Any) -> Any:
    return client.post("/v1/suggest-features", {"features": features, **options})


def test_suggestions_equal_those_of_the_model(client: Client, models: dict[str, Path]) -> None:
    X, _ = carya.data.make_world(300, 30, seed=0)
    model = carya.load(models["sparse"])
    vectors = []
    for row in range(5):
        values = X[[row]]
        order = np.random.default_rng(row).permutation(values.nnz)  # the order of the features does not matter
        vectors.append({"indices": values.indices[order].tolist(), "values": values.data[order].tolist()})
    response = post(client, vectors, top_k=4).json()
    expected = model.suggest_all(X[:5], top_k=4)
    assert (response["model"], len(response["results"])) == ("sparse", 5)
    assert [
        [(item["label"], item["score"], item["probability"]) for item in result["suggestions"]]
        for result in response["results"]
    ] == [[(item.label, item.score, item.probability) for item in row] for row in expected]
    narrow = post(client, vectors[:1], top_k=4, beam_width=1, min_score=0.01).json()
    assert [item["label"] for item in narrow["results"][0]["suggestions"]] == [
        item.label for item in model.suggest(X[[0]], top_k=4, beam_width=1, min_score=0.01)
    ]


def test_dense_and_named_features(client: Client, models: dict[str, Path]) -> None:
    X, _ = carya.data.make_world(300, 30, seed=0)
    row, dense = X[[7]], [0.5, -1.0, 0.0, 2.0]
    vector = {"indices": row.indices.tolist(), "values": row.data.tolist(), "dense": dense}
    response = post(client, [vector], model="both", top_k=3).json()
    expected = carya.load(models["both"]).suggest((row, np.array([dense], np.float32)), top_k=3)
    assert [(item["label"], item["score"]) for item in response["results"][0]["suggestions"]] == [
        (item.label, item.score) for item in expected
    ]
    response = post(client, [{"named": {"weight": 1}}, {"named": {"color": 1.0}}], model="named", top_k=1).json()
    assert [result["suggestions"][0]["label"] for result in response["results"]] == ["heavy", "red"]


def test_models_are_described_and_kept_apart_from_text_models(client: Client) -> None:
    info = client.get("/v1/model?model=both").json()
    assert (info["input"], info["n_dense_features"], info["has_feature_names"]) == ("features", 4, False)
    assert client.get("/v1/model?model=named").json()["has_feature_names"]
    assert client.get("/v1/model").json()["input"] == "texts"
    assert [model["name"] for model in client.get("/v1/explore/models").json()["models"]] == ["texts"]
    response = client.post("/v1/suggest", {"text": "a", "model": "sparse"})
    assert response.status_code == 404
    assert response.json()["detail"] == (
        "Model 'sparse' ranks labels for feature vectors, not for texts. Send the vectors to /v1/suggest-features."
    )
    assert 'carya_model_texts_total{model="sparse"}' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("request_", "status", "detail"),
    [
        ({"features": []}, 400, "The request body is invalid: Expected `array` of length >= 1 - at `$.features`."),
        (
            {"features": [{"indices": [1, 2], "values": [1]}]},
            400,
            "features[0] has 2 indices, but 1 values. Send one value per index.",
        ),
        (
            {"features": [{}, {"indices": [10**30], "values": [1]}]},
            400,
            "features[1] has the index 10000",
        ),
        ({"features": [{"indices": [-1], "values": [1]}]}, 400, "The request body is invalid: Expected `int` >= 0"),
        ({"features": [{"indices": [True], "values": [1]}]}, 400, "The request body is invalid: Expected `int`"),
        ({"features": [{"indices": [3, 3], "values": [1, 2]}]}, 400, "features[0] contains an index more than once."),
        ({"features": [{"indices": [3], "values": [1e300]}]}, 400, "features[0].values contains 1e+300, which is not"),
        ({"features": [{"indices": [3], "values": ["1"]}]}, 400, "The request body is invalid: Expected `float`"),
        ({"features": [{"index": [3]}]}, 400, "The request body is invalid: Object contains unknown field `index`"),
        ({"features": [{"dense": [1.0]}]}, 400, "features[0] has 1 dense features, but the model requires 0."),
        ({"features": [{}], "model": "both"}, 400, "features[0] has 0 dense features, but the model requires 4."),
        ({"features": [{"named": {"a": 1}}]}, 400, "features[0] has feature names, but the features of the model have"),
        (
            {"features": [{"named": {"wieght": 1}}], "model": "named"},
            400,
            "features[0] has the unknown feature 'wieght'. Did you mean 'weight'?",
        ),
        (
            {"features": [{"named": {"color": 1}, "dense": [1, 2, 3]}], "model": "named"},
            400,
            'features[0] has feature names and other features. Send either "named" or "indices".',
        ),
        ({"features": [{}] * 9}, 413, "A request can have at most 8 feature vectors, got 9."),
        ({"features": [{}] * 8, "top_k": 20}, 400, "A response can have at most 100 labels, but top_k is 20 for 8"),
        ({"features": [{}], "top_k": 51}, 400, "top_k must be at most 50, got 51."),
        ({"features": [{}], "model": "texts"}, 404, "Unknown model over features 'texts'. It ranks labels for texts;"),
        ({"features": [{}], "model": "x"}, 404, "Unknown model over features 'x'. Available models over features:"),
    ],
)
def test_mistakes(client: Client, request_: dict[str, Any], status: int, detail: str) -> None:
    response = client.post("/v1/suggest-features", request_)
    assert response.status_code == status
    assert response.json()["detail"].startswith(detail)


def test_rows_without_features_have_no_labels(client: Client) -> None:
    assert post(client, [{}, {"indices": [], "values": []}]).json()["results"] == [{"suggestions": []}] * 2


def test_a_server_without_text_models(models: dict[str, Path]) -> None:
    with Client(create_app({"sparse": models["sparse"]}, ServerSettings(log_level="error"))) as client:
        assert client.get("/v1/model").json()["input"] == "features"
        assert client.get("/v1/explore/models").json()["models"] == []
        assert client.get("/v1/projects").json() == {"projects": []}
        assert client.post("/v1/suggest", {"text": "a"}).status_code == 404
        assert client.get("/readyz").status_code == 200
