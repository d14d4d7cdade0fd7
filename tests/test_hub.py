"""Tests for models on the Hugging Face Hub, using a mock server for its HTTP API."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import carya
from carya.errors import InputError, MissingExtraError, ModelFormatError
from carya.hub.card import CardDetails, model_card

import command_line
from fake_hub import FakeHub, serve_fake_hub
from model_kinds import KINDS, ModelKind, params, training_set
from topics import corpus

pytest.importorskip("huggingface_hub")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A mock server for the Hub; proxies and progress bars are disabled."""
    utils = pytest.importorskip("huggingface_hub.utils")

    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    utils.disable_progress_bars()
    with serve_fake_hub() as served:
        yield served
    utils.enable_progress_bars()


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    texts, labels = corpus(80)
    return carya.TextRanker().fit(texts, labels)


def card_metadata(card: str) -> dict[str, Any]:
    """Parse the metadata block of a model card, whose values are all JSON."""
    assert card.startswith("---\n")
    lines = card[4:].partition("\n---\n")[0].splitlines()
    return {line.partition(": ")[0]: json.loads(line.partition(": ")[2]) for line in lines}


@pytest.mark.parametrize("kind", params(KINDS))
def test_every_model_kind_survives_the_round_trip(kind: ModelKind, hub: FakeHub, tmp_path: Path) -> None:
    data = training_set(kind.form)
    model = kind.create().fit(data.inputs, data.labels)
    carya.push_to_hub(model, "user/model", token="hf_x", endpoint=hub.address)
    opened = carya.from_pretrained("user/model", token="hf_x", cache_dir=tmp_path, endpoint=hub.address)
    rows = data.rows(slice(0, 5))
    expected, found = model.predict(rows), opened.predict(rows)
    assert type(opened) is type(model)
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.data.tolist() == expected.data.tolist()
    card = hub.repositories["user/model"]["main"]["README.md"].decode()
    assert f"* Labels: {len(model.labels_):,}" in card


