"""Ctrl-C while native threads run, and progress from them."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import carya
from carya.core.progress import Progress
from carya.data import make_world
from carya.models import base

# Whoever runs tests in the background of a shell has Ctrl-C ignored, and so would the processes started here.
_HEED_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def start(code: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", _HEED_CTRL_C + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_stops_training(tmp_path: Path, jobs: int) -> None:
    process = start(
        f"""
        import carya
        from carya.data import make_world
        X, Y = make_world(20_000, 3_000, seed=0)
        model = carya.XRLinear(n_jobs={jobs}, negatives="both", tolerance=0.0, max_passes=100_000)
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
    sent = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert out == "stopped False\n", err
    assert time.monotonic() - sent < 10
    assert process.returncode == 0


def test_an_error_in_the_report_stops_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class Boom(Progress):
        def stage(self, name: str):
            from contextlib import nullcontext

            def report(done: int, total: int) -> None:
                raise RuntimeError(f"no more of {name}")

            return nullcontext(report)

    X, Y = make_world(5_000, 500, seed=0)
    model = carya.XRLinear(tolerance=0.0, max_passes=100_000)
    monkeypatch.setattr(base, "Progress", Boom)
    with pytest.raises(RuntimeError, match="no more of train layer"):
        model.fit(X, Y)


def test_progress_counts_up_to_the_end() -> None:
    from carya import _core, matching
    from carya.core import validation
    from carya.ranking import Problem
    from carya.trees.label_tree import LabelTree
    from carya.trees.transforms import Transform

    X, Y = make_world(20_000, 400, seed=0)
    features, labels = validation.training_pair(X, Y)
    tree = LabelTree.flat(400)
    seen: list[tuple[int, int]] = []
    model = carya.XRLinear(tolerance=0.0, max_passes=60)
    problem = Problem(1, 0, matching.level_targets(labels, tree)[0], None, *tree.children(1), Transform.named("noop"))
    model.rankers().train(features, [problem], threads=2, report=lambda done, total: seen.append((done, total)))
    assert len(seen) >= 2
    assert all(0 <= done <= total for done, total in seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len({total for _, total in seen}) == 1
    assert _core.thread_count(3) == 3
    assert _core.thread_count(-1) >= 1
