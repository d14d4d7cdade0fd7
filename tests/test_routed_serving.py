"""Tests for split models served by several processes: identical responses, failed replicas, and memory usage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import carya
from carya.cli.serve import read_lines
from carya.errors import InputError, ParameterError, PartUnavailableError
from carya.models.routed.remote import RemotePart
from carya.serve.app import create_app
from carya.serve.settings import ServerSettings
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

from serving import Client, Server, run_carya, save_model, start_server
from topics import corpus

TEXTS = corpus(seed=5)[0][:30]
N_PARTS = 2


class Cluster:
    """The servers of a split model: two with part 0, one with part 1, and one with the top of the tree."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.parts = [self.start(f"part-{number}", name) for number, name in enumerate(("a", "b"))]
        self.replica = self.start("part-0", "c")
        urls = [f"{self.parts[0].url('')},{self.replica.url('')}", self.parts[1].url("")]
        options = [option for url in urls for option in ("--part", url)]
        self.top = self.start("top", "top", *options, "--part-timeout", "2", "--threads", "4")

    def start(self, folder: str, name: str, *options: str) -> Server:
        (self.folder / name).mkdir(exist_ok=True)
        server = start_server(self.folder / name, str(self.folder / "parts" / folder), *options)
        return self._stack.enter_context(server)

    def post(self, path: str, message: Any) -> httpx.Response:
        return httpx.post(self.top.url(path), json=message, timeout=30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    save_model(folder / "model")
    run = run_carya("split", str(folder / "model"), str(folder / "parts"), "--parts", str(N_PARTS), "--json")
    assert run.returncode == 0, run.stderr
    assert [Path(part["folder"]).name for part in json.loads(run.stdout)["parts"]] == ["part-0", "part-1"]
    with ExitStack() as stack:
        yield Cluster(folder, stack)


@pytest.fixture(scope="module")
def complete(cluster: Cluster) -> Iterator[Client]:
    """A client for a server with the unsplit model."""
    with Client(create_app({"top": cluster.folder / "model"}, ServerSettings(log_level="error"))) as client:
        yield client


def without_version(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return {key: value for key, value in response.json().items() if key != "version"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 50, "beam_width": 30},
        {"top_k": 2, "beam_width": 1},
        {"min_score": 0.2},
        {"labels": {"allowed": ["Cooking", "chess/queen", "chess/king"]}, "top_k": 2},
        {"labels": {"prefix": "sailing/"}},
        {"labels": {"excluded": ["chess", "cooking"]}, "top_k": 3},
    ],
    ids=str,
)
def test_responses_are_identical_to_those_of_the_complete_model(
    cluster: Cluster, complete: Client, options: dict[str, Any]
) -> None:
    for request in ({"text": TEXTS[0]}, {"texts": TEXTS}):
        expected = without_version(complete.post("/v1/suggest", request | options))
        assert without_version(cluster.post("/v1/suggest", request | options)) == expected
    assert any(result["suggestions"] for result in expected["results"])


def test_unsupported_routes_have_clear_errors(cluster: Cluster) -> None:
    response = cluster.post("/v1/explain", {"text": TEXTS[0]})
    assert response.status_code == 400
    assert "cannot be explained" in response.json()["detail"]
    assert httpx.get(cluster.top.url("/v1/model")).json()["kind"] == "RoutedModel"
    part = cluster.parts[1]
    response = httpx.post(part.url("/v1/suggest"), json={"text": TEXTS[0]})
    assert response.status_code == 404
    assert "top of the model" in response.json()["detail"]
    assert httpx.get(cluster.top.url("/v1/part")).status_code == 404
    assert httpx.get(part.url("/v1/part")).json()["part"] == 1
    response = httpx.post(part.url("/v1/part/rank"), content=b"x", headers={"Content-Type": "application/octet-stream"})
    assert response.status_code == 400
    for route in ("/readyz", "/metrics", "/v1/projects", "/openapi.json"):
        assert httpx.get(part.url(route)).status_code == 200, route


