"""Tests for replacing models while they are loaded or saved, and for folders that must not be replaced."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from carya import _core
from carya.core import atomic, storage
from carya.core.storage import SavedModel
from carya.errors import ModelFormatError, SaveError


def save(folder: Path, version: int) -> None:
    """Save a model whose parameters, arrays and additional files all contain the version."""

    def extra(temporary: Path) -> None:
        (temporary / "encoder").mkdir()
        for name in ("config.json", "tokenizer.json"):
            (temporary / "encoder" / name).write_text(str(version))

    arrays = {"numbers": np.full(10, version, np.int64)}
    storage.save(folder, SavedModel("toy", {"version": version}, {}, arrays), extra=extra)


def versions(saved: SavedModel) -> set[int]:
    """Return all versions in a saved model; there is only one unless files of different models were mixed."""
    assert saved.path is not None
    try:
        files = {int((saved.path / "encoder" / name).read_text()) for name in ("config.json", "tokenizer.json")}
    except FileNotFoundError as error:  # transformers also raises an error if a file is missing
        raise ModelFormatError(f"{error}") from None
    return files | {saved.parameters["version"], *saved.arrays["numbers"].tolist()}


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a file system that cannot swap two folders atomically."""
    monkeypatch.setattr(_core, "exchange_paths", lambda a, b: errno.EINVAL)


def run_in_threads(work: Callable[[], None], count: int, is_finished: Callable[[], bool]) -> list[BaseException]:
    """Call a function repeatedly in several threads and return the exceptions that it raises."""
    errors: list[BaseException] = []

    def repeat() -> None:
        while not is_finished():
            try:
                work()
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=repeat) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("can_exchange", [True, False])
def test_models_are_loaded_while_they_are_replaced(
    can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every load returns one complete model; it never fails or mixes files of different models."""
    if not can_exchange:
        without_exchange(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # allows more replacements per second
    save(tmp_path / "model", 0)
    n_loads, n_saves = [0], [0]

    def load() -> None:
        assert len(storage.load_as(tmp_path / "model", versions)) == 1
        n_loads[0] += 1

    def replace() -> None:
        n_saves[0] += 1
        save(tmp_path / "model", n_saves[0])

    started = time.monotonic()

    def is_finished() -> bool:
        seconds = time.monotonic() - started  # a busy machine takes longer
        return seconds > 60 or (seconds > 1.5 and n_loads[0] > 100 and n_saves[0] > 20)

    errors: list[BaseException] = []
    saver = threading.Thread(target=lambda: errors.extend(run_in_threads(replace, 1, is_finished)))
    saver.start()
    errors += run_in_threads(load, 2, is_finished)
    saver.join()
    assert errors == []
    assert n_loads[0] > 100
    assert n_saves[0] > 20


@pytest.mark.parametrize("can_exchange", [True, False])
def test_concurrent_saves_succeed(can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_exchange:
        without_exchange(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    barrier = threading.Barrier(4)

    for trial in range(10):  # concurrent first saves to a path have their own race condition
        folder = tmp_path / f"{trial}" / "model"
        errors: list[BaseException] = []

        def save_version(version: int, folder: Path = folder, errors: list[BaseException] = errors) -> None:
            barrier.wait()
            try:
                for _ in range(3):
                    save(folder, version)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=save_version, args=(version,)) for version in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(versions(storage.load(folder))) == 1
        assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_replacement_that_was_interrupted_is_read_and_repaired(tmp_path: Path) -> None:
    """Without an atomic swap, a killed process can leave the old model at a hidden path."""
    save(tmp_path / "model", 1)
    (tmp_path / "model").rename(atomic.replaced_folder(tmp_path / "model"))
    assert versions(storage.load(tmp_path / "model")) == {1}
    assert versions(storage.load(f"{tmp_path / 'model'}/")) == {1}
    save(tmp_path / "model", 2)
    assert versions(storage.load(tmp_path / "model")) == {2}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


_KILLED = """
import os, sys
import numpy as np
from carya.core import storage
os.fsync = lambda descriptor: print("writing", flush=True) or sys.stdin.read()
storage.save(sys.argv[1], storage.SavedModel("toy", {}, {}, {"a": np.zeros(10, np.int32)}))
"""


def test_folders_of_killed_processes_are_removed_but_not_those_of_running_ones(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _KILLED, tmp_path / "model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        assert len(list(tmp_path.iterdir())) == 2
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        (tmp_path / ".model.0123456789abcdef.tmp.txt").write_text("a user's file")
        save(tmp_path / "model", 1)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert len(names) == 3, names  # the model, the user's file, and the folder of the running process
        processes[1].communicate(b"")
        assert processes[1].returncode == 0
        assert storage.load(tmp_path / "model").parameters == {}
        assert sorted(path.name for path in tmp_path.iterdir()) == [".model.0123456789abcdef.tmp.txt", "model"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def edit_files(folder: Path, name: str) -> None:
    """Replace the name of the first additional file in the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["checksum"]
    manifest["files"][0]["name"] = name
    (folder / "manifest.json").write_bytes(storage._seal(manifest))


@pytest.mark.parametrize("foreign", ["encoder/notes.txt", "docs/x", "docs/deep/er/y", "empty/"])
def test_folders_with_files_that_are_not_listed_are_not_replaced(foreign: str, tmp_path: Path) -> None:
    """A manifest that lists docs/listed does not make the other files in docs/ part of the model."""
    folder = tmp_path / "model"
    save(folder, 1)
    (folder / "encoder" / "config.json").unlink()
    edit_files(folder, "docs/listed")
    (folder / "docs").mkdir()
    (folder / "docs" / "listed").write_text("part of the model")
    if foreign.endswith("/"):
        (folder / foreign).mkdir()
    else:
        (folder / foreign).parent.mkdir(parents=True, exist_ok=True)
        (folder / foreign).write_text("years of work")
    with pytest.raises(SaveError, match=r"contains files that are not part of a Carya model\. It was not modified"):
        save(folder, 2)
    assert (folder / foreign).exists()
    if foreign.endswith("/"):
        (folder / foreign).rmdir()
    else:
        (folder / foreign).unlink()
        if (folder / "docs" / "deep").exists():
            shutil.rmtree(folder / "docs" / "deep")
    save(folder, 2)
    assert versions(storage.load(folder)) == {2}


def test_links_to_other_folders_are_not_removed(tmp_path: Path) -> None:
    save(tmp_path / "model", 1)
    (tmp_path / "documents").mkdir()
    (tmp_path / "model" / "link").symlink_to(tmp_path / "documents")
    with pytest.raises(SaveError, match="contains files that are not part of a Carya model"):
        save(tmp_path / "model", 2)


@pytest.mark.parametrize("kind", ["pipe", "device", "huge file"])
def test_special_files_instead_of_a_manifest_are_rejected_at_once(kind: str, tmp_path: Path) -> None:
    save(tmp_path / "model", 1)
    manifest = tmp_path / "model" / "manifest.json"
    manifest.unlink()
    match kind:
        case "pipe":
            os.mkfifo(manifest)
        case "device":
            manifest.symlink_to("/dev/zero")
        case "huge file":
            with manifest.open("wb") as file:
                file.truncate(1 << 40)  # a sparse file
    with pytest.raises(ModelFormatError, match=r"manifest\.json (cannot be read|is larger than 64 MiB)"):
        storage.load(tmp_path / "model")
    with pytest.raises(SaveError, match="files that are not part of a Carya model"):
        save(tmp_path / "model", 2)


@pytest.mark.parametrize("kind", ["changed", "missing", "added", "pipe", "link to a folder"])
def test_additional_files_must_be_those_in_the_manifest(kind: str, tmp_path: Path) -> None:
    save(tmp_path / "model", 1)
    encoder = tmp_path / "model" / "encoder"
    match kind:
        case "changed":
            (encoder / "config.json").write_text("2")
        case "missing":
            (encoder / "config.json").unlink()
        case "added":
            (encoder / "tokenizer_config.json").write_text("{}")
        case "pipe":
            (encoder / "config.json").unlink()
            os.mkfifo(encoder / "config.json")
        case "link to a folder":
            encoder.rename(tmp_path / "elsewhere")
            encoder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFormatError, match=r"encoder|config"):
        storage.load(tmp_path / "model")


