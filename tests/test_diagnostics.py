"""Tests for label reports: confidence intervals, over-suggested labels, distribution shift, and the HTML page."""

from __future__ import annotations

import html.parser
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner, Result

import carya
from carya.diagnostics.charts import bars, histogram, scatter
from carya.diagnostics.intervals import ratio_interval, wilson_interval
from carya.diagnostics.label_quality import label_quality
from carya.diagnostics.shift import label_shift, vocabulary_shift
from carya.errors import InputError, ParameterError

from topics import corpus

TEXTS, LABELS = corpus(300)


def run(*arguments: str) -> Result:
    from carya.cli.app import app

    return CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    return carya.TextRanker(carya.Tfidf(min_df=1), carya.XRLinear(max_leaf_size=8)).fit(TEXTS[:200], LABELS[:200])


# Intervals


def test_wilson_intervals_are_those_of_statsmodels() -> None:
    # statsmodels.stats.proportion.proportion_confint(method="wilson")
    expected = {(8, 10): (0.490162, 0.943318), (0, 20): (0.0, 0.161125), (50, 50): (0.928652, 1.0)}
    for (successes, total), bounds in expected.items():
        low, high = wilson_interval([successes], [total])
        assert (low[0], high[0]) == pytest.approx(bounds, abs=1e-5)
    assert np.array_equal(wilson_interval([0], [0]), [[0.0], [1.0]])
    low, high = wilson_interval([8], [10], confidence=0.5)
    assert 0.49 < low[0] < 0.8 < high[0] < 0.944


def test_wilson_intervals_contain_the_true_proportion() -> None:
    successes = np.random.default_rng(0).binomial(30, 0.2, 4_000)
    low, high = wilson_interval(successes, np.full(4_000, 30))
    assert np.mean((low <= 0.2) & (high >= 0.2)) == pytest.approx(0.95, abs=0.02)


def test_ratio_intervals_contain_the_true_ratio() -> None:
    rng = np.random.default_rng(0)
    low, high = ratio_interval(rng.poisson(60, 4_000), rng.poisson(20, 4_000), scale=0.5)
    assert np.mean((low <= 1.5) & (high >= 1.5)) == pytest.approx(0.95, abs=0.02)


# Labels


def test_over_suggested_labels() -> None:
    # Label 0 is suggested for all rows but is correct for only a tenth of them; labels 1 and 2 are suggested as often
    # as they occur.
    Y, S = np.zeros((200, 4)), np.zeros((200, 4))
    Y[:20, 0] = 1
    Y[:100, 1], Y[100:, 2] = 1, 1
    S[:, 0] = 0.5
    S[:100, 1], S[100:, 2] = 0.9, 0.9
    quality = label_quality(sp.csr_array(Y), sp.csr_array(S), "abcd", ["A", "B", "C", "D"], k=2)
    assert quality.labels == ["b", "c", "a"]  # sorted by support, without label d, which does not occur
    assert quality.names == ["B", "C", "A"]
    assert quality.columns.tolist() == [1, 2, 0]
    assert [quality.labels[position] for position in quality.over_suggested] == ["a"]
    record = quality.record(2)
    assert (record["support"], record["suggested"], record["correct"]) == (20, 200, 20)
    assert record["precision"] == pytest.approx(0.1)
    assert record["precision_low"] < 0.1 < record["precision_high"]
    assert record["recall"] == 1
    assert record["excess"] == pytest.approx(220 / 400 * 200.5 / 20.5)


def test_a_model_that_suggests_correct_labels_has_no_over_suggested_labels() -> None:
    Y = sp.csr_array(np.eye(5)[np.arange(500) % 5])
    assert label_quality(Y, Y, "abcde", "abcde", k=1).over_suggested == []


# Shift


def test_label_shift() -> None:
    training = np.array([100, 100, 100, 100, 0])
    shift = label_shift(np.array([50, 50, 50, 0, 50]), training, 400, 200, ["a", "b", "c", "d", "e"])
    assert shift.distance == pytest.approx(0.25)
    assert shift.unknown == [("e", 50)]
    assert shift.unknown_share == pytest.approx(0.25)
    assert shift.more == []
    assert [(change.name, change.count, change.expected) for change in shift.less] == [("d", 0, 50.0)]


