"""Save a model repeatedly, each time injecting a fault into a different file operation.

The script is run by test_storage_faults.py with file_faults.c preloaded. It prints a JSON object with the number of
faults, a list of problems, and logs of the file operations.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from itertools import product
from pathlib import Path

import numpy as np

from carya.core import storage
from carya.errors import SaveError

FAIL, DIE_BEFORE, DIE_AFTER = 1, 2, 3
FAULTS = {"fail": FAIL, "die before": DIE_BEFORE, "die after": DIE_AFTER}
SAVED, REFUSED, DIED = 0, 3, 137

library = ctypes.CDLL(None)
library.file_faults_log.restype = ctypes.c_char_p


def save(folder: Path, version: int) -> None:
    """Save a small model and an additional file, both of which contain the version."""

    def extra(temporary: Path) -> None:
        (temporary / "encoder").mkdir()
        (temporary / "encoder" / "config.json").write_text(str(version))

    arrays = {"numbers": np.full(1000, version, np.int64)}
    storage.save(folder, storage.SavedModel("toy", {"version": version}, {}, arrays), extra=extra)


def version_of(folder: Path) -> int | None:
    """Check that a saved model is complete and return its version, or None if there is no model."""
    if not folder.exists() and not folder.with_name(f".{folder.name}.old").exists():
        return None
    saved = storage.load(folder)
    assert saved.path is not None
    versions = {
        saved.parameters["version"],
        *saved.arrays["numbers"].tolist(),
        int((saved.path / "encoder/config.json").read_text()),
    }
    (version,) = versions
    return int(version)


def save_with_fault(folder: Path, at: int, mode: int, exchange: bool) -> int:
    """Save version 2 in a child process with a fault in operation `at`; return the exit code."""
    process = os.fork()
    if process == 0:
        library.file_faults(at, mode, int(exchange))
        try:
            save(folder, 2)
            os._exit(SAVED)
        except SaveError:
            os._exit(REFUSED)
        finally:
            os._exit(1)  # any other exception
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def operations(folder: Path, exchange: bool) -> list[list[str]]:
    """Save version 2 without a fault and return a log of the file operations."""
    library.file_faults(0, 0, int(exchange))
    save(folder, 2)
    log = library.file_faults_log().decode()
    library.file_faults(-1, 0, 1)
    return [line.split("\t") for line in log.splitlines()]


def check(folder: Path, exit_code: int, existed: bool, mode: int) -> str | None:
    """Check the model after a fault; return a description of the problem, or None."""
    version = version_of(folder)
    if version not in ((1, 2) if existed else (None, 2)):
        return f"the model has version {version}"
    if exit_code not in ((SAVED, REFUSED) if mode == FAIL else (DIED,)):
        return f"exit code {exit_code}"
    if exit_code == SAVED and version != 2:
        return "a failed save was reported as successful"
    save(folder, 3)
    if version_of(folder) != 3:
        return "the next save failed"
    left = sorted(path.name for path in folder.parent.iterdir())
    return None if left == [folder.name] else f"the next save left {left} behind"


def main(root: Path) -> None:
    """Inject every fault in turn and print the results."""
    n_faults, problems, logs = 0, [], {}
    for exchange, existed in product((True, False), repeat=2):
        setting = f"exchange={exchange}, existed={existed}"
        trial = root / "trial"
        trial.mkdir()
        if existed:
            save(trial / "model", 1)
        logs[setting] = operations(trial / "model", exchange)
        for (name, mode), at in product(FAULTS.items(), range(1, len(logs[setting]) + 1)):
            parent = root / f"{n_faults}"
            parent.mkdir()
            if existed:
                save(parent / "model", 1)
            exit_code = save_with_fault(parent / "model", at, mode, exchange)
            try:
                problem = check(parent / "model", exit_code, existed, mode)
            except Exception as error:
                problem = repr(error)
            if problem is not None:
                problems.append(f"{setting}, {name} {logs[setting][at - 1]}: {problem}")
            n_faults += 1
        trial.rename(root / f"trial-{exchange}-{existed}")
    print(json.dumps({"faults": n_faults, "problems": problems, "logs": logs}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
