"""Serve models for hours under mixed load, with reloads and killed workers, and record memory and failures.

    python benchmarks/soak.py DATA MODEL_A MODEL_B [--minutes 120] [--rate 5] [--out FILE] [--plot FILE]
    python benchmarks/soak.py --draw RESULTS --plot FILE

DATA is a text folder; MODEL_A and MODEL_B are two models trained on it, for example with different seeds. Two workers
serve a folder in which the models replace each other every minute. Every five minutes, the newest worker is killed with
SIGKILL, so that the other worker runs for the entire test. Four clients send valid requests of several kinds, whose
results are compared with those of both models, and invalid and aborted requests, whose status codes are compared with
the expected ones. Memory, open files, threads and latencies are recorded every ten seconds.

A request counts as failed if its response is missing, unexpected or incorrect. A failure is attributed to a killed
worker only if the connection is lost and was opened before a worker was killed, and if no request that was sent
afterward has been answered over it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import carya

from measure import read_texts
from provenance import provenance
from serve import free_port, process_tree, start_server

CLIENTS = 4
SAMPLE_SECONDS = 10.0
RELOAD_SECONDS = 60.0
KILL_SECONDS = 300.0
TOP_K = 10
JSON = {"Content-Type": "application/json"}
COLORS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"]
TEXT = "#747d88"

Suggestions = list[tuple[str, float]]


@dataclass
class Expected:
    """Texts, and the suggestions of both models for each of them."""

    texts: list[str]
    suggestions: list[list[Suggestions]]
    label: str

    @classmethod
    def of(cls, texts: list[str], folders: list[Path]) -> Expected:
        suggestions: list[list[Suggestions]] = []
        for folder in folders:
            ranker = carya.load(folder)
            rows = ranker.suggest_all(texts, top_k=TOP_K)
            suggestions.append([[(item.label, round(item.score, 5)) for item in row] for row in rows])
        return cls(texts, suggestions, suggestions[0][0][0][0])

    def check(self, indices: list[int], message: Any) -> str | None:
        """Return None if the results match one of the models, or an error message otherwise."""
        results = [
            [(item["label"], round(item["score"], 5)) for item in result["suggestions"]]
            for result in message["results"]
        ]
        if any(results == [rows[index] for index in indices] for rows in self.suggestions):
            return None
        return "the results match neither model"


@dataclass
class Record:
    """Counts, failures and samples; shared by all threads."""

    started: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    lost_by_kills: int = 0
    kills: list[tuple[float, float]] = field(default_factory=list)  # times before and after the signal was sent
    reloads: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def elapsed(self) -> float:
        return time.monotonic() - self.started


class Client(threading.Thread):
    """A client that sends requests at a fixed rate over a connection that it reuses as long as possible."""

    def __init__(self, seed: int, port: int, rate: float, expected: Expected, record: Record) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.port, self.rate, self.expected, self.record = port, rate, expected, record
        self.stopping = threading.Event()
        self.connection: http.client.HTTPConnection | None = None
        self.last_success = 0.0
        self.kinds: list[tuple[str, float, Callable[[], str | None]]] = [
            ("suggest", 50, self.suggest),
            ("batch of 64 texts", 8, self.suggest_batch),
            ("label filter", 5, self.suggest_with_filter),
            ("explain", 4, self.explain),
            ("label search", 4, lambda: self.get("/v1/labels?prefix=a&limit=5")),
            ("model", 2, lambda: self.get("/v1/model")),
            ("metrics", 2, lambda: self.get("/metrics")),
            ("health", 2, lambda: self.get("/healthz")),
            ("page", 2, lambda: self.get("/")),
            ("invalid JSON", 2, lambda: self.post(b'{"text": ', 400)),
            ("unknown field", 2, lambda: self.post({"text": "x", "n": 1}, 400)),
            ("invalid parameter", 2, lambda: self.post({"text": "x", "top_k": 0}, 400)),
            ("too many texts", 1, lambda: self.post({"texts": ["x"] * 1100}, 413)),
            ("unknown model", 2, lambda: self.post({"text": "x", "model": "no"}, 404)),
            ("unknown path", 2, lambda: self.get("/v1/nothing", 404)),
            ("foreign host", 2, lambda: self.get("/v1/model", 421, {"Host": "attacker.example"})),
            ("missing content type", 2, lambda: self.post({"text": "x"}, 415, {})),
            ("oversized body", 1, self.send_oversized_body),
            ("aborted body", 2, self.abort_body),
            ("unread response", 1, self.leave_response_unread),
            ("not HTTP", 1, self.send_garbage),
        ]

    def run(self) -> None:
        names = [name for name, _, _ in self.kinds]
        weights = [weight for _, weight, _ in self.kinds]
        calls = {name: call for name, _, call in self.kinds}
        scheduled = time.monotonic()
        while not self.stopping.is_set():
            (name,) = self.random.choices(names, weights)
            self.measure(name, calls[name])
            scheduled = max(scheduled + self.random.expovariate(self.rate), time.monotonic() - 1)
            self.stopping.wait(max(0.0, scheduled - time.monotonic()))

    def measure(self, name: str, call: Callable[[], str | None]) -> None:
        started, opened = time.monotonic(), self.last_success
        is_lost = False
        try:
            error = call()
        except (OSError, http.client.HTTPException) as exception:
            error = repr(exception)
            is_lost = isinstance(exception, ConnectionError | http.client.RemoteDisconnected)
            is_lost = is_lost or isinstance(exception, http.client.IncompleteRead)
        except ValueError as exception:
            error = repr(exception)
        finished = time.monotonic()
        if error is None:
            self.last_success = started  # a worker can be killed between sending a response and its arrival
        else:
            self.close()
        with self.record.lock:
            self.record.counts[name] += 1
            if error is None:
                if name == "suggest":
                    self.record.latencies.append(finished - started)
            elif is_lost and any(opened <= end and begin <= finished for begin, end in self.record.kills):
                self.record.lost_by_kills += 1
            else:
                failure = {"second": round(started - self.record.started, 1), "kind": name, "error": error[:300]}
                self.record.failures.append(failure)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            self.last_success = time.monotonic()
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        data = response.read()
        if response.will_close or self.random.random() < 0.02:
            self.close()
        return response.status, data

    def get(self, path: str, expected: int = 200, headers: dict[str, str] | None = None) -> str | None:
        status, data = self.request("GET", path, None, headers or {})
        return None if status == expected else f"status {status} instead of {expected}: {data[:200]!r}"

    def post(
        self, message: Any, expected: int, headers: dict[str, str] | None = None, path: str = "/v1/suggest"
    ) -> str | None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        status, data = self.request("POST", path, body, JSON if headers is None else headers)
        return None if status == expected else f"status {status} instead of {expected}: {data[:200]!r}"

    def post_and_check(self, message: dict[str, Any], indices: list[int]) -> str | None:
        status, data = self.request("POST", "/v1/suggest", json.dumps(message).encode(), JSON)
        if status != 200:
            return f"status {status} instead of 200: {data[:200]!r}"
        return self.expected.check(indices, json.loads(data))

    def suggest(self) -> str | None:
        index = self.random.randrange(len(self.expected.texts))
        return self.post_and_check({"text": self.expected.texts[index], "top_k": TOP_K}, [index])

    def suggest_batch(self) -> str | None:
        indices = [self.random.randrange(len(self.expected.texts)) for _ in range(64)]
        return self.post_and_check({"texts": [self.expected.texts[i] for i in indices], "top_k": TOP_K}, indices)

    def suggest_with_filter(self) -> str | None:
        label = self.expected.label
        message = {"text": self.random.choice(self.expected.texts), "labels": {"allowed": [label]}}
        status, data = self.request("POST", "/v1/suggest", json.dumps(message).encode(), JSON)
        if status != 200:
            return f"status {status} instead of 200: {data[:200]!r}"
        labels = [item["label"] for item in json.loads(data)["results"][0]["suggestions"]]
        return None if labels == [label] else f"the labels are {labels} instead of [{label!r}]"

    def explain(self) -> str | None:
        return self.post({"text": self.random.choice(self.expected.texts)[:2000]}, 200, path="/v1/explain")

    def send_oversized_body(self) -> str | None:
        head = "POST /v1/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return self.send_raw(f"{head}Content-Length: 9000000\r\n\r\n".encode(), b" 413 ")

    def send_garbage(self) -> str | None:
        return self.send_raw(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b" 400 ")

    def send_raw(self, data: bytes, expected: bytes) -> str | None:
        """Send bytes over a new connection and check the status code."""
        self.last_success = time.monotonic()  # the failure of a new connection is not caused by an earlier kill
        with socket.create_connection(("127.0.0.1", self.port), 120) as connection:
            connection.sendall(data)
            received = connection.recv(4096)
        if not received:
            raise ConnectionError("The connection was closed without a response.")
        return None if expected in received[:20] else f"{received[:100]!r} does not contain {expected!r}"

    def abort_body(self) -> None:
        head = "POST /v1/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", self.port), 120) as connection:
            connection.sendall(f'{head}Content-Length: 100000\r\n\r\n{{"text": "'.encode())

    def leave_response_unread(self) -> None:
        body = json.dumps({"texts": self.expected.texts[:64], "top_k": TOP_K}).encode()
        head = "POST /v1/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", self.port), 120) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def describe_process(pid: int) -> dict[str, Any]:
    """Return the memory, threads and open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    values = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.splitlines()}
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private_kb = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))
    return {
        "pid": pid,
        "rss_mb": round(int(values["VmRSS"][0]) / 1024, 1),
        "private_mb": round(private_kb / 1024, 1),
        "threads": int(values["Threads"][0]),
        "files": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208 - names only
    }


