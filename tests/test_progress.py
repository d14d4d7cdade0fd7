"""Tests for progress displays: bars in a terminal, lines in a log, and the choice between them."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

import carya
from carya.core.progress import Progress, ProgressBars, ProgressLog, Report, show_progress

from topics import corpus


class Clock:
    """A clock that tests can set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Stream(io.StringIO):
    """A stream whose `isatty` returns a given value."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def bar_lines(bars: ProgressBars) -> list[str]:
    """Return the lines that the progress bars currently display."""
    shown = io.StringIO()
    Console(file=shown, width=160).print(bars._bars.get_renderable())
    return shown.getvalue().splitlines()


def test_bars_show_elapsed_and_remaining_time() -> None:
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    with ProgressBars(console, clock=clock) as bars, bars.stage("train") as report:
        report(0, 100)
        for done in (10, 20, 30):
            clock.now += 10
            report(done, 100)
        (line,) = bar_lines(bars)
        assert re.search(r"30% +1/s +elapsed 0:30, remaining 1:10$", line.rstrip()), line
        clock.now += 5
        report(30, 100)
    (line,) = bar_lines(bars)
    assert re.search(r"100%.* elapsed 0:35, remaining 0:00$", line.rstrip()), line


def test_bars_of_unknown_length() -> None:
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    with ProgressBars(console, clock=clock) as bars:
        with bars.stage("read texts") as report:
            clock.now += 2
            report(5000, 0)
            assert re.search(r"2.5k/s +elapsed 0:02$", bar_lines(bars)[0].rstrip())
        assert "100%" in bar_lines(bars)[0]


def test_a_log_has_a_line_per_interval_with_elapsed_and_remaining_time() -> None:
    clock, stream = Clock(), io.StringIO()
    log = ProgressLog(stream, interval=5, clock=clock)
    with log.stage("train layer 1") as report:
        clock.now += 4
        report(1000, 4000)
        log.write_lines()
        assert stream.getvalue() == "", "the stage has been running for less than the interval"
        clock.now += 6
        report(1000, 4000, loss=0.51234)
        log.write_lines()
        clock.now += 90
        report(3000, 4000)
        log.write_lines()
    with log.stage("short"):
        clock.now += 1
        log.write_lines()
    assert stream.getvalue().splitlines() == [
        "train layer 1: 25%, 100/s, loss 0.5123, elapsed 0:10, remaining 0:30",
        "train layer 1: 75%, 30/s, elapsed 1:40, remaining 0:33",
        "train layer 1: done, elapsed 1:40",
    ]


def test_a_log_of_stages_without_counts() -> None:
    clock, stream = Clock(), io.StringIO()
    log = ProgressLog(stream, interval=5, clock=clock)
    with log.stage("train reranker"):
        clock.now += 3725
        log.write_lines()
    with log.stage("read texts") as report:
        clock.now += 5
        report(12_345, 0)
        log.write_lines()
    assert stream.getvalue().splitlines() == [
        "train reranker: elapsed 1:02:05",
        "train reranker: done, elapsed 1:02:05",
        "read texts: 12,345, 2.5k/s, elapsed 0:05",
        "read texts: done, elapsed 0:05",
    ]


def test_a_failed_stage_is_not_logged_as_done() -> None:
    clock, stream = Clock(), io.StringIO()
    log = ProgressLog(stream, interval=5, clock=clock)

    def fail() -> None:
        with log.stage("train"):
            clock.now += 6
            log.write_lines()
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        fail()
    log.write_lines()
    assert stream.getvalue() == "train: elapsed 0:06\n"


def test_a_log_is_written_while_a_stage_runs() -> None:
    stream = io.StringIO()
    with ProgressLog(stream, interval=0.01) as log, log.stage("train") as report:
        report(1, 2)
        while stream.getvalue().count("\n") < 2:  # the background thread writes without further calls
            time.sleep(0.01)
    assert stream.getvalue().startswith("train: 50%, ")
    assert re.search(r"^train: done, elapsed 0:\d\d$", stream.getvalue().splitlines()[-1])


def test_a_closed_stream_does_not_stop_the_work() -> None:
    clock, stream = Clock(), io.StringIO()
    log = ProgressLog(stream, interval=5, clock=clock)
    with log.stage("train"):
        clock.now += 5
        stream.close()
        log.write_lines()


@pytest.mark.parametrize(
    ("is_terminal", "term", "display"),
    [(True, "xterm-256color", ProgressBars), (True, "dumb", ProgressLog), (False, "xterm-256color", ProgressLog)],
)
def test_the_display_depends_on_standard_error(
    is_terminal: bool, term: str, display: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Stream(is_terminal))
    monkeypatch.setenv("TERM", term)
    assert type(show_progress()) is display
    assert type(show_progress(verbose=False)) is Progress
    monkeypatch.setattr(sys, "stderr", None)
    assert type(show_progress()) is Progress


def test_texts_of_an_iterator_are_counted_in_one_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[tuple[str, list[tuple[int, int]]]] = []

    class Recorder(Progress):
        @contextmanager
        def stage(self, name: str) -> Iterator[Report]:
            reports: list[tuple[int, int]] = []
            stages.append((name, reports))

            def record(done: int, total: int, /, *, loss: float | None = None) -> None:
                reports.append((done, total))

            yield record

    monkeypatch.setattr("carya.text.tfidf.show_progress", lambda _: Recorder())
    texts, _ = corpus(9000)
    carya.Tfidf().fit(iter(texts))
    assert [name for name, _ in stages] == ["read texts", "select terms"]
    assert stages[0][1][-1] == (9000, 0), "the number of texts is unknown until the iterator ends"
    stages.clear()
    carya.Tfidf().fit(texts)
    assert stages[0][1][-1] == (9000, 9000)
