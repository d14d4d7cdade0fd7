"""Tests for Annif's API with a projects file, learning and language detection, compared with Annif's specification."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carya.errors import InputError
from carya.serve.app import create_app
from carya.serve.feedback import FeedbackRow, FeedbackStore
from carya.serve.settings import ServerSettings

from serving import Client, run_carya, save_model

TEXT = "the telescope shows a planet and its moon"
URI = "http://topics.example/"
PROJECTS = """[topics]
name=Topics in English
language=en
backend=omikuji
vocab=topics-vocabulary(en)
vocabulary_file={file}

[not-served]
name=Another project
"""
SKOS = f"""@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<{URI}astronomy> a skos:Concept ; skos:prefLabel "astronomy"@en, "tähtitiede"@fi ; skos:notation "520" .
<{URI}chess> a skos:Concept ; skos:prefLabel "chess"@en .
"""
CSV = f"""uri,notation,label_en,label_fi
{URI}astronomy,520,astronomy,tähtitiede
{URI}chess,,chess,
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("annif")
    save_model(folder / "model", uri=URI)
    (folder / "vocabulary.ttl").write_text(SKOS, encoding="utf-8")
    (folder / "vocabulary.csv").write_text(CSV, encoding="utf-8")
    return folder


def new_client(folder: Path, **settings: Any) -> Client:
    models = {"topics": folder / "model", "other": folder / "model"}
    return Client(create_app(models, ServerSettings(log_level="error", **settings)))


@pytest.fixture(scope="module", params=["vocabulary.ttl", "vocabulary.csv"])
def client(request: pytest.FixtureRequest, folder: Path) -> Iterator[Client]:
    if request.param.endswith("ttl"):
        pytest.importorskip("rdflib")
    path = folder / f"projects-{request.param}.cfg"
    path.write_text(PROJECTS.format(file=request.param))
    with new_client(folder, projects_file=str(path)) as client:
        yield client


def test_projects_have_names_and_vocabularies(client: Client) -> None:
    project = client.get("/v1/projects/topics").json()
    assert (project["name"], project["language"], project["vocab_language"]) == ("Topics in English", "en", "en")
    assert project["vocab"]["vocab_id"] == "topics-vocabulary"
    assert project["vocab"]["languages"] == ["en", "fi"]
    assert [project["name"] for project in client.get("/v1/projects").json()["projects"]] == [
        "Topics in English",
        "other",
    ]
    vocabularies = client.get("/v1/vocabs").json()["vocabs"]
    assert [vocabulary["vocab_id"] for vocabulary in vocabularies] == ["topics-vocabulary", "other"]


def test_label_names_depend_on_the_language(client: Client) -> None:
    def suggest(**form: str) -> dict[str, tuple[str, str | None]]:
        response = client.post("/v1/projects/topics/suggest", data={"text": TEXT, **form})
        assert response.status_code == 200, response.text
        return {item["uri"]: (item["label"], item["notation"]) for item in response.json()["results"]}

    assert suggest()[f"{URI}astronomy"] == ("astronomy", "520")
    finnish = suggest(language="fi", limit="100")
    assert finnish[f"{URI}astronomy"] == ("tähtitiede", "520")
    assert finnish[f"{URI}chess"] == ("Chess", None)  # the name stored in the model
    batch = client.post("/v1/projects/topics/suggest-batch?language=fi", {"documents": [{"text": TEXT}]}).json()
    assert ("tähtitiede", "520") in [(item["label"], item["notation"]) for item in batch[0]["results"]]
    response = client.post("/v1/projects/topics/suggest", data={"text": TEXT, "language": "sv"})
    assert response.status_code == 400
    assert response.json()["detail"] == "language 'sv' is not supported by the vocabulary. Use en, fi."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no section", "is not a valid projects file"),
        ("[missing]\nname=x\n", r"contains no section for a served model. Add a section named 'topics', 'other'\."),
        ("[topics]\nvocabulary_file=missing.csv\n", "missing.csv"),
    ],
)
def test_invalid_projects_files_are_reported(folder: Path, tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "projects.cfg"
    path.write_text(content)
    with pytest.raises((InputError, OSError), match=message):
        new_client(folder, projects_file=str(path))
    run = run_carya("serve", str(folder / "model"), "--projects-file", str(tmp_path / "none.cfg"), "--workers", "2")
    assert run.returncode == 2
    assert "none.cfg: No such file or directory" in run.stderr


def test_learn_stores_documents(folder: Path, tmp_path: Path) -> None:
    documents: list[dict[str, Any]] = [
        {"text": "a comet", "subjects": [{"uri": f"{URI}astronomy", "label": "x"}], "metadata": {"title": "y"}},
        {"text": "no subjects"},
        {"subjects": []},
    ]
    with new_client(folder) as client:
        assert client.post("/v1/projects/topics/learn", documents).status_code == 403
        assert client.post("/v1/projects/missing/learn", documents).status_code == 404
    with new_client(folder, feedback_file=str(tmp_path / "feedback.db"), max_texts=3) as client:
        response = client.post("/v1/projects/topics/learn", documents)
        assert (response.status_code, response.content) == (204, b"")
        assert client.post("/v1/projects/topics/learn", [documents[0]] * 4).status_code == 413
        assert client.post("/v1/projects/topics/learn", {"text": "a"}).status_code == 400
    assert list(FeedbackStore(tmp_path / "feedback.db").rows()) == [FeedbackRow("a comet", [f"{URI}astronomy"], [])]


def test_languages_are_detected(folder: Path) -> None:
    pytest.importorskip("simplemma")
    with new_client(folder) as client:
        message = {"text": "Dies ist ein kurzer Text über das Wetter", "languages": ["en", "de"]}
        results = client.post("/v1/detect-language", message).json()["results"]
        assert results[0]["language"] == "de"
        assert {result["language"] for result in results} == {"en", "de", None}
        assert [result["score"] for result in results] == sorted((result["score"] for result in results), reverse=True)
        response = client.post("/v1/detect-language", {"text": "the weather is fine", "languages": ["xx"]})
        assert (response.status_code, response.json()["detail"]) == (400, "unsupported candidate languages")
        for languages in ([], ["en"] * 6, ["english"]):
            assert client.post("/v1/detect-language", {"text": "a", "languages": languages}).status_code == 400


def test_language_detection_requires_simplemma(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "simplemma", None)
    with new_client(folder) as client:
        response = client.post("/v1/detect-language", {"text": "a", "languages": ["en"]})
    assert response.status_code == 503
    assert "carya[annif]" in response.json()["detail"]