def worker_pids(pid: int) -> list[int]:
    """Return the ids of the worker processes, oldest first."""
    workers = []
    for member in process_tree(pid)[1:]:
        with contextlib.suppress(OSError):
            started = int(Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()[19])
            if b"spawn_main" in Path(f"/proc/{member}/cmdline").read_bytes():
                workers.append((started, member))
    return [member for _, member in sorted(workers)]


def take_sample(pid: int, record: Record) -> None:
    processes = {}
    workers = worker_pids(pid)
    for name, member in [("supervisor", pid), *((f"worker {worker}", worker) for worker in workers)]:
        with contextlib.suppress(OSError, KeyError, IndexError):  # the process has just exited
            processes[name] = describe_process(member)
    with record.lock:
        latencies = sorted(record.latencies)
        record.latencies.clear()
        requests = sum(record.counts.values())
    sample: dict[str, Any] = {"second": round(record.elapsed(), 1), "requests": requests, "processes": processes}
    if latencies:
        sample["latency_ms"] = {
            "median": round(1000 * statistics.median(latencies), 2),
            "p99": round(1000 * latencies[int(0.99 * (len(latencies) - 1))], 2),
            "maximum": round(1000 * latencies[-1], 2),
        }
    sample["load_average"] = os.getloadavg()[0]
    record.samples.append(sample)


