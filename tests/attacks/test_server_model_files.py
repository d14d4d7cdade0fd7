"""Tests with attacks on the files of a served model: special files, endless files, and in-place overwrites."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import carya
from carya.errors import ModelFormatError, SaveError
from carya.serve import reloading, service
from carya.serve.app import create_app
from carya.serve.http import logging
from carya.serve.http.logging import JsonLogger
from carya.serve.registry import ModelRegistry, ReloadFailure, ServedModel
from carya.serve.reloading import ModelReloader
from carya.serve.settings import ServerSettings

from serving import Client, new_metrics, save_model, start_server

TEXT = "the telescope shows a planet and its moon"
ENDLESS = ("fifo", "/dev/zero", "/dev/full", "sparse file")


def replace_manifest(folder: Path, kind: str) -> None:
    """Replace the manifest of a saved model with a special or endless file."""
    manifest = folder / "manifest.json"
    manifest.unlink()
    if kind == "fifo":
        os.mkfifo(manifest)
    elif kind == "sparse file":
        with manifest.open("wb") as file:
            file.truncate(1 << 40)
    else:
        manifest.symlink_to(kind)


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_manifest_without_end_is_rejected(tmp_path: Path, kind: str) -> None:
    ranker = save_model(tmp_path / "m")
    registry = ModelRegistry.open({"m": tmp_path / "m"})
    replace_manifest(tmp_path / "m", kind)
    (failure,) = registry.refresh()
    assert isinstance(failure, ReloadFailure)
    assert "manifest.json" in failure.reason
    assert registry.get().ranker.suggest(TEXT) == ranker.suggest(TEXT)
    with pytest.raises(ModelFormatError, match=r"manifest\.json"):
        ModelRegistry.open({"m": tmp_path / "m"})
    with pytest.raises(ModelFormatError, match=r"manifest\.json"):
        carya.load(tmp_path / "m")
    with pytest.raises(SaveError, match="files that are not part of a Carya model"):
        ranker.save(tmp_path / "m")


def test_a_server_survives_a_fifo_as_manifest(tmp_path: Path) -> None:
    """The failed reload is logged, other models are still reloaded, and SIGTERM still stops the server."""
    save_model(tmp_path / "m")
    save_model(tmp_path / "other")
    arguments = (str(tmp_path / "m"), str(tmp_path / "other"), "--reload-interval", "0.1")
    with start_server(tmp_path, *arguments) as server:
        replace_manifest(tmp_path / "m", "fifo")
        assert "not a regular file" in server.wait_for("reload failed")["reason"]
        save_model(tmp_path / "other", seed=1)
        assert server.wait_for("model reloaded")["model"] == "other"
        assert httpx.post(server.url("/v1/suggest"), json={"text": TEXT}).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_a_reload_that_does_not_finish_is_logged_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An unresponsive file system delays neither the reloading of other models nor the shutdown of the server."""
    for name in ("a", "b"):
        save_model(tmp_path / name)
    registry = ModelRegistry.open({"a": tmp_path / "a", "b": tmp_path / "b"})
    release = threading.Event()
    refresh = registry.refresh_model

    def hang(name: str, *, force: bool = False) -> object:
        if name == "a":
            release.wait(120)
        return refresh(name, force=force)

    monkeypatch.setattr(registry, "refresh_model", hang)
    monkeypatch.setattr(reloading, "_CLOSE_SECONDS", 0.1)
    metrics = new_metrics()
    reloader = ModelReloader(registry, ServerSettings(reload_timeout=0.2), metrics, JsonLogger("error"))
    save_model(tmp_path / "b", seed=1)

    async def run() -> None:
        old = registry.get("b").version
        deadline = time.monotonic() + 60
        while registry.get("b").version == old:
            assert time.monotonic() < deadline
            await reloader.reload()
        await reloader.reload()  # model "a" is skipped because its thread is still running
        await reloader.close()

    asyncio.run(run())
    assert not release.is_set()
    assert "carya_reload_failures_total 0" not in metrics.to_text()
    release.set()
    logging.flush()
    lines = capfd.readouterr().err.splitlines()
    assert len([line for line in lines if '"model":"a"' in line and "within 0.2 seconds" in line]) == 1


def overwrite(path: Path, content: bytes) -> None:
    """Overwrite a file in place, as `cp` does, so that its inode number does not change."""
    number = path.stat().st_ino
    with path.open("r+b") as file:
        file.truncate(len(content))
        file.write(content)
    assert path.stat().st_ino == number


def start(folder: Path) -> tuple[ModelRegistry, Client]:
    """Serve the models "m" and "other" in this process."""
    registry = ModelRegistry.open({"m": folder / "m", "other": folder / "other"})
    return registry, Client(create_app(registry, ServerSettings(log_level="error")))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "other bytes": lambda content: bytes(255 - byte for byte in content),
    "one byte": lambda content: content[:1000] + bytes([255 - content[1000]]) + content[1001:],
    "appended": lambda content: content + bytes(64),
    "shortened": lambda content: content[:-64],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("keep_time", [False, True])