def test_tokens_protect_parts_and_are_sent_by_the_top(cluster: Cluster, tmp_path: Path) -> None:
    folder = cluster.folder / "parts" / "part-1"
    with Client(create_app({"p": folder}, ServerSettings(log_level="error", tokens=("secret",)))) as client:
        assert client.get("/v1/part").status_code == 401
        headers = {"authorization": "Bearer secret"}
        assert client.get("/v1/part", headers=headers).json()["n_labels"] > 0
        body = {"content": b"\xff", "headers": headers | {"content-type": "application/octet-stream"}}
        assert client.request("POST", "/v1/part/rank", **body).status_code == 400
        body["headers"] = headers | {"content-type": "application/json"}
        assert client.request("POST", "/v1/part/rank", **body).status_code == 415
        operation = client.get("/openapi.json").json()["paths"]["/v1/part/rank"]["post"]
        assert {"400", "401", "404", "409", "413", "415"} <= set(operation["responses"])
        lines = client.get("/metrics", headers=headers).text
        assert 'carya_requests_total{route="/v1/part/rank",status="400"} 1' in lines
    part = RemotePart("part-1", ["http://127.0.0.1:9"], token="secret")
    assert part.replicas[0]._headers["Authorization"] == "Bearer secret"


def test_parts_of_another_split_are_rejected(cluster: Cluster) -> None:
    routed = carya.load(cluster.folder / "parts" / "top").model_
    urls = [cluster.parts[number].url("") for number in range(2)]
    with pytest.raises(PartUnavailableError, match=r"has part 1 of the split .*, not part 0 of"):
        routed.connect(urls[::-1])
    with pytest.raises(PartUnavailableError, match="status 409 This is part"):
        routed.connect(urls[::-1], check=False).predict(np.ones((1, routed.n_features_in_)))


def test_connections_are_reused(cluster: Cluster) -> None:
    def connections() -> int:
        return sum(event["path"] == "/v1/part/rank" for event in cluster.parts[1].events("request"))

    before = connections()
    for text in TEXTS[:10]:
        without_version(cluster.post("/v1/suggest", {"text": text}))
    ranked = carya.load(cluster.folder / "parts" / "top")
    assert connections() > before
    urls = [[cluster.parts[0].url("")], [cluster.parts[1].url("")]]
    ranked.model_.connect(urls)
    for text in TEXTS[:10]:
        ranked.suggest(text)
    parts = ranked.model_._check_fitted().parts
    assert [len(replica._idle) for part in parts for replica in part.replicas] == [1, 1]


def test_requests_use_another_replica_and_name_unavailable_parts(cluster: Cluster, complete: Client) -> None:
    request = {"texts": TEXTS}
    expected = without_version(complete.post("/v1/suggest", request))
    assert httpx.get(cluster.top.url("/readyz")).status_code == 200
    # One replica does not respond.
    os.kill(cluster.parts[0].process.pid, signal.SIGSTOP)
    try:
        for _ in range(2):
            assert without_version(cluster.post("/v1/suggest", request)) == expected
    finally:
        os.kill(cluster.parts[0].process.pid, signal.SIGCONT)
    # One replica has exited, and its connections are closed.
    cluster.replica.process.terminate()
    cluster.replica.process.wait()
    for _ in range(4):
        assert without_version(cluster.post("/v1/suggest", request)) == expected
    assert httpx.get(cluster.top.url("/readyz"), timeout=30).status_code == 200
    # No replica of part 1 responds.
    os.kill(cluster.parts[1].process.pid, signal.SIGSTOP)
    try:
        response = cluster.post("/v1/suggest", request)
        assert response.status_code == 503
        assert response.json()["detail"] == "part-1 of the model is not available."
        assert response.headers["retry-after"]
        event = cluster.top.wait_for("part unavailable")
        assert event["part"] == "part-1"
        assert "timed out" in event["problems"][0]
        response = httpx.get(cluster.top.url("/readyz"), timeout=30)
        assert response.status_code == 503
        assert "part-1" in response.json()["detail"]
        assert httpx.get(cluster.top.url("/healthz")).status_code == 200
    finally:
        os.kill(cluster.parts[1].process.pid, signal.SIGCONT)
    assert without_version(cluster.post("/v1/suggest", request)) == expected
    assert httpx.get(cluster.top.url("/readyz"), timeout=30).status_code == 200