def results(record: Record, arguments: argparse.Namespace, started: dict[str, Any]) -> dict[str, Any]:
    with record.lock:
        return {
            "settings": {
                "rate": arguments.rate,
                "clients": CLIENTS,
                "reload_seconds": RELOAD_SECONDS,
                "kill_seconds": KILL_SECONDS,
                "data": Path(arguments.data).name,
            },
            "provenance": started,
            "seconds": round(record.elapsed(), 1),
            "requests": dict(record.counts),
            "failures": record.failures,
            "lost_by_kills": record.lost_by_kills,
            "kills": [round(begin - record.started, 1) for begin, _ in record.kills],
            "reloads": [round(reload, 1) for reload in record.reloads],
            "samples": record.samples,
        }


def schedule(seconds: float) -> Iterator[bool]:
    """Yield whether the next interval of the given length has elapsed."""
    due = time.monotonic() + seconds
    while True:
        is_due = time.monotonic() >= due
        if is_due:
            due += seconds
        yield is_due


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    started = provenance()
    folders = [Path(arguments.model_a), Path(arguments.model_b)]
    texts = [text for text in read_texts(arguments.data, "test") if text.strip()][:500]
    expected = Expected.of(texts, folders)
    with tempfile.TemporaryDirectory() as name:
        served = Path(name) / "model"
        carya.load(folders[0]).save(served)
        port = free_port()
        command = [sys.executable, "-c", "from carya.cli import main; main()", "serve", f"m={served}", "--workers", "2"]
        command += ["--port", str(port), "--log-level", "warning"]
        with start_server(command, port, Path(name)) as process:
            record = Record()
            clients = [Client(seed, port, arguments.rate / CLIENTS, expected, record) for seed in range(CLIENTS)]
            for client in clients:
                client.start()
            sample_due, reload_due = schedule(SAMPLE_SECONDS), schedule(RELOAD_SECONDS)
            kill_due, write_due = schedule(KILL_SECONDS), schedule(60)
            while record.elapsed() < 60 * arguments.minutes:
                time.sleep(0.2)
                if next(sample_due):
                    take_sample(process.pid, record)
                if next(reload_due):
                    carya.load(folders[(len(record.reloads) + 1) % 2]).save(served)
                    record.reloads.append(record.elapsed())
                if next(kill_due):
                    newest = worker_pids(process.pid)[-1]
                    with record.lock:
                        begin = time.monotonic()
                        os.kill(newest, signal.SIGKILL)
                        record.kills.append((begin, time.monotonic()))
                if next(write_due) and arguments.out:
                    Path(arguments.out).write_text(json.dumps(results(record, arguments, started), indent=1) + "\n")
            for client in clients:
                client.stopping.set()
            for client in clients:
                client.join(150)
            take_sample(process.pid, record)
            return results(record, arguments, started)