def test_a_model_that_is_overwritten_in_place_is_not_used(tmp_path: Path, damage: str, keep_time: bool) -> None:
    for name in ("m", "other"):
        save_model(tmp_path / name)
    registry, client = start(tmp_path)
    arrays = tmp_path / "m" / "arrays.bin"
    intact, status = arrays.read_bytes(), arrays.stat()
    with client:
        before = client.post("/v1/suggest", {"text": TEXT})
        overwrite(arrays, DAMAGES[damage](intact))
        if keep_time:  # only the checksum or file size reveals the change
            os.utime(arrays, ns=(status.st_atime_ns, status.st_mtime_ns))
            (failure,) = registry.refresh()
        for path, message in (("/v1/suggest", {"text": TEXT}), ("/v1/explain", {"text": TEXT})):
            response = client.post(path, message)
            assert response.status_code == 503
            assert "were overwritten while it was being served" in response.json()["detail"]
        for path in ("/v1/labels?q=a", "/v1/explore/labels", "/readyz"):
            assert client.get(path).status_code == 503
        assert client.post("/v1/suggest", {"text": TEXT, "model": "other"}).status_code == 200
        assert client.get("/metrics").status_code == client.get("/healthz").status_code == 200
        if not keep_time:
            (failure,) = registry.refresh()
        assert isinstance(failure, ReloadFailure)
        assert "arrays.bin" in failure.reason
        assert registry.refresh() == []  # the failure is reported only once
        overwrite(arrays, intact)
        assert registry.refresh() == [registry.get("m")]
        assert client.post("/v1/suggest", {"text": TEXT}).content == before.content
        assert client.get("/readyz").status_code == 200


def test_a_model_that_is_overwritten_with_another_model_is_reloaded(tmp_path: Path) -> None:
    for name, seed in (("m", 0), ("other", 1)):
        save_model(tmp_path / name, seed=seed)
    registry, client = start(tmp_path)
    with client:
        for name in ("arrays.bin", "manifest.json"):
            overwrite(tmp_path / "m" / name, (tmp_path / "other" / name).read_bytes())
        assert client.post("/v1/suggest", {"text": TEXT}).status_code == 503
        assert [type(result) for result in registry.refresh()] == [ServedModel]
        results = [client.post("/v1/suggest", {"text": TEXT, "model": name}).json() for name in ("m", "other")]
        assert results[0]["results"] == results[1]["results"]


@pytest.mark.parametrize("is_short", [True, False])
def test_results_computed_during_a_change_are_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_short: bool
) -> None:
    for name in ("m", "other"):
        save_model(tmp_path / name)
    _, client = start(tmp_path)
    arrays = tmp_path / "m" / "arrays.bin"
    suggest = service.suggest

    def suggest_during_change(*args: Any) -> Any:
        overwrite(arrays, DAMAGES["appended"](arrays.read_bytes()))
        return suggest(*args)

    monkeypatch.setattr(service, "suggest", suggest_during_change)
    monkeypatch.setattr(service, "is_short", lambda *_: is_short)
    with client:
        assert client.post("/v1/suggest", {"text": TEXT}).status_code == 503


def test_replaced_folders_are_not_damage(tmp_path: Path) -> None:
    """The files of a replaced version are deleted, but requests that already use it can still read them."""
    for name in ("m", "other"):
        save_model(tmp_path / name)
    registry, client = start(tmp_path)
    old = registry.get("m")
    with client:
        save_model(tmp_path / "m", seed=1)
        old.check_unmodified()
        assert client.post("/v1/suggest", {"text": TEXT}).status_code == 200
        assert registry.refresh() == [registry.get("m")]
        old.check_unmodified()


def test_a_server_survives_files_that_are_overwritten_under_load(tmp_path: Path) -> None:
    """Without protection, truncated files would cause bus errors, and modified files could cause infinite loops."""
    save_model(tmp_path / "m")
    arrays = tmp_path / "m" / "arrays.bin"
    intact = arrays.read_bytes()
    with start_server(tmp_path, str(tmp_path / "m"), "--reload-interval", "0.1") as server:
        expected = httpx.post(server.url("/v1/suggest"), json={"text": TEXT}).json()
        stop = threading.Event()
        responses: list[tuple[int, Any]] = []

        def send_requests() -> None:
            with httpx.Client(timeout=60) as client:
                while not stop.is_set():
                    response = client.post(server.url("/v1/suggest"), json={"texts": [TEXT] * 8})
                    responses.append((response.status_code, response.json()))

        clients = [threading.Thread(target=send_requests) for _ in range(2)]
        for client in clients:
            client.start()
        for round_number in range(3):
            n_responses = len(responses)
            deadline = time.monotonic() + 30
            while len(responses) < n_responses + 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            for damage in ("other bytes", "shortened"):
                overwrite(arrays, b"")
                overwrite(arrays, DAMAGES[damage](intact))
            server.wait_for("reload failed", times=round_number + 1)
            overwrite(arrays, intact)
            server.wait_for("model reloaded", times=round_number + 1)
        stop.set()
        for client in clients:
            client.join()
        assert server.process.poll() is None
        assert httpx.post(server.url("/v1/suggest"), json={"text": TEXT}).json() == expected
    assert {status for status, _ in responses} == {200, 503}
    correct = expected["results"] * 8
    assert all(response["results"] == correct for status, response in responses if status == 200)