def test_data_from_the_same_distribution_has_the_expected_distance() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(300))
    training, new = rng.multinomial(20_000, probabilities), rng.multinomial(5_000, probabilities)
    shift = label_shift(new, training, 20_000, 5_000, [str(label) for label in range(300)])
    assert shift.distance == pytest.approx(shift.expected_distance, rel=0.15)
    other = label_shift(
        rng.multinomial(5_000, probabilities[::-1]), training, 20_000, 5_000, list(map(str, range(300)))
    )
    assert other.distance > 5 * other.expected_distance


@pytest.mark.parametrize("settings", [{}, {"smooth_idf": False}, {"analyzer": ["word", "char_wb"]}])
def test_vocabulary_shift(settings: dict[str, Any]) -> None:
    vectorizer = carya.Tfidf(ngram_range=(1, 1), min_df=1, **settings)
    vectorizer.fit(["old word"] * 50 + ["other word"] * 50)
    shift = vocabulary_shift(vectorizer, ["Other words, NEW new"] * 20 + ["other x"] * 20 + ["#"], 100)
    assert shift.unknown == [("new", 40), ("words", 20)]
    assert shift.unknown_share == pytest.approx(60 / 100)
    assert shift.n_texts == 41
    assert shift.texts_without_terms == (0 if "analyzer" in settings else 1)  # " " is a known character n-gram
    assert [(change.name, change.count, change.expected) for change in shift.more] == [("other", 40, 20.5)]
    assert {change.name: change.expected for change in shift.less} == {"word": 41.0, "old": 20.5}


def test_vocabulary_shift_without_stored_frequencies() -> None:
    other: list[dict[str, Any]] = [{"use_idf": False}, {"analyzer": "char_wb"}, {"n_buckets": 64}]
    for settings in other:
        vectorizer = carya.Tfidf(min_df=1, **settings)
        vectorizer.fit(["old word", "other word"])
        shift = vocabulary_shift(vectorizer, ["old old"], 2)
        assert (shift.more, shift.less) == ([], [])
        assert shift.unknown_share == 0


# The report


def test_report_of_a_text_model(ranker: carya.TextRanker) -> None:
    texts, truth = [*TEXTS[200:], "zzz qqq"], [*LABELS[200:], ["other"]]
    report = carya.label_report(ranker, texts, truth, k=3)
    Y = ranker.label_matrix_and_ids(truth)[0]
    with pytest.warns(carya.errors.UnknownTextWarning):
        S = ranker.predict(texts, top_k=3)
    S.resize(Y.shape)
    expected = carya.metrics.label_report(Y, S, k=3)
    by_label = {record["label"]: record for record in report.records()}
    labels = [*ranker.labels_, "other"]
    for column, label in enumerate(labels):
        if expected.support[column]:
            assert by_label[label]["support"] == expected.support[column]
            assert by_label[label]["precision"] == pytest.approx(expected.precision[column], abs=1e-6)
    assert by_label["chess"]["training_rows"] == sum("chess" in labels for labels in LABELS[:200])
    assert report.label_shift is not None
    assert report.label_shift.unknown == [("other", 1)]
    assert report.vocabulary_shift is not None
    assert report.vocabulary_shift.unknown == [("qqq", 1), ("zzz", 1)]
    assert report.vocabulary_shift.texts_without_terms == 1
    assert len(report.to_frame()) == len(by_label)
    json.dumps(report.to_dict())


def test_report_of_a_feature_model() -> None:
    X, Y = carya.data.make_world(400, 30, seed=1)
    model = carya.XRLinear().fit(X[:300], Y[:300])
    report = carya.label_report(model, X[300:], Y[300:])
    assert report.label_shift is None
    assert report.vocabulary_shift is None
    shifted = carya.label_report(model, X[300:], Y[300:], train_labels=Y[:300])
    assert shifted.label_shift is not None
    counts = np.asarray((Y[:300] != 0).sum(axis=0)).ravel()
    assert {r["label"]: r["training_rows"] for r in shifted.records()} == {
        r["label"]: counts[int(r["label"])] for r in report.records()
    }


