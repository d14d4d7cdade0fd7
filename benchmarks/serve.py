"""How many texts a server ranks: load from a second process on this machine, Carya beside a FastAPI wrapper around
libpecos and beside Annif with its omikuji backend.

    python benchmarks/serve.py DATA MODEL [--seconds 20] [--saturate 600] [--out FILE]
        [--peer-python VENV/bin/python --peer-folder FOLDER] [--annif-python VENV/bin/python --annif-folder FOLDER]

DATA is a folder of texts, MODEL what `carya train DATA -o MODEL` made of it. FOLDER of libpecos is made by
serve_libpecos.py, that of Annif by annif_project.py. For each server: requests of one text and of 64 as fast as they
are answered, requests of one text at half of that rate, and for Carya with --saturate so many seconds of both at once,
with the memory of the server every few seconds.
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def post(path: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def own_requests(texts: list[str]) -> dict[str, list[bytes]]:
    """As Carya and the wrapper take them."""
    batches = [texts[at : at + BATCH] for at in range(0, len(texts) - BATCH + 1, BATCH)]
    return {
        "one": [post("/v1/suggest", json.dumps({"text": text}).encode()) for text in texts],
        "batch": [post("/v1/suggest", json.dumps({"texts": some}).encode()) for some in batches],
    }


def annif_requests(texts: list[str], project: str, batch: int) -> dict[str, list[bytes]]:
    """As Annif takes them."""
    place = f"/v1/projects/{project}/suggest"
    form = "application/x-www-form-urlencoded"
    batches = [texts[at : at + batch] for at in range(0, len(texts) - batch + 1, batch)]
    return {
        "one": [post(place, urllib.parse.urlencode({"text": text}).encode(), form) for text in texts],
        "batch": [
            post(f"{place}-batch", json.dumps({"documents": [{"text": text} for text in some]}).encode())
            for some in batches
        ],
    }


@contextlib.contextmanager
def running(command: list[str], port: int, folder: Path, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from when it answers to the end of the block."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=cwd, start_new_session=True)
    try:
        until = time.monotonic() + 180
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as one:
                one.settimeout(60)
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                if one.recv(100):
                    break
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit(f"{command[0]} does not answer:\n{(folder / 'server.log').read_text()[-3000:]}")
            time.sleep(0.2)
        time.sleep(2)  # all workers
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tree(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += tree(int(child))
    return found


def memory_mb(pid: int) -> float:
    """What a server's processes hold that is theirs alone, and their part of what is shared."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError, IndexError):
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
            total += int(text.partition("\nPss:")[2].split()[0])
    return round(total / 1024, 1)


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def load(requests: Path, port: int, connections: int, seconds: float, rate: float | None = None) -> Any:
    command = [sys.executable, str(HERE / "load.py"), str(requests), "--port", str(port)]
    command += ["--connections", str(connections), "--seconds", str(seconds)]
    command += [] if rate is None else ["--rate", str(rate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def result(process: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(process.communicate()[0].splitlines()[-1])
    return found


def measured(
    name: str, process: subprocess.Popen[bytes], port: int, files: dict[str, Path], arguments: Any, batch: int
) -> dict[str, Any]:
    """What a running server does under load."""
    found: dict[str, Any] = {}
    for kind, size in (("one", 1), ("batch", batch)):
        result(load(files[kind], port, arguments.connections, 2))  # to warm up
        before = cpu_seconds(process.pid)
        one = result(load(files[kind], port, arguments.connections, arguments.seconds))
        one["texts_per_second"] = round(one["per_second"] * size, 1)
        spent = cpu_seconds(process.pid) - before
        one["server_cpu_us_a_text"] = round(1e6 * spent / max(1, one["requests"] * size), 1)
        found[kind] = one
        show(name, f"{size} texts a request, as fast as answered", one)
    rate = found["one"]["per_second"] / 2
    found["half"] = result(load(files["one"], port, arguments.connections, arguments.seconds, rate))
    show(name, f"1 text a request, {rate:.0f} a second", found["half"])
    found["memory_mb"] = memory_mb(process.pid)
    if arguments.saturate and name == "carya":
        found["saturated"] = saturated(process, port, files, arguments)
        show(name, f"{arguments.saturate:g} s of both at once", found["saturated"])
    return found


def saturated(process: subprocess.Popen[bytes], port: int, files: dict[str, Path], arguments: Any) -> dict[str, Any]:
    """Both kinds at once for long, and the memory meanwhile."""
    half = max(1, arguments.connections // 2)
    loads = [load(files[kind], port, half, arguments.saturate) for kind in ("one", "batch")]
    memory = []
    until = time.monotonic() + arguments.saturate
    while time.monotonic() < until:
        time.sleep(min(10.0, arguments.saturate / 10))
        memory.append(memory_mb(process.pid))
    one, batch = (result(each) for each in loads)
    return {"one": one, "batch": batch, "memory_mb": memory}


def show(name: str, what: str, found: dict[str, Any]) -> None:
    print(f"{name}: {what}: {json.dumps(found)}", flush=True)


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
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)

        def files_of(requests: dict[str, list[bytes]], name: str) -> dict[str, Path]:
            places = {kind: folder / f"{name}-{kind}" for kind in requests}
            for kind, some in requests.items():
                write_requests(places[kind], some)
            return places

        workers = str(arguments.workers)
        port = free_port()
        serve = [sys.executable, "-c", "from carya.cli import main; main()", "serve", str(arguments.model)]
        with running([*serve, "--port", str(port), "--workers", workers, "--log", "warning"], port, folder) as process:
            results["carya"] = measured(
                "carya", process, port, files_of(own_requests(texts), "carya"), arguments, BATCH
            )
        if arguments.peer_python:
            port = free_port()
            script = [str(arguments.peer_python), str(HERE / "serve_libpecos.py"), str(arguments.data)]
            script += [str(arguments.peer_folder.resolve()), "--port", str(port), "--workers", workers]
            with running(script, port, folder, cwd=HERE) as process:
                files = files_of(own_requests(texts), "libpecos")
                results["libpecos"] = measured("libpecos", process, port, files, arguments, BATCH)
        if arguments.annif_python:
            port = free_port()
            gunicorn = [str(arguments.annif_python.parent / "gunicorn"), "-k", "uvicorn.workers.UvicornWorker"]
            gunicorn += ["-w", workers, "-b", f"127.0.0.1:{port}", "annif:create_app()"]
            with running(gunicorn, port, folder, cwd=arguments.annif_folder) as process:
                files = files_of(annif_requests(texts, "debian", BATCH // 2), "annif")  # 32 are the most it takes
                results["annif"] = measured("annif", process, port, files, arguments, BATCH // 2)
    for name, found in results.items():
        one, batch, half = found["one"], found["batch"], found["half"]
        print(
            f"{name}: {batch['texts_per_second']:,.0f} texts/s in batches, {one['per_second']:,.0f} requests/s of one, "
            f"p99 {half['p99_ms']} ms at half load, {found['memory_mb']} MB"
        )
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        about = {"data": arguments.data.name, "workers": arguments.workers, "connections": arguments.connections}
        arguments.out.write_text(json.dumps({**about, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