def test_addresses_are_checked_when_the_server_starts(cluster: Cluster, tmp_path: Path) -> None:
    top, model = cluster.folder / "parts" / "top", cluster.folder / "model"
    for folder, parts, message in (
        (top, ("http://a:1",), "The model has 2 parts, but 1 were given"),
        (model, ("http://a:1",), "exactly one split model"),
        (top, ("ftp://a:1", "http://b:1"), "must be a URL such as"),
    ):
        with pytest.raises(InputError, match=message):
            create_app({"top": folder}, ServerSettings(parts=parts))
    with pytest.raises(ParameterError, match="one string of URLs per part"):
        create_app({"top": top}, ServerSettings(parts=()))
    addresses = tmp_path / "parts.txt"
    addresses.write_text("http://127.0.0.1:1\n\n")
    run = run_carya("serve", str(top), "--parts-file", str(addresses), "--port", "0")
    assert run.returncode == 2
    assert "has 2 parts, but 1 were given" in run.stderr
    addresses.write_text("\n")
    with pytest.raises(InputError, match="contains no URLs"):
        read_lines(addresses, "URLs")


def test_parts_next_to_the_top_are_used_by_default(cluster: Cluster, complete: Client) -> None:
    app = create_app({"top": cluster.folder / "parts" / "top"}, ServerSettings(log_level="error"))
    with Client(app) as client:
        request = {"texts": TEXTS[:5]}
        assert without_version(client.post("/v1/suggest", request)) == without_version(
            complete.post("/v1/suggest", request)
        )
        assert client.get("/readyz").status_code == 200


def save_large_model(folder: Path, n_labels: int, n_features: int) -> None:
    """Save a model whose size is dominated by the dense weights of its labels."""
    generator = np.random.default_rng(0)
    tree = LabelTree([np.zeros(20, np.int32), np.arange(n_labels, dtype=np.int32) % 20])
    layers = []
    for level in (1, 2):
        order, chunks = tree.children(level)
        row = generator.standard_normal((1, n_features)).astype(np.float32)
        dense = np.repeat(row, order.size, axis=0) + generator.standard_normal((order.size, 1)).astype(np.float32)
        weights = Weights.empty(0, order.size, chunks)
        biases = np.zeros(order.size, np.float32)
        layers.append(Layer(weights, dense, biases, chunks, order, Transform.from_name("sigmoid")))
    carya.XRLinear.from_trained_tree(TrainedTree(tree, layers, (0, n_features))).save(folder)


# Split a model, and limit the additional memory to half the size of the model.
SPLIT = """
import resource, sys, carya
from carya.models.routed import split
from carya.core.storage import size_on_disk
data = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
limit = data + size_on_disk(sys.argv[1]) // 2
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
carya.split_model(sys.argv[1], sys.argv[2], n_parts=2, n_jobs=1)
try:
    bytearray(size_on_disk(sys.argv[1]))
except MemoryError:
    print("limited")
"""

# Rank labels with the top of a split model, and print the labels and the peak memory of this process in bytes.
RANK = """
import sys, carya, numpy as np
model = carya.load_routed(sys.argv[1], sys.argv[2:])
S = model.predict(np.load(sys.argv[1] + "/../queries.npy"), top_k=3)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(*S.indices, int(peak) << 10)
"""


def test_the_top_of_a_model_needs_less_memory_than_the_model(tmp_path: Path) -> None:
    save_large_model(tmp_path / "model", n_labels=20_000, n_features=2_500)
    size = (tmp_path / "model" / "arrays.bin").stat().st_size
    assert size > 190e6

    def run(code: str, *arguments: str) -> list[str]:
        process = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        return process.stdout.split()

    assert run(SPLIT, str(tmp_path / "model"), str(tmp_path / "parts")) == ["limited"]
    queries = np.random.default_rng(1).standard_normal((4, 2_500)).astype(np.float32)
    np.save(tmp_path / "parts" / "queries.npy", queries)
    with ExitStack() as stack:
        urls = []
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            folder = str(tmp_path / "parts" / f"part-{number}")
            urls.append(stack.enter_context(start_server(tmp_path / str(number), folder)).url(""))
        *labels, peak = run(RANK, str(tmp_path / "parts" / "top"), *urls)
    expected = carya.load(tmp_path / "model").predict(queries, top_k=3)
    assert [int(label) for label in labels] == expected.indices.tolist()
    assert int(peak) < 0.75 * size
