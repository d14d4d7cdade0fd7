"""Attacks on the files of a served model: special files, files without end, and files overwritten in place."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

import carya
from carya.errors import ModelFormatError, SaveError
from carya.serve import reloading
from carya.serve.http import logging
from carya.serve.http.logging import JsonLogger
from carya.serve.registry import ModelRegistry, ReloadFailure
from carya.serve.reloading import ModelReloader
from carya.serve.settings import ServerSettings

from serving import new_metrics, save_model, start_server

TEXT = "the telescope shows a planet and its moon"
ENDLESS = ("fifo", "/dev/zero", "/dev/full", "sparse file")


def replace_manifest(folder: Path, kind: str) -> None:
    """Replace the manifest of a saved model with a file that cannot be read to its end."""
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
    started = time.monotonic()
    (failure,) = registry.refresh()
    assert isinstance(failure, ReloadFailure)
    assert "manifest.json" in failure.reason
    assert registry.get().ranker.suggest(TEXT) == ranker.suggest(TEXT)
    with pytest.raises(ModelFormatError, match=r"manifest\.json"):
        ModelRegistry.open({"m": tmp_path / "m"})
    with pytest.raises(ModelFormatError, match=r"manifest\.json"):
        carya.load(tmp_path / "m")
    with pytest.raises(SaveError, match="is not a Carya model"):
        ranker.save(tmp_path / "m")
    assert time.monotonic() - started < 5


def test_a_server_survives_a_fifo_as_manifest(tmp_path: Path) -> None:
    """Reloading fails with a log line, other models are still reloaded, and SIGTERM stops the server at once."""
    save_model(tmp_path / "m")
    save_model(tmp_path / "other")
    arguments = (str(tmp_path / "m"), str(tmp_path / "other"), "--reload-interval", "0.1")
    with start_server(tmp_path, *arguments) as server:
        replace_manifest(tmp_path / "m", "fifo")
        assert "not a regular file" in server.wait_for("reload failed", timeout=20)["reason"]
        save_model(tmp_path / "other", seed=1)
        assert server.wait_for("model reloaded", timeout=20)["model"] == "other"
        assert httpx.post(server.url("/v1/suggest"), json={"text": TEXT}).status_code == 200
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert time.monotonic() - started < 5


def test_a_reload_that_does_not_finish_is_logged_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file system that does not respond delays neither the reloads of other models nor the end of the server."""
    for name in ("a", "b"):
        save_model(tmp_path / name)
    registry = ModelRegistry.open({"a": tmp_path / "a", "b": tmp_path / "b"})
    release = threading.Event()
    refresh = registry.refresh_model

    def hang(name: str, *, force: bool = False) -> object:
        if name == "a":
            release.wait(30)
        return refresh(name, force=force)

    monkeypatch.setattr(registry, "refresh_model", hang)
    monkeypatch.setattr(reloading, "_CLOSE_SECONDS", 0.1)
    metrics = new_metrics()
    reloader = ModelReloader(registry, ServerSettings(reload_timeout=0.2), metrics, JsonLogger("error"))
    save_model(tmp_path / "b", seed=1)

    async def run() -> None:
        old = registry.get("b").version
        await reloader.reload()
        assert registry.get("b").version != old
        await reloader.reload()  # the thread for model "a" is still running, so that no second one is started
        await reloader.close()

    started = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - started < 10
    assert "carya_reload_failures_total 1" in metrics.to_text()
    release.set()
    logging.flush()
    lines = [line for line in capfd.readouterr().err.splitlines() if "0.2 seconds" in line]
    assert len(lines) == 1
    assert '"model":"a"' in lines[0]
