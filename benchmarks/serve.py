"""Measure the throughput, latency and memory use of servers under load from a second process on the same machine.

    python benchmarks/serve.py DATA MODEL [--seconds 20] [--saturate 600] [--out FILE]
        [--peer-python VENV/bin/python --peer-folder FOLDER] [--annif-python VENV/bin/python --annif-folder FOLDER]

DATA is a text folder, and MODEL is a model trained on it with `carya train DATA -o MODEL`. Carya is compared with a
FastAPI wrapper around libpecos (create its folder with serve_libpecos.py) and with Annif and its omikuji backend
(create its folder with annif_project.py). Each server is measured at maximum speed with one text per request and with
64 texts per request (32 for Annif), and then with one text per request at half the maximum rate. With --saturate,
Carya additionally receives both types of requests at the same time for the given number of seconds, and its memory use
is recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from load import write_requests
from measure import read_texts

HERE = Path(__file__).parent
BATCH = 64
ANNIF_BATCH = 32  # maximum number of texts per request in Annif
STARTUP_TIMEOUT = 180


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def post(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def split_batches(texts: list[str], size: int) -> list[list[str]]:
    return [texts[begin : begin + size] for begin in range(0, len(texts) - size + 1, size)]


def carya_requests(texts: list[str]) -> dict[str, list[bytes]]:
    """Return requests for Carya and for the wrapper around libpecos."""
    return {
        "one": [post("/v1/suggest", json.dumps({"text": text}).encode()) for text in texts],
        "batch": [post("/v1/suggest", json.dumps({"texts": batch}).encode()) for batch in split_batches(texts, BATCH)],
    }


def annif_requests(texts: list[str], project: str) -> dict[str, list[bytes]]:
    path = f"/v1/projects/{project}/suggest"
    form = "application/x-www-form-urlencoded"
    batches = [{"documents": [{"text": text} for text in batch]} for batch in split_batches(texts, ANNIF_BATCH)]
    return {
        "one": [post(path, urllib.parse.urlencode({"text": text}).encode(), form) for text in texts],
        "batch": [post(f"{path}-batch", json.dumps(batch).encode()) for batch in batches],
    }


@contextlib.contextmanager
def start_server(
    command: list[str], port: int, folder: Path, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, wait for its first response, and stop it when the context exits."""
    log_path = folder / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=cwd, start_new_session=True)
    try:
        deadline = time.monotonic() + STARTUP_TIMEOUT
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.settimeout(60)
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if connection.recv(100):
                    break
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"{command[0]} did not respond. Its log ends with:\n{log_path.read_text()[-3000:]}")
            time.sleep(0.2)
        time.sleep(2)  # wait for the other workers
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    pids = [pid]
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pids += process_tree(int(child))
    return pids


