"""Tests for server processes: startup, signals, workers, and new model versions under load."""

from __future__ import annotations

import itertools
import json
import os
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
from carya.errors import InputError
from carya.serve import server as server_module
from carya.serve.http.logging import JsonLogger
from carya.serve.settings import ServerSettings

from serving import CARYA, run_carya, save_model, start_server, wait_for_two_workers

TEXT = "the telescope shows a planet and its moon"


def test_new_versions_are_loaded_without_failed_requests(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    with start_server(tmp_path, f"m={tmp_path / 'm'}", "--workers", "2", "--reload-interval", "0.1") as server:
        wait_for_two_workers(server)
        stop = threading.Event()
        responses: list[tuple[int, str]] = []

        def send_requests() -> None:
            with httpx.Client(timeout=60) as client:
                while not stop.is_set():
                    response = client.post(server.url("/v1/suggest"), json={"text": TEXT})
                    responses.append((response.status_code, response.json().get("version", "")))

        threads = [threading.Thread(target=send_requests) for _ in range(3)]
        for thread in threads:
            thread.start()
        for version in (1, 2, 3):
            deadline = time.monotonic() + 60
            while len({version for _, version in list(responses)}) < version:  # wait until the latest version is in use
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if version < 3:
                new = save_model(tmp_path / "m", seed=version)
                server.wait_for("model reloaded", times=2 * version)  # once per version and worker
        stop.set()
        for thread in threads:
            thread.join()
        assert {status for status, _ in responses} == {200}
        assert len({version for _, version in responses}) == 3
        for _ in range(4):  # either worker can respond
            response = httpx.post(server.url("/v1/suggest"), json={"text": TEXT}).json()
            assert response["results"][0]["suggestions"][0]["score"] == new.suggest(TEXT)[0].score
        metrics = httpx.get(server.url("/metrics")).text
        assert "carya_reloads_total 4" in metrics
        assert f'route="/v1/suggest",status="200"}} {len(responses) + 4}' in metrics


def test_sighup_reloads_models_and_killed_workers_are_restarted(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    with start_server(tmp_path, str(tmp_path / "m"), "--workers", "2", "--reload-interval", "0") as server:
        wait_for_two_workers(server)
        save_model(tmp_path / "m", seed=1)
        deadline = time.monotonic() + 60
        while len(server.events("model reloaded")) < 2:
            assert time.monotonic() < deadline
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        workers = [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        assert server.wait_for("worker exited, restarting")["exit_code"] == -signal.SIGKILL
        for _ in range(6):  # connections are not refused, but wait for the new worker
            assert httpx.post(server.url("/v1/suggest"), json={"text": TEXT}, timeout=60).status_code == 200


def test_sighup_reloads_the_models_of_a_single_process(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    with start_server(tmp_path, str(tmp_path / "m"), "--reload-interval", "0") as server:
        save_model(tmp_path / "m", seed=1)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("model reloaded")


def test_workers_exit_with_their_supervisor(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    with pytest.raises(AssertionError), start_server(tmp_path, str(tmp_path / "m"), "--workers", "2") as server:
        server.process.kill()  # start_server fails because the exit code is not 0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            httpx.get(server.url("/healthz"), timeout=5)
        except httpx.ConnectError:
            break
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url("/healthz"), timeout=5)


class FakeProcess:
    """A stand-in for a process; setting `alive` to False simulates its exit."""

    exitcode = 1

    def __init__(self, **_: object) -> None:
        self.alive = True

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        return self.alive


def test_a_worker_that_cannot_start_is_restarted_with_increasing_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("carya.serve.server.time.monotonic", lambda: now)
    plan = server_module.WorkerPlan({}, ServerSettings())
    supervisor = server_module.Supervisor(plan, [None, None], JsonLogger("error"))  # type: ignore[list-item]
    supervisor._context = SimpleNamespace(Process=FakeProcess)  # type: ignore[assignment]
    for worker in (0, 1):
        supervisor._restart(worker, None)
    starts: list[float] = []
    while len(starts) < 9:  # the second worker always exits immediately
        process = supervisor._workers[1]
        if process is not None:
            starts.append(now)
            process.alive = False
        supervisor._restart(1, process)
        now += 0.5
        assert supervisor._workers[0].is_alive()
    delays = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert delays == [0.5, 0.5, 0.5, 0.5, 5.5, 10.5, 20.5, 40.5]  # the supervisor checks every half second
    supervisor._workers[0].alive = False
    now += 1000.0
    supervisor._restart(1, None)
    supervisor._workers[1].alive = False
    with pytest.raises(InputError, match="Worker 1 exited 10 times in a row within 5 seconds of starting"):
        supervisor._restart(1, supervisor._workers[1])


def test_tokens_and_keyboard_interrupt(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    (tmp_path / "tokens").write_text("one\n\ntwo\n")
    with start_server(tmp_path, str(tmp_path / "m"), "--token-file", str(tmp_path / "tokens")) as server:
        assert httpx.get(server.url("/v1/model")).status_code == 401
        assert httpx.get(server.url("/v1/model"), headers={"Authorization": "Bearer two"}).status_code == 200
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert "Traceback" not in server.log.read_text()


def test_pending_requests_are_completed_on_shutdown(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    with start_server(tmp_path, str(tmp_path / "m")) as server, server.connect() as connection:
        body = json.dumps({"text": TEXT}).encode()
        head = "POST /v1/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:5])
        deadline = time.monotonic() + 20
        while "carya_connections 2" not in httpx.get(server.url("/metrics")).text:
            assert time.monotonic() < deadline
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        connection.sendall(body[5:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_invalid_arguments(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    model = str(tmp_path / "m")
    for name, content in (("empty", b"\n"), ("accents", "é".encode())):
        (tmp_path / name).write_bytes(content)
    for arguments, parts in (
        ([str(tmp_path / "nowhere")], ["there is no such folder"]),
        ([model, "--max-texts", "0"], ["--max-texts", "an integer >= 1"]),
        ([model, f"{tmp_path}/other/m"], ["'m'"]),  # two models with the same name
        ([model, "--token-file", str(tmp_path / "none")], ["No such file or directory"]),
        ([model, "--token-file", str(tmp_path / "empty")], [str(tmp_path / "empty"), "token"]),
        ([model, "--token-file", str(tmp_path / "accents")], [str(tmp_path / "accents"), "ASCII"]),
    ):
        process = run_carya("serve", *arguments)
        assert process.returncode == 2
        assert all(part in process.stderr for part in parts), process.stderr
        assert "Traceback" not in process.stderr
    with start_server(tmp_path, model, "--workers", "2") as server:
        process = run_carya("serve", model, "--port", str(server.port))
        assert process.returncode == 2
        assert "Address already in use" in process.stderr
    assert "carya serve english=en/ finnish=fi/" in run_carya("serve", "--help").stdout


def test_model_names(tmp_path: Path) -> None:
    save_model(tmp_path / "b c=d")
    with start_server(tmp_path, str(tmp_path / "b c=d"), f"other={tmp_path / 'b c=d'}") as server:
        assert list(server.wait_for("listening")["models"]) == ["b-c-d", "other"]


def test_the_error_for_a_missing_extra_contains_the_install_command(tmp_path: Path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from carya.cli import main; main()"
    process = subprocess.run(
        [sys.executable, "-c", code, "serve", str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert process.returncode == 2
    assert "uvicorn" in process.stderr
    assert "pip install 'carya[serve]'" in process.stderr


def test_carya_and_the_command_line_import_no_web_framework() -> None:
    code = "import sys, carya, carya.cli, carya.cli.serve, carya.serve.settings; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"starlette", "uvicorn", "msgspec", "uvloop", "httptools"} & set(modules)
    assert carya.__version__


def test_an_unread_log_does_not_block_requests(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    command = [*CARYA, "serve", str(tmp_path / "model"), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert process.stderr is not None
        url = json.loads(process.stderr.readline())["url"]
        with httpx.Client(base_url=url, timeout=20) as client:
            for _ in range(1000):  # each request logs 200 bytes, and the pipe holds 65,536 bytes
                assert client.get("/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        lines = process.stderr.read().splitlines()  # only the lines that fit into the pipe
        assert all(json.loads(line)["path"] == "/healthz" for line in lines)
        assert 0 < len(lines) < 1000
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
