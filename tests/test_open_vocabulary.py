"""Tests for open vocabularies: phrases in a text that are not in the label list, ranked together with known labels."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import carya
from carya.errors import InputError
from carya.ranking import NeuralRanker
from carya.serve.app import create_app
from carya.serve.settings import ServerSettings
from carya.text.open_vocabulary.name_statistics import NameStatistics, normalize, plural
from carya.text.open_vocabulary.phrases import FEATURES, find_phrases
from carya.text.open_vocabulary.proposals import propose

from serving import Client

NOUNS = ("server", "editor", "client", "library", "compiler", "player")
TOPICS = ("web", "mail", "photo", "music", "video", "text")
TEXTS = [f"A fast {topic} {noun} for the {other} of the user" for topic in TOPICS for noun in NOUNS for other in TOPICS]
LABELS = [[f"{topic} {plural(noun)}"] for topic in TOPICS for noun in NOUNS for _ in TOPICS]
#: No training text has any of these labels, but their words occur in other labels.
HELD_OUT = {"music servers", "text editors", "web players"}
KEPT = [row for row, labels in enumerate(LABELS) if labels[0] not in HELD_OUT]


def run(*arguments: str) -> Result:
    from carya.cli.app import app

    return CliRunner().invoke(app, arguments)


def kinds() -> dict[str, Any]:
    words = carya.Tfidf(min_df=1)
    tree = carya.XRLinear(max_leaf_size=8)
    return {
        "tree": carya.TextRanker(words, tree),
        "neighbors": carya.TextRanker(words, carya.NearestNeighbors(over="rows")),
        "ensemble": carya.TextRanker(words, carya.Ensemble(tree, n_trees=2)),
        "reranked": carya.TextRanker(None, carya.Reranked(tree, NeuralRanker(epochs=3))),
        "text ensemble": carya.TextEnsemble(
            [carya.TextRanker(carya.Tfidf(analyzer="char_wb", min_df=1), tree), carya.TextRanker(words, tree)]
        ),
    }


def fitted(model: Any) -> Any:
    return model.fit([TEXTS[row] for row in KEPT], [LABELS[row] for row in KEPT])


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    model: carya.TextRanker = fitted(kinds()["tree"])
    return model


# Names and phrases


def test_statistics_of_names() -> None:
    names = NameStatistics.of(["Web servers", "mail servers", "photography", "history of Finland", "C++"])
    assert names.names == {"web servers", "mail servers", "photography", "history of finland", "c"}
    assert names.words["servers"] == names.last_words["servers"] == 2
    assert names.last_words["web"] == 0
    assert names.lengths == (2 / 5, 2 / 5, 1 / 5)
    assert names.prefers_plurals
    assert names.has_related_word("server")
    assert names.has_related_word("photographs")
    assert not names.has_related_word("chess")
    assert normalize("  Web-based\tServers (2) ") == "web-based servers 2"
    with pytest.raises(InputError, match="most labels are codes"):
        NameStatistics.of(["http://example.org/a1", "http://example.org/a2", "name"])
    with pytest.raises(InputError, match="most labels are codes"):
        NameStatistics.of(["1", "2", "300.4"])


def test_phrases_do_not_cross_punctuation_or_end_with_function_words() -> None:
    texts = [f"the {a} of the {b}" for a in TOPICS for b in NOUNS] + ["the end of the day"] * 1_000
    vectorizer = carya.Tfidf(min_df=1).fit(texts)
    names = NameStatistics.of(["web", "music"])
    found = {phrase.text for phrase in find_phrases("The mail server, photo of the video editor", vectorizer, names)}
    assert {"mail", "mail server", "server", "photo", "video editor"} <= found
    assert not {"the mail", "server photo", "photo of", "of the video", "the"} & found
    assert not {"web", "music"} & {phrase.text for phrase in find_phrases("web music", vectorizer, names)}
    assert all(len(phrase.features) == len(FEATURES) for phrase in find_phrases("mail", vectorizer, names))


def test_plurals_are_proposed_only_if_names_are_plurals() -> None:
    vectorizer = carya.Tfidf(min_df=1).fit([*TEXTS, *["nothing else"] * 5_000])
    plurals = find_phrases("a text editor", vectorizer, NameStatistics.of(["web servers", "mail servers"]))
    assert {"text editor", "text editors"} <= {phrase.text for phrase in plurals}
    singular = find_phrases("a text editor", vectorizer, NameStatistics.of(["web server", "mail server"]))
    assert "text editors" not in {phrase.text for phrase in singular}
    known = find_phrases("a text editor", vectorizer, NameStatistics.of(["text editors", "mail servers"]))
    assert not {"text editor", "text editors"} & {phrase.text for phrase in known}


@pytest.mark.parametrize("text", ["", " ", "...", "1 2 3", "\x00", "é", "機器學習", "a " * 3_000, "𝔘𝔫𝔦 code"])
def test_unusual_texts(ranker: carya.TextRanker, text: str) -> None:
    suggestions = ranker.suggest(text, top_k=5, open_vocabulary=True)
    assert len(suggestions) <= 5
    for suggestion in suggestions:
        assert suggestion.label


# Suggestions


def test_held_out_labels_are_proposed(ranker: carya.TextRanker) -> None:
    for name in HELD_OUT:
        text = TEXTS[next(row for row, labels in enumerate(LABELS) if labels == [name])]
        assert name in {label for label, _ in propose(text, ranker.vectorizer_, ranker.label_set_, top_k=5)}


@pytest.mark.parametrize("kind", kinds())
def test_proposals_are_ranked_beside_known_labels(kind: str) -> None:
    model = fitted(kinds()[kind])
    text = "A fast music server for the photo of the user"
    merged = model.suggest(text, top_k=50, open_vocabulary=True)
    known = model.suggest(text, top_k=50)
    new = [suggestion for suggestion in merged if suggestion.is_new]
    assert new
    assert not any(suggestion.is_new for suggestion in known)
    assert not {suggestion.label for suggestion in new} & set(model.labels_)
    remaining = [suggestion for suggestion in merged if not suggestion.is_new]
    assert remaining == known[: len(remaining)]
    scores = [suggestion.score for suggestion in merged]
    assert scores == sorted(scores, reverse=True)
    assert len(merged) <= 50
    assert model.suggest_all([text, text], top_k=50, open_vocabulary=True) == [merged, merged]
    if model.has_log_scores:
        assert all(suggestion.score < 0 for suggestion in new)


def test_scores_of_calibrated_models_are_on_the_scale_of_the_model(ranker: carya.TextRanker) -> None:
    calibrated = fitted(kinds()["tree"])
    calibrated.calibrate([f"{text} {other}" for text, other in zip(TEXTS, TEXTS[7:], strict=False)], LABELS[:-7])
    text = "A fast music server for the photo of the user"
    low, high = calibrated.calibration_.scores[[0, -1]]
    new = [found for found in calibrated.suggest(text, top_k=30, open_vocabulary=True) if found.is_new]
    assert new
    assert all(low <= suggestion.score <= high for suggestion in new)


def test_limits_apply_to_proposals(ranker: carya.TextRanker) -> None:
    text = "A fast music server"
    merged = ranker.suggest(text, top_k=20, open_vocabulary=True)
    threshold = merged[2].score
    assert ranker.suggest(text, top_k=20, min_score=threshold, open_vocabulary=True) == merged[:3]
    assert ranker.suggest(text, top_k=1, open_vocabulary=True) == merged[:1]
    transformed = ranker.suggest(text, top_k=50, transform="sigmoid", open_vocabulary=True)
    assert any(suggestion.is_new for suggestion in transformed)


def test_unsupported_combinations(ranker: carya.TextRanker) -> None:
    with pytest.raises(InputError, match="cannot be combined with labels"):
        ranker.suggest("a music server", labels=["web servers"], open_vocabulary=True)
    with pytest.raises(InputError, match="cannot be combined with as_frame"):
        ranker.suggest_all(["a music server"], as_frame=True, open_vocabulary=True)
    codes = carya.TextRanker(carya.Tfidf(min_df=1)).fit(TEXTS, [["17"]] * len(TEXTS))
    with pytest.raises(InputError, match="most labels are codes"):
        codes.suggest("a music server", open_vocabulary=True)
    named = carya.TextRanker(carya.Tfidf(min_df=1)).fit(TEXTS, [["17"]] * len(TEXTS), names={"17": "software"})
    assert any(suggestion.is_new for suggestion in named.suggest("a music server", open_vocabulary=True))
    others: list[dict[str, Any]] = [{"analyzer": "char_wb"}, {"n_buckets": 64}, {"use_idf": False}]
    for settings in others:
        model = fitted(carya.TextRanker(carya.Tfidf(min_df=1, **settings)))
        with pytest.raises(InputError, match="requires a vectorizer with analyzer='word'"):
            model.suggest("a music server", open_vocabulary=True)


def test_saved_models_propose_the_same_labels(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    text = "A fast music server for the photo of the user"
    loaded = carya.load(tmp_path / "model")
    assert loaded.suggest(text, open_vocabulary=True) == ranker.suggest(text, open_vocabulary=True)


# The command and the server


def test_predict_marks_new_labels(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    text = "A fast music server"
    result = run("predict", str(tmp_path / "model"), text, "--open-vocabulary", "--top-k", "6")
    assert result.exit_code == 0, result.output
    labels = json.loads(result.stdout)["labels"]
    expected = ranker.suggest(text, top_k=6, open_vocabulary=True)
    assert [(one["label"], one.get("new", False)) for one in labels] == [(one.label, one.is_new) for one in expected]
    result = run("predict", str(tmp_path / "model"), text, "--open-vocabulary", "--output-format", "csv")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert {row["new"] for row in rows} == {"true", "false"}
    plain = run("predict", str(tmp_path / "model"), text, "--output-format", "csv")
    assert "new" not in plain.stdout.splitlines()[0]


def test_predict_refuses_models_for_features(tmp_path: Path) -> None:
    X, Y = carya.data.make_world(100, 5, seed=0)
    carya.XRLinear().fit(X, Y).save(tmp_path / "model")
    carya.data.write_data(tmp_path / "data.svm", carya.data.Matrices.of(X, Y))
    result = run("predict", str(tmp_path / "model"), str(tmp_path / "data.svm"), "--open-vocabulary")
    assert "--open-vocabulary requires a model trained on texts" in str(result.exception)


def test_the_server_marks_new_labels(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    codes = carya.TextRanker(carya.Tfidf(min_df=1)).fit(TEXTS, [["17"]] * len(TEXTS))
    codes.save(tmp_path / "codes")
    text = "A fast music server"
    expected = ranker.suggest(text, top_k=6, open_vocabulary=True)
    models = {"model": tmp_path / "model", "codes": tmp_path / "codes"}
    with Client(create_app(models, ServerSettings(log_level="error"))) as client:
        message = {"text": text, "top_k": 6, "open_vocabulary": True, "model": "model"}
        found = client.post("/v1/suggest", message).json()["results"][0]["suggestions"]
        assert [(one["label"], one.get("new", False)) for one in found] == [(one.label, one.is_new) for one in expected]
        refused = client.post("/v1/suggest", message | {"model": "codes"})
        assert refused.status_code == 400
        assert "most labels are codes" in refused.text
        refused = client.post("/v1/suggest", message | {"labels": {"prefix": "web"}})
        assert refused.status_code == 400
        assert "open_vocabulary cannot be combined with labels" in refused.text