def memory_mb(pid: int) -> float:
    """Return the proportional set size of a server's processes, which counts shared pages only once."""
    total_kb = 0
    for member in process_tree(pid):
        with contextlib.suppress(OSError, IndexError):
            text = Path(f"/proc/{member}/smaps_rollup").read_text()
            total_kb += int(text.partition("\nPss:")[2].split()[0])
    return round(total_kb / 1024, 1)


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for member in process_tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def start_load(requests: Path, port: int, connections: int, seconds: float, rate: float | None = None) -> Any:
    command = [sys.executable, str(HERE / "load.py"), str(requests), "--port", str(port)]
    command += ["--connections", str(connections), "--seconds", str(seconds)]
    command += [] if rate is None else ["--rate", str(rate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def read_result(load: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(load.communicate()[0].splitlines()[-1])
    return result


def measure_server(
    name: str, process: subprocess.Popen[bytes], port: int, files: dict[str, Path], arguments: Any, batch: int
) -> dict[str, Any]:
    """Measure a running server with each type of request."""
    results: dict[str, Any] = {}
    for kind, size in (("one", 1), ("batch", batch)):
        read_result(start_load(files[kind], port, arguments.connections, 2))  # warm up
        cpu_before = cpu_seconds(process.pid)
        result = read_result(start_load(files[kind], port, arguments.connections, arguments.seconds))
        result["texts_per_second"] = round(result["per_second"] * size, 1)
        cpu = cpu_seconds(process.pid) - cpu_before
        result["server_cpu_us_per_text"] = round(1e6 * cpu / max(1, result["requests"] * size), 1)
        results[kind] = result
        show(name, f"{size} texts per request, maximum speed", result)
    rate = results["one"]["per_second"] / 2
    results["half"] = read_result(start_load(files["one"], port, arguments.connections, arguments.seconds, rate))
    show(name, f"1 text per request, {rate:.0f} requests per second", results["half"])
    results["memory_mb"] = memory_mb(process.pid)
    if arguments.saturate and name == "carya":
        results["saturated"] = saturate(process, port, files, arguments)
        show(name, f"both types of requests for {arguments.saturate:g} s", results["saturated"])
    return results


def saturate(process: subprocess.Popen[bytes], port: int, files: dict[str, Path], arguments: Any) -> dict[str, Any]:
    """Send both types of requests for --saturate seconds and record the memory use."""
    half = max(1, arguments.connections // 2)
    loads = [start_load(files[kind], port, half, arguments.saturate) for kind in ("one", "batch")]
    memory = []
    deadline = time.monotonic() + arguments.saturate
    while time.monotonic() < deadline:
        time.sleep(min(10.0, arguments.saturate / 10))
        memory.append(memory_mb(process.pid))
    one, batch = (read_result(load) for load in loads)
    return {"one": one, "batch": batch, "memory_mb": memory}


def show(name: str, title: str, result: dict[str, Any]) -> None:
    print(f"{name}: {title}: {json.dumps(result)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--saturate", type=float, default=0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--peer-python", type=Path)
    parser.add_argument("--peer-folder", type=Path)
    parser.add_argument("--annif-python", type=Path)
    parser.add_argument("--annif-folder", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    texts = read_texts(arguments.data, "test")[:4096]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def write_files(requests: dict[str, list[bytes]], name: str) -> dict[str, Path]:
            paths = {kind: folder / f"{name}-{kind}" for kind in requests}
            for kind, path in paths.items():
                write_requests(path, requests[kind])
            return paths

        workers = str(arguments.workers)
        port = free_port()
        command = [sys.executable, "-c", "from carya.cli import main; main()", "serve", str(arguments.model)]
        command += ["--port", str(port), "--workers", workers, "--log-level", "warning"]
        with start_server(command, port, folder) as process:
            files = write_files(carya_requests(texts), "carya")
            results["carya"] = measure_server("carya", process, port, files, arguments, BATCH)
        if arguments.peer_python:
            port = free_port()
            command = [str(arguments.peer_python), str(HERE / "serve_libpecos.py"), str(arguments.data)]
            command += [str(arguments.peer_folder.resolve()), "--port", str(port), "--workers", workers]
            with start_server(command, port, folder, cwd=HERE) as process:
                files = write_files(carya_requests(texts), "libpecos")
                results["libpecos"] = measure_server("libpecos", process, port, files, arguments, BATCH)
        if arguments.annif_python:
            port = free_port()
            command = [str(arguments.annif_python.parent / "gunicorn"), "-k", "uvicorn.workers.UvicornWorker"]
            command += ["-w", workers, "-b", f"127.0.0.1:{port}", "annif:create_app()"]
            with start_server(command, port, folder, cwd=arguments.annif_folder) as process:
                files = write_files(annif_requests(texts, "debian"), "annif")
                results["annif"] = measure_server("annif", process, port, files, arguments, ANNIF_BATCH)
    for name, result in results.items():
        one, batch, half = result["one"], result["batch"], result["half"]
        print(
            f"{name}: {batch['texts_per_second']:,.0f} texts/s in batches, {one['per_second']:,.0f} single-text "
            f"requests/s, p99 {half['p99_ms']} ms at half load, {result['memory_mb']} MB"
        )
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        settings = {"data": arguments.data.name, "workers": arguments.workers, "connections": arguments.connections}
        arguments.out.write_text(json.dumps({**settings, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
