"""Tests for `carya report`: recording runs of all model kinds, measurements, and the generated pages."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.errors import InputError, MissingExtraError, SaveError
from carya.models.calibration.calibration import Calibration
from carya.report import measurement
from carya.report.charts import draw_charts
from carya.report.page import html_page, markdown_page, write_report
from carya.report.run import Run, check_run_folder, read_run, record_evaluation, record_training

import command_line
from model_kinds import KINDS, ModelKind, params, training_set

pytest.importorskip("matplotlib")
#: The labels of two rows, {0, 2} and {1}, and the scores of three labels for each row.
Y = sp.csr_array(np.array([[1, 0, 1], [0, 1, 0]], np.float32))
S = sp.csr_array(np.array([[0.9, 0.2, 0.4], [0.3, 0.6, 0.0]], np.float32))


def measured(model: Any, inputs: Any, truth: Any) -> dict[str, Any]:
    scores = model.predict(inputs)
    scores.resize(truth.shape)
    run = measurement.measure_run(model, inputs, truth, scores, seconds_per_row=1e-4, counts=None)
    result: dict[str, Any] = json.loads(json.dumps(run))
    return result


def sample_run(name: str = "a", **changes: Any) -> Run:
    X, truth = carya.data.make_world(200, 20, seed=0)
    model = carya.XRLinear(max_leaf_size=4, branching=2).fit(X, truth)
    evaluation = {
        "model": "XRLinear",
        "data": "test",
        "rows": 200,
        "labels": 20,
        "bytes": 1_500_000,
        "metrics": {"P@1": 0.5, "R@10": 0.9, "microseconds_per_row": 3.0},
        "environment": {"machine": {"processor": "CPU", "cores": 2}, "versions": {"carya": "1"}},
        **measured(model, X, truth),
    }
    return Run(name, {"seconds": 2.5, "rows": 1000}, evaluation | changes)


@pytest.mark.parametrize("kind", params(KINDS))
def test_every_model_kind_can_be_recorded_and_shown(kind: ModelKind) -> None:
    data = training_set(kind.form)
    model = kind.create().fit(data.inputs, data.labels)
    inputs = data.rows(slice(0, 30))
    truth = model.label_matrix(data.labels[:30]) if kind.form == "texts" else data.labels[:30]
    result = measured(model, inputs, sp.csr_array(truth))
    assert len(result["latency_ms"]) == 30
    assert result["latency_ms"] == sorted(result["latency_ms"])
    assert bool(result["beam_widths"]) == bool(model.trees_) == bool(result["trees"])
    run = sample_run("kind")
    charts = draw_charts([Run("kind", None, run.evaluation | result)])
    assert {"latency", "deciles", "time-against-precision"} <= charts.keys()
    assert ("tree-1" in charts) == bool(model.trees_)


def test_precision_by_frequency_has_known_values() -> None:
    # Label 2 is the rarest in training. Every label with a nonzero score is suggested, so label 2 is suggested only
    # once, for the row that has it.
    groups = measurement.precision_by_frequency(Y, S, np.array([30, 20, 10]))
    assert [group["highest"] for group in groups] == [10, 20, 30]
    assert [group["precision"] for group in groups] == [1.0, 0.5, 0.5]
    assert [group["recall"] for group in groups] == [1.0, 1.0, 1.0]
    unsuggested = measurement.precision_by_frequency(Y, sp.csr_array((2, 3)), None)
    assert [group["precision"] for group in unsuggested] == [None, None, None]
    assert [group["recall"] for group in unsuggested] == [0, 0, 0]


def test_reliability_has_known_values() -> None:
    class Calibrated:
        calibration_ = Calibration(np.array([0.35, 0.36], np.float32), np.array([0, 1], np.float32))

    perfect = measurement.reliability(Calibrated(), Y, S)
    assert perfect is not None
    assert perfect["is_calibrated"]
    assert perfect["error"] == 0
    raw = measurement.reliability(object(), Y, S)
    assert raw is not None
    assert not raw["is_calibrated"]
    assert sum(size for _, _, size in raw["bins"]) == S.nnz
    assert [(round(x, 2), y) for x, y, _ in raw["bins"]] == [(0.2, 0), (0.3, 0), (0.4, 1), (0.6, 1), (0.9, 1)]
    assert measurement.reliability(object(), Y, S * -1) is None


def test_tree_levels_contain_all_labels() -> None:
    run = sample_run()
    (tree,) = run.evaluation["trees"]
    assert tree["level_sizes"][0] == 1
    assert tree["level_sizes"][-1] == 20
    assert [len(level) for level in tree["levels"]] == tree["level_sizes"][1:-1]
    assert all(sum(cluster["labels"] for cluster in level) == 20 for level in tree["levels"])


def test_clusters_are_named_after_their_most_frequent_label() -> None:
    X, truth = carya.data.make_world(100, 6, seed=0)
    model = carya.XRLinear(tree=carya.LabelTree([[0, 0], [0, 0, 0, 1, 1, 1]])).fit(X, truth)
    (tree,) = measurement.describe_trees(model, np.array([1, 9, 2, 3, 4, 5]))
    assert [cluster["name"] for cluster in tree["levels"][0]] == ["1", "5"]


def test_the_page_is_self_contained_and_escapes_names() -> None:
    runs = [sample_run("<b>|x"), sample_run("other", reliability=None, beam_widths=[], trees=[])]
    charts = draw_charts(runs)
    page = html_page(runs, charts, title="A & B")
    assert "<title>A &amp; B</title>" in page
    assert "&lt;b&gt;|x" in page
    assert "<b>" not in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert page.count("<figure>") == len(charts) == 6  # five charts and one tree
    for svg in charts.values():
        ET.fromstring(svg)
    text = markdown_page(runs, charts, title="A & B")
    rows = [line for line in text.splitlines() if line.startswith("| \\<b\\>\\|x")]
    assert len(rows) == 3
    assert "| 50.00 | 90.00 |" in rows[0]
    assert "| 2.5 | 3.0 |" in rows[1]


def test_reports_are_reproducible_and_replace_only_reports(tmp_path: Path) -> None:
    run = sample_run()
    write_report(tmp_path / "report", [run], title="Results")
    first = {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()}
    write_report(tmp_path / "report", [run], title="Results")
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()}
    (tmp_path / "report" / "notes.txt").touch()
    with pytest.raises(SaveError, match=r"contains 'notes\.txt'"):
        write_report(tmp_path / "report", [run], title="Results")


def test_the_command_line_records_and_reports(tmp_path: Path) -> None:
    def carya_command(*arguments: str) -> str:
        finished = command_line.run(*arguments, cwd=tmp_path)
        assert finished.returncode == 0, finished.stderr
        return str(finished.stdout)

    carya_command("data", "synth", "data", "--like", "eurlex-4k", "--scale", "0.02", "--texts")
    carya_command("train", "data", "-o", "model", "--record", "runs/a", "-q")
    carya_command("evaluate", "model", "data", "--record", "runs/a", "-q")
    result = json.loads(carya_command("evaluate", "model", "data", "--record", "runs/b", "-q", "--json"))
    assert read_run(tmp_path / "runs/b").evaluation["metrics"]["P@1"] == result["P@1"]
    assert read_run(tmp_path / "runs/b").training is None
    run = read_run(tmp_path / "runs/a")
    assert run.training is not None
    assert run.training["rows"] == 309
    assert run.training["environment"]["versions"]["carya"] == carya.__version__
    assert carya_command("report", "runs/a", "runs/b").strip() == "report/report.html"
    assert "| a | " in (tmp_path / "report/report.md").read_text(encoding="utf-8")

    (tmp_path / "other" / "a").mkdir(parents=True)
    (tmp_path / "runs/a/evaluation.json").rename(tmp_path / "other/a/evaluation.json")
    failed = command_line.run("report", "runs/b", "other/a", "other/a", cwd=tmp_path)
    assert failed.returncode == 2
    assert "Two runs are named 'a'" in failed.stderr
    failed = command_line.run("report", "runs/a", cwd=tmp_path)
    assert "carya evaluate MODEL DATA --record runs/a" in failed.stderr
    failed = command_line.run("evaluate", "model", "data", "--record", "data", cwd=tmp_path)
    assert "is not part of a run" in failed.stderr
    failed = command_line.run("evaluate", "model", "data", "--record", "r", "--ray", "auto", cwd=tmp_path)
    assert "--record cannot be combined with --ray" in failed.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "is not a run file"),
        ('{"format": 9}', "format version 1"),
        ('{"format": 1}', "no key 'metrics'"),
    ],
)
def test_invalid_runs_are_rejected(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_run(tmp_path)


def test_runs_are_recorded_in_folders_of_their_own(tmp_path: Path) -> None:
    record_training(tmp_path / "run", {"seconds": 1})
    record_evaluation(tmp_path / "run", {"rows": 1, "metrics": {}, "model": "XRLinear", "latency_ms": [1]})
    assert read_run(tmp_path / "run").evaluation["rows"] == 1
    (tmp_path / "file").touch()
    with pytest.raises(SaveError, match="is not a folder"):
        check_run_folder(tmp_path / "file")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'carya\[report\]'"):
        draw_charts([])
