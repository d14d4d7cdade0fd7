"""Test that models and commands do not use the network, except for `carya serve` and `carya data debian`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Code prepended to each script; it installs an audit hook that forbids network access. Audit hooks cannot be removed.
FORBID = """
import sys

def forbid(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        raise RuntimeError(f"network access: {event} {arguments[1:]}")

sys.addaudithook(forbid)
"""

USE = """
import carya
import numpy as np
from carya.cli.app import main

X, Y = carya.data.make_world(300, 30, seed=0)
texts, labels = ["a web server", "a mail server"] * 20, [["web"], ["mail"]] * 20
models = [carya.XRLinear(), carya.NearestNeighbors(), carya.Ensemble(carya.XRLinear(), n_trees=2), carya.Reranked()]
for number, model in enumerate(models):
    model.fit(X, Y).save(f"model{number}")
    carya.load(f"model{number}").predict(X)
carya.TextRanker().fit(texts, labels).save("texts")
with open("train.jsonl", "w") as file:
    for text, (label,) in zip(texts, labels):
        print(f'{{"text": "{text}", "labels": ["{label}"]}}', file=file)
commands = [
    ["train", "train.jsonl", "-o", "trained"],
    ["evaluate", "trained", "train.jsonl"],
    ["inspect", "trained"],
    ["explain", "trained", "a web server"],
]
for arguments in commands:
    sys.argv = ["carya", *arguments]
    try:
        main()
    except SystemExit as stopped:
        assert not stopped.code, arguments
print("used", len(models) + 1, "models and", len(commands), "commands")
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FORBID + script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_models_and_commands_open_no_sockets(tmp_path: Path) -> None:
    process = run(USE, tmp_path)
    assert process.returncode == 0, process.stderr
    assert "used 5 models and 4 commands" in process.stdout


def test_the_hook_detects_sockets(tmp_path: Path) -> None:
    process = run("import socket; socket.create_connection(('127.0.0.1', 9))", tmp_path)
    assert process.returncode == 1
    assert "network access" in process.stderr