def draw(measured: dict[str, Any], path: Path) -> None:
    """Plot the memory, open files, threads and latencies over time."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style = {"svg.hashsalt": "carya", "font.size": 9, "text.color": TEXT, "axes.labelcolor": TEXT}
    style |= {f"{axis}tick.color": TEXT for axis in "xy"} | {"axes.edgecolor": TEXT}
    samples = measured["samples"]
    minutes = [sample["second"] / 60 for sample in samples]
    oldest = next(name for name in samples[0]["processes"] if name != "supervisor")
    with mpl.rc_context(style):
        figure = Figure(figsize=(8, 7), layout="constrained")
        memory, counts, latency = figure.subplots(3, 1, sharex=True)

        def values(key: str, group: str) -> list[float]:
            """Return the values of the supervisor, the worker that is never killed, or the other worker."""
            found = []
            for sample in samples:
                names = {"supervisor": ["supervisor"], "oldest": [oldest]}.get(group)
                if names is None:
                    names = [name for name in sample["processes"] if name not in ("supervisor", oldest)][-1:]
                found.append(sample["processes"][names[0]][key] if names and names[0] in sample["processes"] else None)
            return [float("nan") if value is None else value for value in found]

        groups = {
            "oldest": "worker that is never killed",
            "newest": "worker that is killed every 5 minutes",
            "supervisor": "supervisor",
        }
        for (group, title), color in zip(groups.items(), COLORS, strict=False):
            memory.plot(minutes, values("private_mb", group), color=color, label=title)
            counts.plot(minutes, values("files", group), color=color, label=f"open files, {group}")
            counts.plot(minutes, values("threads", group), color=color, linestyle=":")
        for kill in measured["kills"]:
            memory.axvline(kill / 60, color=TEXT, linewidth=0.4, alpha=0.5)
        memory.set_ylabel("private memory (MB)")
        counts.set_ylabel("open files (solid)\nthreads (dotted)")
        for key, color in zip(("median", "p99"), COLORS, strict=False):
            latency.plot(
                minutes, [s.get("latency_ms", {}).get(key, float("nan")) for s in samples], color=color, label=key
            )
        latency.set_ylabel("latency of one text (ms)")
        latency.set_yscale("log")
        latency.set_xlabel("minutes")
        for axes in (memory, counts):
            axes.set_ylim(bottom=0)
        memory.legend(frameon=False, loc="lower right")
        latency.legend(frameon=False, loc="upper right")
        for axes in (memory, counts, latency):
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, transparent=True, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("model_a", nargs="?")
    parser.add_argument("model_b", nargs="?")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=5, help="total requests per second of all clients")
    parser.add_argument("--out", help="JSON file, written every minute")
    parser.add_argument("--plot", help="SVG file")
    parser.add_argument("--draw", help="plot a recorded result instead of measuring")
    arguments = parser.parse_args()
    if arguments.draw:
        measured = json.loads(Path(arguments.draw).read_text())
    elif arguments.model_b is None:
        parser.error("DATA, MODEL_A and MODEL_B are required.")
    else:
        measured = soak(arguments)
        if arguments.out:
            Path(arguments.out).write_text(json.dumps(measured, indent=1) + "\n")
    if arguments.plot:
        draw(measured, Path(arguments.plot))
    print(f"{sum(measured['requests'].values())} requests in {measured['seconds'] / 60:.1f} minutes")
    print(f"{len(measured['reloads'])} reloads, {len(measured['kills'])} killed workers")
    print(f"{measured['lost_by_kills']} requests lost with killed workers, {len(measured['failures'])} other failures")
    for failure in measured["failures"][:20]:
        print(failure)


if __name__ == "__main__":
    main()
