"""Annif's API, asked by PyPI's annif-client; and by Annif's own http backend where Annif is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from annif_client import AnnifClient

import carya

from serving import Server, saved, server

TEXT = "the telescope shows a planet and its moon"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("annif")
    saved(folder / "topics")
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
    broken = httpx.post(
        place + "suggest", content=b"text=%ff", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert broken.status_code == 400
    learned = httpx.post(place + "learn", json=[{"text": "a", "subjects": []}])
    assert learned.status_code == 403
    assert httpx.get(running.url("/v1/vocabs")).json()["vocabs"][0]["vocab_id"] == "topics"


def test_annifs_http_backend(running: Server, ranker: carya.TextRanker, tmp_path: Path) -> None:
    pytest.importorskip("annif")
    from annif.backend.http import HTTPBackend
    from annif.corpus import Document

    class Subjects:
        def by_uri(self, uri: str) -> int:
            return list(ranker.labels_).index(uri)

    class Project:
        subjects = Subjects()

    where = {"endpoint": running.url("/v1/projects/topics/suggest"), "limit": 5}
    backend = HTTPBackend("http", where, Project())
    assert backend.is_trained is True
    assert backend.modification_time is not None
    (found,) = backend.suggest([Document(text=TEXT, metadata={"title": "b"})])
    assert [(ranker.labels_[one.subject_id], one.score) for one in found] == [
        (one.label, one.score) for one in ranker.suggest(TEXT, top_k=5)
    ]
