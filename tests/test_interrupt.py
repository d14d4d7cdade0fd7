"""Tests for interrupting native threads with Ctrl-C, and for progress reports."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import carya
from carya import _core
from carya.core import progress, validation
from carya.core.progress import Progress, Report
from carya.data import make_world
from carya.matching.targets import level_targets
from carya.ranking.linear import LayerProblem
from carya.trees.label_tree import LabelTree
from carya.trees.transforms import Transform

from command_line import RESTORE_SIGINT


def start(code: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", RESTORE_SIGINT + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_stops_training(tmp_path: Path, n_jobs: int) -> None:
    process = start(
        f"""
        import carya
        from carya.data import make_world
        X, Y = make_world(20_000, 3_000, seed=0)
        model = carya.XRLinear(n_jobs={n_jobs}, negatives="both", tol=0.0, max_iter=100_000)
        print("ready", flush=True)
        try:
            model.fit(X, Y)
        except KeyboardInterrupt:
            print("stopped", hasattr(model, "layers_"), flush=True)
        """,
        tmp_path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == "stopped False\n", err
    assert process.returncode == 0


def test_an_exception_in_the_progress_callback_stops_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingProgress(Progress):
        @contextmanager
        def stage(self, name: str) -> Iterator[Report]:
            def report(done: int, total: int, /, *, loss: float | None = None) -> None:
                raise RuntimeError(f"failed in stage {name}")

            yield report if name.startswith("train layer") else None

    X, Y = make_world(5_000, 500, seed=0)
    model = carya.XRLinear(tol=0.0, max_iter=100_000)
    monkeypatch.setattr(progress, "Progress", FailingProgress)
    with pytest.raises(RuntimeError, match="failed in stage train layer"):
        model.fit(X, Y)


def test_progress_increases_up_to_the_total() -> None:
    X, Y = make_world(20_000, 400, seed=0)
    features, labels = validation.check_training_data(X, Y)
    tree = LabelTree.flat(400)
    reports: list[tuple[int, int]] = []

    def record(done: int, total: int, /, *, loss: float | None = None) -> None:
        reports.append((done, total))

    model = carya.XRLinear(tol=0.0, max_iter=60)
    targets = level_targets(labels, tree)[0]
    problem = LayerProblem(1, 0, targets, None, *tree.children(1), Transform.from_name("noop"))
    model.linear_solver().train(features, [problem], threads=2, report=record)
    assert len(reports) >= 2
    assert all(0 <= done <= total for done, total in reports)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert len({total for _, total in reports}) == 1


def test_thread_count() -> None:
    assert _core.thread_count(3) == 3
    assert _core.thread_count(-1) >= 1
