"""Annif's API, asked by PyPI's annif-client; and by Annif's own http backend where Annif is installed."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from annif_client import AnnifClient

import carya
from carya.ranking import NeuralRanker
from carya.serve.app import create_app
from carya.serve.routes.annif import _subjects
from carya.serve.routes.schemas import Suggested
from carya.serve.settings import Settings
from test_text_ranker import corpus

from serving import Client, Server, saved, server

TEXT = "the telescope shows a planet and its moon"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("annif")
    saved(folder / "topics", uri="http://topics.example/")
    with server(folder, str(folder / "topics")) as made:
        yield made


@pytest.fixture(scope="module")
def ranker(running: Server) -> carya.TextRanker:
    return carya.load(running.log.parent / "topics")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def annif(running: Server) -> AnnifClient:
    return AnnifClient(api_base=running.url("/v1/"))


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
    expected = [
        {"uri": one.label, "label": one.name, "notation": None, "score": one.score} for one in ranker.suggest(TEXT)
    ]
    assert annif.suggest("topics", TEXT) == expected
    assert annif.suggest("topics", TEXT, limit=2) == expected[:2]
    assert annif.suggest("topics", TEXT, limit=0) == []
    some = annif.suggest("topics", TEXT, threshold=0.5)
    assert some == [one for one in expected if one["score"] >= 0.5]
    assert 0 < len(some) < len(expected)
    assert annif.suggest("topics", "äöü & = % +") == []


def test_forms_as_clients_write_them(running: Server, annif: AnnifClient) -> None:
    expected = annif.suggest("topics", f"é {TEXT}")
    kind = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    for form in (f"text=é+{TEXT}", f"text=%C3%A9+{TEXT}&limit="):  # bytes as they are; an empty limit is none
        answer = httpx.post(running.url("/v1/projects/topics/suggest"), content=form.encode(), headers=kind)
        assert (answer.status_code, answer.json()) == (200, {"results": expected})


def test_suggest_batch(annif: AnnifClient, ranker: carya.TextRanker) -> None:
    documents = [{"text": TEXT, "document_id": "a"}, {"text": "a boat in the harbour", "metadata": {"title": "b"}}]
    found = annif.suggest_batch("topics", documents, limit=3, threshold=0.01)
    assert [one["document_id"] for one in found] == ["a", None]
    for one, document in zip(found, documents, strict=True):
        best = ranker.suggest(str(document["text"]), top_k=3, min_score=0.01)
        assert [(subject["uri"], subject["score"]) for subject in one["results"]] == [
            (label.label, label.score) for label in best
        ]
    assert annif.suggest_batch("topics", []) == []


def asked(folder: Path, **form: str) -> list[tuple[str, float]]:
    with Client(create_app({"m": folder}, Settings(log="error"))) as client:
        answer = client.post("/v1/projects/m/suggest", data={"text": TEXT, **form})
    assert answer.status_code == 200, answer.text
    return [(one["uri"], one["score"]) for one in answer.json()["results"]]


def test_scores_are_chances_where_there_are_chances(tmp_path: Path) -> None:
    ranker = saved(tmp_path / "m").calibrate(*corpus(100, seed=8))
    ranker.save(tmp_path / "m")
    assert ranker.calibration_ is not None
    best = ranker.suggest(TEXT)
    chances = ranker.calibration_([one.score for one in best]).tolist()
    pairs = [(one.label, chance) for one, chance in zip(best, chances, strict=True) if chance > 0]
    assert asked(tmp_path / "m") == pairs
    some = asked(tmp_path / "m", threshold="0.5", limit="3")
    assert some == [one for one in pairs if one[1] >= 0.5][:3]
    assert some


def test_scores_of_a_model_in_two_steps(tmp_path: Path) -> None:
    """Its scores are no shares: a threshold would have dropped all of them, or none."""
    model = carya.Reranked(carya.XRLinear(max_leaf=6, n_jobs=1), NeuralRanker(), n_jobs=1)
    ranker = carya.TextRanker(carya.Tfidf(n_jobs=1), model).fit(*corpus())
    ranker.save(tmp_path / "m")
    best = ranker.suggest(TEXT)
    found = asked(tmp_path / "m")
    assert [label for label, _ in found] == [one.label for one in best]
    scores = [score for _, score in found]
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(set(scores), reverse=True)
    assert asked(tmp_path / "m", threshold="0.5", limit="3") == [one for one in found if one[1] >= 0.5][:3]


def test_scores_that_are_no_shares() -> None:
    found = [Suggested("a", "A", -0.5), Suggested("b", "B", -2.0), Suggested("c", "C", -1000.0)]
    assert [one.score for one in _subjects(found, 0.0, in_logs=True)] == [math.exp(-0.5), math.exp(-2.0)]
    assert [one.uri for one in _subjects(found, 0.5, in_logs=True)] == ["a"]
    others = [Suggested("a", "A", 1.5), Suggested("b", "B", 0.25), Suggested("c", "C", -1.0)]
    assert [one.score for one in _subjects(others, 0.0, in_logs=False)] == [1.0, 0.25]


def test_what_annif_refuses(running: Server) -> None:
    place = running.url("/v1/projects/topics/")
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
        answer = httpx.post(place + "suggest", data=form)
        assert answer.status_code == status, answer.text
    assert httpx.post(place + "suggest", json={"text": "a"}).status_code == 415
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for broken in (b"text=%ff", b"text=\xff"):
        assert httpx.post(place + "suggest", content=broken, headers=kind).status_code == 400
    learned = httpx.post(place + "learn", json=[{"text": "a", "subjects": []}])
    assert learned.status_code == 403
    assert httpx.get(running.url("/v1/vocabs")).json()["vocabs"][0]["vocab_id"] == "topics"


def test_annifs_http_backend(running: Server, ranker: carya.TextRanker, tmp_path: Path) -> None:
    """A project of a real Annif that asks the server, through Annif's own command."""
    pytest.importorskip("annif")
    command = str(Path(sys.executable).parent / "annif")
    names = [f"<{label}>\t{name}" for label, name in zip(ranker.labels_, ranker.label_names_, strict=True)]
    (tmp_path / "topics.tsv").write_text("\n".join(names) + "\n")
    endpoint = running.url("/v1/projects/topics/suggest")
    project = f"name=Topics\nlanguage=en\nbackend=http\nvocab=topics\nendpoint={endpoint}\nlimit=5\n"
    (tmp_path / "projects.cfg").write_text(f"[topics-carya]\n{project}")

    def annif(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [command, *arguments], cwd=tmp_path, input=text, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    annif("load-vocab", "topics", "topics.tsv", "--language", "en")
    assert "True" in annif("show-project", "topics-carya")  # is trained
    found = [line.split("\t") for line in annif("suggest", "topics-carya", text=TEXT).splitlines()]
    best = ranker.suggest(TEXT, top_k=5)
    assert [line[0].strip("<>") for line in found] == [one.label for one in best]
    assert [line[1] for line in found] == [one.name for one in best]
    assert [float(line[-1]) for line in found] == pytest.approx([one.score for one in best], abs=1e-4)
