"""Tests for the Annif-compatible API with annif-client and, if Annif is installed, with its http backend."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from annif_client import AnnifClient

import carya
from carya.ranking import NeuralRanker
from carya.serve.app import create_app
from carya.serve.routes.annif import to_subjects
from carya.serve.routes.schemas import SuggestedLabel
from carya.serve.settings import ServerSettings

from serving import Client, Server, save_model, start_server
from topics import corpus

TEXT = "the telescope shows a planet and its moon"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("annif")
    save_model(folder / "topics", uri="http://topics.example/")
    with start_server(folder, str(folder / "topics")) as server:
        yield server


@pytest.fixture(scope="module")
def ranker(server: Server) -> carya.TextRanker:
    return carya.load(server.log.parent / "topics")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def annif(server: Server) -> AnnifClient:
    return AnnifClient(api_base=server.url("/v1/"))


def test_projects(annif: AnnifClient, ranker: carya.TextRanker) -> None:
    assert set(annif.api_info) == {"title", "version"}
    (project,) = annif.projects
    assert project == annif.get_project("topics")
    assert project["project_id"] == project["name"] == "topics"
    assert (project["language"], project["is_trained"]) == ("en", True)
    assert project["vocab"] == {
        "vocab_id": "topics",
        "languages": ["en"],
        "size": len(ranker.labels_),
        "loaded": True,
    }
    with pytest.raises(ValueError, match="Project 'other' not found"):
        annif.get_project("other")
    with pytest.raises(ValueError, match="Project 'other' not found"):
        annif.suggest("other", TEXT)


def test_suggest(annif: AnnifClient, ranker: carya.TextRanker) -> None:
    expected: list[dict[str, Any]] = [
        {"uri": suggestion.label, "label": suggestion.name, "notation": None, "score": suggestion.score}
        for suggestion in ranker.suggest(TEXT)
    ]
    assert annif.suggest("topics", TEXT) == expected
    assert annif.suggest("topics", TEXT, limit=2) == expected[:2]
    assert annif.suggest("topics", TEXT, limit=0) == []
    above = annif.suggest("topics", TEXT, threshold=0.5)
    assert above == [subject for subject in expected if subject["score"] >= 0.5]
    assert 0 < len(above) < len(expected)
    assert annif.suggest("topics", "äöü & = % +") == []


def test_form_encodings(server: Server, annif: AnnifClient) -> None:
    """UTF-8 text can be sent as raw bytes or percent-encoded, and an empty limit selects the default."""
    expected = annif.suggest("topics", f"é {TEXT}")
    headers = {"content-type": f"{FORM['content-type']}; charset=utf-8"}
    for form in (f"text=é+{TEXT}", f"text=%C3%A9+{TEXT}&limit="):
        response = httpx.post(server.url("/v1/projects/topics/suggest"), content=form.encode(), headers=headers)
        assert (response.status_code, response.json()) == (200, {"results": expected})


def test_suggest_batch(annif: AnnifClient, ranker: carya.TextRanker) -> None:
    documents: list[dict[str, Any]] = [
        {"text": TEXT, "document_id": "a"},
        {"text": "a boat in the harbor", "metadata": {"title": "b"}},
    ]
    results = annif.suggest_batch("topics", documents, limit=3, threshold=0.01)
    assert [result["document_id"] for result in results] == ["a", None]
    for result, document in zip(results, documents, strict=True):
        best = ranker.suggest(document["text"], top_k=3, min_score=0.01)
        assert [(subject["uri"], subject["score"]) for subject in result["results"]] == [
            (suggestion.label, suggestion.score) for suggestion in best
        ]
    assert annif.suggest_batch("topics", []) == []


def suggest(folder: Path, **form: str) -> list[tuple[str, float]]:
    with Client(create_app({"m": folder}, ServerSettings(log_level="error"))) as client:
        response = client.post("/v1/projects/m/suggest", data={"text": TEXT, **form})
    assert response.status_code == 200, response.text
    return [(subject["uri"], subject["score"]) for subject in response.json()["results"]]


def test_scores_of_calibrated_models_are_probabilities(tmp_path: Path) -> None:
    ranker = save_model(tmp_path / "m").calibrate(*corpus(100, seed=8))
    ranker.save(tmp_path / "m")
    assert ranker.calibration_ is not None
    best = ranker.suggest(TEXT)
    expected = [(suggestion.label, suggestion.probability or 0.0) for suggestion in best]
    assert suggest(tmp_path / "m") == expected
    above = suggest(tmp_path / "m", threshold="0.5", limit="3")
    assert above == [subject for subject in expected if subject[1] >= 0.5][:3]
    assert above


def test_scores_of_rerankers_are_between_0_and_1(tmp_path: Path) -> None:
    model = carya.Reranked(carya.XRLinear(max_leaf_size=6, n_jobs=1), NeuralRanker(), n_jobs=1)
    ranker = carya.TextRanker(carya.Tfidf(n_jobs=1), model).fit(*corpus())
    ranker.save(tmp_path / "m")
    subjects = suggest(tmp_path / "m")
    assert [label for label, _ in subjects] == [suggestion.label for suggestion in ranker.suggest(TEXT)]
    scores = [score for _, score in subjects]
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(set(scores), reverse=True)
    above = [subject for subject in subjects if subject[1] >= 0.5]
    assert suggest(tmp_path / "m", threshold="0.5", limit="3") == above[:3]


def test_scores_outside_the_range_from_0_to_1() -> None:
    log_scores = [SuggestedLabel("a", "A", -0.5), SuggestedLabel("b", "B", -2.0), SuggestedLabel("c", "C", -1000.0)]
    subjects = to_subjects(log_scores, 0.0, log_scale=True)
    assert [subject.score for subject in subjects] == [math.exp(-0.5), math.exp(-2.0)]
    assert [subject.uri for subject in to_subjects(log_scores, 0.5, log_scale=True)] == ["a"]
    scores = [SuggestedLabel("a", "A", 1.5), SuggestedLabel("b", "B", 0.25), SuggestedLabel("c", "C", -1.0)]
    assert [subject.score for subject in to_subjects(scores, 0.0, log_scale=False)] == [1.0, 0.25]


def test_invalid_requests(server: Server) -> None:
    project = server.url("/v1/projects/topics/")
    for form, status in (
        ({"limit": "5"}, 400),
        ({"text": "a", "limit": "-1"}, 400),
        ({"text": "a", "limit": "many"}, 400),
        ({"text": "a", "threshold": "2"}, 400),
        ({"text": "a", "threshold": "nan"}, 400),
        ({"text": "a", "language": "fi"}, 400),
        ({"text": "a", "language": "en", "metadata_title": "b"}, 200),
        ({str(number): "" for number in range(1001)}, 413),
    ):
        response = httpx.post(project + "suggest", data=form)
        assert response.status_code == status, response.text
    assert httpx.post(project + "suggest", json={"text": "a"}).status_code == 415
    for invalid in (b"text=%ff", b"text=\xff"):
        assert httpx.post(project + "suggest", content=invalid, headers=FORM).status_code == 400
    learning = httpx.post(project + "learn", json=[{"text": "a", "subjects": []}])
    assert learning.status_code == 403
    assert httpx.get(server.url("/v1/vocabs")).json()["vocabs"][0]["vocab_id"] == "topics"


def test_http_backend(server: Server, ranker: carya.TextRanker, tmp_path: Path) -> None:
    """Use the server as the http backend of an Annif project, with the `annif` command."""
    pytest.importorskip("annif")
    command = str(Path(sys.executable).parent / "annif")
    vocabulary = [f"<{label}>\t{name}" for label, name in zip(ranker.labels_, ranker.label_names_, strict=True)]
    (tmp_path / "topics.tsv").write_text("\n".join(vocabulary) + "\n")
    endpoint = server.url("/v1/projects/topics/suggest")
    project = f"name=Topics\nlanguage=en\nbackend=http\nvocab=topics\nendpoint={endpoint}\nlimit=5\n"
    (tmp_path / "projects.cfg").write_text(f"[topics-carya]\n{project}")

    def run_annif(*arguments: str, text: str = "") -> str:
        process = subprocess.run(
            [command, *arguments], cwd=tmp_path, input=text, capture_output=True, text=True, check=False, timeout=300
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    run_annif("load-vocab", "topics", "topics.tsv", "--language", "en")
    assert "True" in run_annif("show-project", "topics-carya")  # Annif reports that the project is trained
    lines = [line.split("\t") for line in run_annif("suggest", "topics-carya", text=TEXT).splitlines()]
    best = ranker.suggest(TEXT, top_k=5)
    assert [line[0].strip("<>") for line in lines] == [suggestion.label for suggestion in best]
    assert [line[1] for line in lines] == [suggestion.name for suggestion in best]
    assert [float(line[-1]) for line in lines] == pytest.approx([suggestion.score for suggestion in best], abs=1e-4)