def test_invalid_arguments(ranker: carya.TextRanker) -> None:
    with pytest.raises(ParameterError, match="k must be an integer >= 1, got 0"):
        carya.label_report(ranker, TEXTS, LABELS, k=0)
    with pytest.raises(ParameterError, match="confidence must be"):
        carya.label_report(ranker, TEXTS, LABELS, confidence=0)
    with pytest.raises(InputError, match="less than 1"):
        carya.label_report(ranker, TEXTS, LABELS, confidence=1.0)
    with pytest.raises(InputError, match="same length"):
        carya.label_report(ranker, TEXTS, LABELS[:-1])
    with pytest.raises(InputError, match="No row has a label"):
        carya.label_report(ranker, TEXTS[:2], [[], []])
    with pytest.raises(carya.errors.NotFittedError):
        carya.label_report(carya.TextRanker(), TEXTS, LABELS)


class PageChecker(html.parser.HTMLParser):
    """HTML parser that checks that all elements are closed, and collects the tags, links and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained_and_escaped(tmp_path: Path) -> None:
    texts = [*TEXTS, "<script>alert(1)</script> & more"]
    labels = [*LABELS, ["<b>bold</b>"]]
    model = carya.TextRanker(carya.Tfidf(min_df=1)).fit(TEXTS[:200], LABELS[:200])
    carya.label_report(model, texts, labels).to_html(tmp_path / "page.html", title="A & B <i>")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    parsed = PageChecker(page)
    assert {"svg", "table", "circle", "h2"} <= parsed.tags
    assert not {"script", "b", "i", "img", "link"} & parsed.tags
    assert parsed.links == []
    assert "<b>bold</b>" in parsed.text  # text, not an element, because it is escaped
    for heading in ("Precision and recall", "Over-suggested labels", "Label shift", "Vocabulary shift", "All labels"):
        assert heading in parsed.text


def test_charts_of_few_values() -> None:
    assert scatter([], x="x", y="y") == histogram([], x="x", y="y") == bars([], first="a", second="b") == ""
    assert scatter([(0.0, 1.0, "no logarithm")], x="x", y="y", log_x=True) == ""
    for chart in (
        scatter([(3.0, 0.5, "one")], x="x", y="y", log_x=True, log_y=True, diagonal=True),
        histogram([1.0], x="x", y="y"),
        bars([("name", 0.0, 0.0)], first="a", second="b"),
    ):
        assert "nan" not in chart
        PageChecker(chart)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, ranker: carya.TextRanker) -> Path:
    folder = tmp_path_factory.mktemp("report")
    ranker.save(folder / "model")
    rows = zip(TEXTS[200:], LABELS[200:], strict=True)
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
    (folder / "new.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_the_command_writes_the_same_report(files: Path, tmp_path: Path, ranker: carya.TextRanker) -> None:
    page = tmp_path / "report.html"
    arguments = ["evaluate", str(files / "model"), str(files / "new.jsonl"), "--report", str(page)]
    result = run(*arguments, "--per-label-k", "3", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)["report"]
    report = carya.label_report(ranker, TEXTS[200:], LABELS[200:], k=3)
    assert summary == json.loads(json.dumps(report.to_dict()))
    report.to_html(tmp_path / "expected.html", title="model on new.jsonl")
    assert page.read_bytes() == (tmp_path / "expected.html").read_bytes()
    printed = run(*arguments).stdout
    assert "label shift: distance" in printed
    assert "vocabulary shift: " in printed


def test_report_options_are_checked_before_the_model_is_loaded() -> None:
    result = run("evaluate", "missing", "missing", "--report", "page.pdf")
    assert 'Unknown page type ".pdf". Use .html.' in str(result.exception)
