"""The server as processes: starting, signals, workers, new versions while requests come."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

import carya
from carya.cli.serve import named, read_tokens
from carya.errors import InputError
from carya.serve import server as running_module
from carya.serve.http.logging import Journal
from test_cli import run

from serving import Server, saved, server

TEXT = "the telescope shows a planet and its moon"


def both_have_started(running: Server) -> None:
    """Wait until two workers have opened the models; one that begins later would find the new version at once."""
    for worker in ("0", "1"):
        until = time.monotonic() + 60
        started = re.compile(rf'carya_worker_start_time_seconds{{worker="{worker}"}} [1-9]')
        while not started.search(httpx.get(running.url("/metrics")).text):
            assert time.monotonic() < until
            time.sleep(0.1)


def test_new_versions_without_a_failed_request(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    with server(tmp_path, f"m={tmp_path / 'm'}", "--workers", "2", "--watch-seconds", "0.1") as running:
        both_have_started(running)
        stop = threading.Event()
        seen: list[tuple[int, str]] = []

        def ask() -> None:
            with httpx.Client(timeout=60) as client:
                while not stop.is_set():
                    answer = client.post(running.url("/v1/suggest"), json={"text": TEXT})
                    seen.append((answer.status_code, answer.json().get("version", "")))

        askers = [threading.Thread(target=ask) for _ in range(3)]
        for asker in askers:
            asker.start()
        for turn in (1, 2, 3):
            until = time.monotonic() + 60
            while len({version for _, version in list(seen)}) < turn:  # the one before is in use
                assert time.monotonic() < until
                time.sleep(0.05)
            if turn < 3:
                new = saved(tmp_path / "m", seed=turn)
                running.wait_for("reloaded", times=2 * turn)  # both workers
        stop.set()
        for asker in askers:
            asker.join()
        assert {status for status, _ in seen} == {200}
        assert len({version for _, version in seen}) == 3
        for _ in range(4):  # of whichever worker
            answer = httpx.post(running.url("/v1/suggest"), json={"text": TEXT}).json()
            assert answer["results"][0]["suggestions"][0]["score"] == new.suggest(TEXT)[0].score
        metrics = httpx.get(running.url("/metrics")).text
        assert "carya_reloads_total 4" in metrics
        assert f'route="/v1/suggest",status="200"}} {len(seen) + 4}' in metrics


def test_sighup_looks_at_once_and_a_lost_worker_is_replaced(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    with server(tmp_path, str(tmp_path / "m"), "--workers", "2", "--watch-seconds", "0") as running:
        both_have_started(running)
        saved(tmp_path / "m", seed=1)
        until = time.monotonic() + 60
        while len([line for line in running.lines() if line["event"] == "reloaded"]) < 2:
            assert time.monotonic() < until
            running.process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
        children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
        workers = [int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        assert running.wait_for("a worker ended and is started again")["code"] == -signal.SIGKILL
        for _ in range(6):  # connections wait for the new one, none is refused
            assert httpx.post(running.url("/v1/suggest"), json={"text": TEXT}, timeout=60).status_code == 200


def test_workers_end_with_their_watcher(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    with pytest.raises(AssertionError), server(tmp_path, str(tmp_path / "m"), "--workers", "2") as running:
        running.process.kill()  # which is not how a server should end
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            httpx.get(running.url("/healthz"), timeout=5)
        except httpx.ConnectError:
            break
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    with pytest.raises(httpx.ConnectError):
        httpx.get(running.url("/healthz"), timeout=5)


class Process:
    """One that ends when it is told to."""

    exitcode = 1

    def __init__(self, **_: object) -> None:
        self.alive = True

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        return self.alive


def test_a_worker_that_cannot_start_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(running_module.time, "monotonic", lambda: now)
    watcher = running_module._Watcher(running_module.Plan({}, {}), [None, None], Journal("error"))  # type: ignore[list-item]
    watcher._context = SimpleNamespace(Process=Process)  # type: ignore[assignment]
    for worker in (0, 1):
        watcher._replace(worker, None)
    starts = []
    while len(starts) < 9:  # the second ends as soon as it begins
        process = watcher._workers[1]
        if process is not None:
            starts.append(now)
            process.alive = False
        watcher._replace(1, process)
        now += 0.5
        assert watcher._workers[0].is_alive()
    waits = [after - before for before, after in itertools.pairwise(starts)]
    assert waits == [0.5, 0.5, 0.5, 0.5, 5.5, 10.5, 20.5, 40.5]  # seen half a second after it began
    watcher._workers[0].alive = False
    now += 1000.0
    watcher._replace(1, None)
    watcher._workers[1].alive = False
    with pytest.raises(InputError, match="worker 1 ended 10 times within 5 seconds, and no other is left"):
        watcher._replace(1, watcher._workers[1])


def test_tokens_and_ctrl_c(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    (tmp_path / "tokens").write_text("one\n\ntwo\n")
    with server(tmp_path, str(tmp_path / "m"), "--token-file", str(tmp_path / "tokens")) as running:
        assert httpx.get(running.url("/v1/model")).status_code == 401
        assert httpx.get(running.url("/v1/model"), headers={"Authorization": "Bearer two"}).status_code == 200
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(60) == 0
        assert "Traceback" not in running.log.read_text()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    for arguments, message in (
        ([str(tmp_path / "nowhere")], "is not a saved model"),
        ([str(tmp_path / "m"), "--max-texts", "0"], "--max-texts is '0'; it must be an integer of at least 1"),
    ):
        done = run("serve", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    with server(tmp_path, str(tmp_path / "m"), "--workers", "2") as running:
        done = run("serve", str(tmp_path / "m"), "--port", str(running.port))
        assert "Address already in use" in done.stderr
    assert "carya serve english=en/ finnish=fi/" in run("serve", "--help").stdout


def test_names_and_tokens(tmp_path: Path) -> None:
    assert named(["a/b c=d/", "x=y"]) == {"b-c-d": Path("a/b c=d/"), "x": Path("y")}
    with pytest.raises(InputError, match="two models are called 'm': give each a name"):
        named(["m", "n/m"])
    with pytest.raises(InputError, match="No such file or directory"):
        read_tokens(tmp_path / "none")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(InputError, match="there is no token in it"):
        read_tokens(empty)
    empty.write_text("é")
    with pytest.raises(InputError, match="ASCII"):
        read_tokens(empty)


def test_a_missing_extra_names_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from carya.cli.serve import need

    right = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else right(name))
    with pytest.raises(InputError, match=r"carya serve needs uvicorn; pip install 'carya\[serve\]'"):
        need()


def test_carya_alone_loads_no_web_framework() -> None:
    import subprocess
    import sys

    code = "import sys, carya, carya.cli, carya.cli.serve, carya.serve.settings; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"starlette", "uvicorn", "msgspec", "uvloop", "httptools"} & set(loaded)
    assert carya.__version__


def test_a_log_that_nobody_reads_stalls_nothing(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    command = [sys.executable, "-c", "from carya.cli import main; main()", "serve", str(tmp_path / "model")]
    process = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert process.stderr is not None
        url = json.loads(process.stderr.readline())["url"]
        with httpx.Client(base_url=url, timeout=20) as client:
            for _ in range(1000):  # of 200 bytes in the log; a pipe holds 65,536
                assert client.get("/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        written = process.stderr.read().splitlines()  # as many as the pipe holds, of which the system may have few
        assert all(json.loads(line)["path"] == "/healthz" for line in written)
        assert 0 < len(written) < 1000
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