def test_uploads_contain_the_saved_files_and_a_card(ranker: carya.TextRanker, hub: FakeHub, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("an older card")
    address = carya.push_to_hub(
        tmp_path / "model",
        "user/topics",
        private=True,
        token="hf_secret",
        endpoint=hub.address,
        data="Generated texts.",
    )
    files = hub.repositories["user/topics"]["main"]
    saved = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert files.keys() == saved.keys()
    assert all(files[name] == saved[name] for name in saved if name != "README.md")
    assert "Generated texts." in files["README.md"].decode()
    assert address == f"{hub.address}/user/topics/commit/{hub.commit_of('user/topics', 'main')}"
    assert hub.private["user/topics"]
    assert hub.tokens == {"Bearer hf_secret"}


def test_revisions_and_the_cache(ranker: carya.TextRanker, hub: FakeHub, tmp_path: Path) -> None:
    options: dict[str, Any] = {"token": "hf_x", "endpoint": hub.address}
    carya.push_to_hub(ranker, "user/topics", revision="v2", **options)
    with pytest.raises(ModelFormatError, match="is not a Carya model"):  # the main branch is empty
        carya.from_pretrained("user/topics", cache_dir=tmp_path / "empty", **options)
    carya.from_pretrained("user/topics", revision="v2", cache_dir=tmp_path, **options)
    hub.requests.clear()
    opened = carya.from_pretrained("user/topics", revision="v2", cache_dir=tmp_path, local_files_only=True, **options)
    assert list(opened.labels_) == list(ranker.labels_)
    assert hub.requests == []
    with pytest.raises(InputError, match="user/missing cannot be downloaded from the Hugging Face Hub"):
        carya.from_pretrained("user/missing", cache_dir=tmp_path, **options)
    with pytest.raises(InputError, match="forbidden/x cannot be uploaded to the Hugging Face Hub"):
        carya.push_to_hub(ranker, "forbidden/x", **options)
    with pytest.raises(InputError, match="cannot be uploaded"):
        carya.push_to_hub(ranker, "not a name", **options)


def test_folders_are_loaded_without_the_hub(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    assert list(carya.from_pretrained(tmp_path / "model").labels_) == list(ranker.labels_)


def test_cards_show_metrics_calibration_and_limits(ranker: carya.TextRanker) -> None:
    evaluation = {"rows": 1200, "P@1": 0.5, "R@10": 0.25, "microseconds_per_row": 7}
    card = model_card(ranker, "me/topics", CardDetails(evaluation=evaluation, license="apache-2.0", language="en"))
    metadata = card_metadata(card)
    assert metadata["library_name"] == "carya"
    assert metadata["license"] == "apache-2.0"
    assert metadata["language"] == ["en"]
    metrics = metadata["model-index"][0]["results"][0]["metrics"]
    assert metrics == [{"type": "P@1", "value": 50.0}, {"type": "R@10", "value": 25.0}]
    assert "Measured on 1,200 test rows, for the best 1 to 10 suggestions." in card
    assert "| % | @1 | @10 |\n|---|--:|--:|\n| Precision (P) | 50.0 |  |\n| Recall (R) |  | 25.0 |" in card
    assert ranker.label_counts_ is not None
    counts = dict(zip(ranker.label_names_, ranker.label_counts_.tolist(), strict=True))
    listed = card.partition("* Most frequent labels: `")[2].partition("`\n")[0].split("`, `")
    assert [counts[name] for name in listed] == sorted(counts.values(), reverse=True)[:5]
    assert "* Training texts: 80" in card
    assert "The model is not calibrated" in card
    assert "Only labels that occur in the training data can be suggested." in card
    texts, labels = corpus(80, seed=1)
    calibrated = carya.TextRanker().fit(texts, labels).calibrate(*corpus(80, seed=2))
    plain = model_card(calibrated, "me/topics", CardDetails())
    assert "The model is calibrated" in plain
    assert "print(suggestion.name, suggestion.probability)" in plain
    measured = model_card(calibrated, "me/topics", CardDetails(evaluation={"P@1": 0.5, "ECE@5": 0.0123}))
    assert "by 1.2 percentage points on average (ECE@5)." in measured
    assert "No metrics on test data were provided" in plain
    assert "license" not in card_metadata(plain)


def test_the_commands_upload_and_download(ranker: carya.TextRanker, hub: FakeHub, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    (tmp_path / "run").mkdir()
    evaluation = {"format": 1, "rows": 9, "model": "XRLinear", "latency_ms": [1], "metrics": {"P@1": 0.75}}
    (tmp_path / "run" / "evaluation.json").write_text(json.dumps(evaluation))
    environment = os.environ | {"HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_x", "HF_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> Any:
        return command_line.run(*arguments, cwd=tmp_path, env=environment)

    options = ["--license", "mit", "--language", "en, fi", "--run", "run"]
    pushed = run("push", "model", "user/topics", *options)
    assert pushed.returncode == 0, pushed.stderr
    assert pushed.stdout.strip().startswith(f"{hub.address}/user/topics/commit/")
    card = hub.repositories["user/topics"]["main"]["README.md"].decode()
    assert card_metadata(card)["language"] == ["en", "fi"]
    assert "| Precision (P) | 75.0 |" in card
    pulled = run("pull", "user/topics", "-o", "copy")
    assert pulled.returncode == 0, pulled.stderr
    assert list(carya.load(tmp_path / "copy").labels_) == list(ranker.labels_)
    again = run("pull", "user/topics", "-o", "copy")
    assert again.returncode != 0
    assert "--force" in again.stderr


def test_a_missing_package_is_named(ranker: carya.TextRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'carya\[hub\]'"):
        carya.push_to_hub(ranker, "user/topics")
    with pytest.raises(MissingExtraError, match=r"pip install 'carya\[hub\]'"):
        carya.from_pretrained("user/topics")


def hub_page_blocks() -> list[str]:
    """Return the Python blocks of docs/hub.md: the first block uses the Hub, and the others use MLflow."""
    page = (Path(__file__).parent.parent / "docs" / "hub.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_the_example_in_the_documentation_runs(hub: FakeHub, tmp_path: Path) -> None:
    environment = os.environ | {"HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_x", "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", hub_page_blocks()[0]]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "label='net'" in run.stdout
    assert "Four descriptions" in hub.repositories["user/packages"]["main"]["README.md"].decode()


def test_the_recipe_for_mlflow_runs(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    upload = re.compile(r"carya\.push_to_hub\(.*?^\)\n.*", re.DOTALL | re.MULTILINE)
    first, recipe, logging = hub_page_blocks()
    blocks = [upload.sub("", first), recipe]
    if importlib.util.find_spec("sqlalchemy") is not None:  # not part of mlflow-skinny
        blocks.append(logging)
    command = [sys.executable, "-W", "ignore", "-c", "\n".join(blocks)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "('net', " in run.stdout.splitlines()[-1]