def test_files_that_are_not_listed_at_all_are_not_part_of_the_model(tmp_path: Path) -> None:
    save(tmp_path / "model", 1)
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    del manifest["checksum"], manifest["files"]
    (tmp_path / "model" / "manifest.json").write_bytes(storage._seal(manifest))
    assert storage.load(tmp_path / "model").path is None


MOUNT = """
import subprocess, sys
from carya.core.storage import check_output_path
source, target = sys.argv[1:]
subprocess.run(["mount", *(["--bind", source] if source != "tmpfs" else ["-t", "tmpfs", "tmpfs"]), target], check=True)
check_output_path(target + "/model")
check_output_path(target)
"""


@pytest.mark.parametrize("source", ["tmpfs", "source"])
def test_mount_points_are_rejected_before_training(source: str, tmp_path: Path) -> None:
    """A mount point, such as a container volume, cannot be replaced by renaming another folder."""
    for name in ("source", "a mount\tpoint"):
        (tmp_path / name).mkdir()
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("requires permission to mount folders")
    arguments = [source if source == "tmpfs" else str(tmp_path / source), str(tmp_path / "a mount\tpoint")]
    process = subprocess.run(
        [*unshare, sys.executable, "-c", MOUNT, *arguments], check=False, capture_output=True, text=True
    )
    assert process.returncode == 1
    assert "is a mount point, which cannot be replaced by a model. Choose a path inside this folder" in process.stderr


@pytest.mark.parametrize("path", ["m\0x", "\udcff\udcfe", "\ud800", "a" * 5000, ""])
def test_unusual_paths_give_clear_errors(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFormatError):
        storage.load(path)
    if path != "\udcff\udcfe":
        with pytest.raises(SaveError):
            save(Path(path), 1)


def test_paths_that_are_not_utf8_can_be_used(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/m\xff\xfe"))
    save(folder, 1)
    save(folder, 2)
    assert versions(storage.load(folder)) == {2}
    (folder / "arrays.bin").unlink()
    with pytest.raises(ModelFormatError) as error:
        storage.load(folder)
    assert str(folder) in str(error.value)
