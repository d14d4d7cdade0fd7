"""Fuzz targets in Python: functions that read arbitrary bytes and raise an error only if Carya has a defect.

Each target ignores the exceptions in carya.errors, which Carya raises for invalid input. `tools/fuzz` runs the targets
with atheris, which selects inputs by code coverage, and tests/attacks/test_fuzz_targets.py runs them with random
inputs.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gzip
import itertools
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import carya
from carya import _core
from carya.data import Corpus, open_data
from carya.errors import CaryaError
from carya.models.routed.messages import PartRequest, PartResponse
from carya.tuning.recipe import Recipe
from fake_transport import FakeTransport

from format_files import FORMAT_FILES
from golden_models import ANSWERS, GOLDEN

MAX_EDITS = 6
#: Values that replace parts of JSON documents.
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30,
    0.5, -0.0, 1e-320, 1e308, float("inf"), float("nan"), "", "a", "A" * 300, "\0", "\ud800", "..", "/etc/passwd",
    "xr-linear", "text-ranker", "ensemble", "noop", "int8", "float32", "uint8", [], {}, [[]], [None], [0, -1],
    ["a", "b"], {"a": 1}, {"class": "XRLinear", "parameters": {}},
]  # fmt: skip


class Choices:
    """A sequence of decisions derived from the bytes of a fuzzer, which are padded with zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def integer(self, limit: int) -> int:
        """Return an integer from 0 to `limit` - 1."""
        size = 1 if limit <= 256 else 4
        taken = self._data[self._position : self._position + size]
        self._position += size
        return int.from_bytes(taken, "little") % max(limit, 1)

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        return self._data[self._position :]


def edit_json(document: Any, choices: Choices) -> Any:
    """Return a copy of a JSON document in which up to MAX_EDITS values are replaced, removed, repeated or moved."""
    document = copy.deepcopy(document)
    for _ in range(choices.integer(MAX_EDITS + 1)):
        places = list(_places(document))
        if not places:
            break
        container, key = places[choices.integer(len(places))]
        match choices.integer(6):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.insert(key, copy.deepcopy(container[key]))
            case 1:
                container[f"{key}2"] = copy.deepcopy(container[key])
            case 2 if isinstance(container[key], int):
                container[key] += 1 if choices.integer(2) else -1
            case 3:
                other, other_key = places[choices.integer(len(places))]
                container[key] = copy.deepcopy(other.get(other_key) if isinstance(other, dict) else other[other_key:])
            case _:
                container[key] = copy.deepcopy(VALUES[choices.integer(len(VALUES))])
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the container and the key of every value in a document."""
    if isinstance(document, dict | list):
        keys = list(document) if isinstance(document, dict) else range(len(document))
        for key in keys:
            yield document, key
            yield from _places(document[key])


def encode_json(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


@functools.cache
def work_folder() -> Path:
    """Return a temporary folder, in memory if possible, that is removed when the process exits."""
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    holder = tempfile.TemporaryDirectory(prefix="carya-fuzz-", dir=parent)
    _holders.append(holder)
    return Path(holder.name)


_holders: list[Any] = []


# Saved models


@functools.cache
def saved_models() -> list[tuple[str, dict[str, Any], bytes]]:
    """Return the name, the manifest and the arrays of saved models of several kinds."""
    models = []
    for name in sorted(ANSWERS):
        if name != "xr-transformer":
            manifest = json.loads((GOLDEN / name / "manifest.json").read_text())
            models.append((name, manifest, (GOLDEN / name / "arrays.bin").read_bytes()))
    return models


def seal(manifest: dict[str, Any], arrays: bytes) -> tuple[bytes, bytes]:
    """Return the manifest and the arrays with correct checksums, if the manifest has a valid entry for checksums."""
    checksums = manifest.get("checksums")
    offset = checksums.get("offset") if isinstance(checksums, dict) else None
    if isinstance(checksums, dict) and type(offset) is int and 0 <= offset <= len(arrays):
        sums = _core.block_checksums(np.frombuffer(arrays[:offset], np.uint8)).tobytes()
        arrays = arrays[:offset] + sums + arrays[offset + len(sums) :]
        checksums["checksum"] = f"{_core.xxh64(np.frombuffer(sums, np.uint8)):016x}"
    manifest.pop("checksum", None)
    text = json.dumps(manifest, indent=1).removesuffix("\n}") + ",\n"
    digits = f"{_core.xxh64(np.frombuffer(text.encode(), np.uint8)):016x}"
    return f'{text} "checksum": "{digits}"\n}}\n'.encode(), arrays


def edit_arrays(arrays: bytes, manifest: dict[str, Any], choices: Choices) -> bytes:
    """Return a copy of arrays.bin in which up to 3 values of the arrays are replaced."""
    edited = bytearray(arrays)
    described = [entry for entry in manifest["arrays"] if all(entry["shape"])]
    for _ in range(choices.integer(4)):
        entry = described[choices.integer(len(described))]
        values = np.frombuffer(edited, entry["dtype"], int(np.prod(entry["shape"])), entry["offset"])
        hostile = [0, 1, -1, 2**31 - 1, values.size, 7, 255, int(choices.integer(1 << 16))]
        value = np.array([hostile[choices.integer(len(hostile))]]).astype(values.dtype)
        values[choices.integer(values.size)] = value[0]
    return bytes(edited)


def load_model(data: bytes) -> None:
    """Load and use a model with a mutated manifest and mutated arrays."""
    choices = Choices(data)
    models = saved_models()
    name, manifest, arrays = models[choices.integer(len(models))]
    arrays = edit_arrays(arrays, manifest, choices)
    text, arrays = seal(edit_json(manifest, choices), arrays)
    folder = work_folder() / "model"
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_bytes(text)
    (folder / "arrays.bin").write_bytes(arrays)
    with contextlib.suppress(CaryaError):
        use_model(carya.load(folder), ANSWERS[name])


def use_model(model: Any, answers: dict[str, Any]) -> None:
    """Rank and explain."""
    if "texts" in answers:
        suggestions = model.suggest_all([*answers["texts"][:2], ""], top_k=3)
        if suggestions[0] and hasattr(model, "explain"):
            model.explain(answers["texts"][0], suggestions[0][0].label)
    else:
        sparse_features, dense_features = model.n_features_in_, 0
        if not isinstance(sparse_features, int):
            sparse_features, dense_features = sparse_features
        if sparse_features > 10**6 or dense_features > 10**6:
            return
        queries: Any = sp.csr_array(np.ones((2, sparse_features), np.float32))
        if dense_features:
            dense = np.ones((2, dense_features), np.float32)
            queries = (queries, dense) if sparse_features else dense
        model.predict(queries, top_k=3)


# Requests to the server


@functools.cache
def server_state() -> Any:
    from carya.serve.app import create_state
    from carya.serve.settings import ServerSettings

    settings = ServerSettings(log_level="error", max_texts=8, reload_interval=0.0, threads=1)
    return create_state({"text": GOLDEN / "text-xr-linear"}, settings)


@functools.cache
def event_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@functools.cache
def application() -> Any:
    from carya.serve.app import application as create_application

    return create_application(server_state())


BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/suggest", {"text": "a small planet", "top_k": 3, "beam_width": 5, "min_score": 0.1, "model": "text"}),
    ("/v1/suggest", {"texts": ["a", "b"], "labels": {"allowed": ["a"], "prefix": "b", "excluded": ["c"]}}),
    ("/v1/suggest", {"text": "a small planet", "open_vocabulary": True}),
    ("/v1/explain", {"text": "a small planet", "label": "a", "model": "text", "tree": 0}),
    ("/v1/explore/text", {"text": "a small planet", "beam_width": 3}),
    ("/v1/explore/explain", {"text": "a small planet", "label": "a"}),
    ("/v1/explore/compare", {"text": "a small planet", "top_k": 3}),
    ("/v1/projects/text/suggest-batch", {"documents": [{"text": "a", "document_id": "1"}]}),
    ("/v1/part/rank", {}),
]
QUERIES = [
    "/v1/model?model=", "/v1/labels?prefix=a&limit=", "/v1/explore/models?", "/v1/explore/tree?node=0&level=",
    "/v1/explore/tree?level=1&node=", "/v1/explore/tree?tree=", "/v1/explore/label?label=", "/v1/explore/labels?model=",
    "/v1/projects/", "/v1/projects?x=", "/v1/explore/tree?begin=", "/v1/vocabs?", "/metrics?", "/openapi.json?",
]  # fmt: skip


def answer_request(data: bytes) -> None:
    """Send a request to the application; any response except 500 is accepted."""
    choices = Choices(data)
    kind = choices.integer(4)
    path, query, method = "/v1/suggest", b"", "POST"
    content_type = b"application/json"
    if kind == 0:
        path = BODIES[choices.integer(len(BODIES))][0]
        body = choices.rest()
    elif kind == 1:
        path, message = BODIES[choices.integer(len(BODIES))]
        body = encode_json(edit_json(message, choices))
    elif kind == 2:
        path, content_type = "/v1/projects/text/suggest", b"application/x-www-form-urlencoded"
        body = choices.rest()
    else:
        method, body = "GET", b""
        path, _, begin = QUERIES[choices.integer(len(QUERIES))].partition("?")
        rest = choices.rest()[:200]
        query = begin.encode() + rest.replace(b" ", b"+").replace(b"#", b"")
        if path.endswith("/"):
            path, query = path + rest.decode("latin-1"), b""
    headers = [(b"host", b"localhost"), (b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"), "query_string": query, "root_path": "", "scheme": "http",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    received = iter([{"type": "http.request", "body": body, "more_body": False}])
    statuses: list[int] = []

    async def receive() -> Any:
        return next(received, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    event_loop().run_until_complete(application()(scope, receive, send))
    assert len(statuses) == 1
    assert 200 <= statuses[0] < 500, f"status {statuses[0]}"


@functools.cache
def connection_setup() -> tuple[Any, Any]:
    import uvicorn
    from uvicorn.server import ServerState

    from carya.serve.http.connections import connection_class

    state = server_state()
    protocol = connection_class(state.settings, state.limits, state.metrics)
    config = uvicorn.Config(application(), http=protocol, ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    return config, lambda: protocol(config, ServerState(), {}, _loop=event_loop())


def parse_connection(data: bytes) -> None:
    """Send bytes to a connection in two parts; the server must respond with valid responses or close it."""
    split = data[0] * len(data) // 256 if data else 0
    transport = FakeTransport()

    async def send() -> None:
        protocol = connection_setup()[1]()
        protocol.connection_made(transport)
        for part in (data[1:split], data[max(split, 1) :]):
            if part and not transport.closing:
                protocol.data_received(part)
                while protocol.tasks:
                    done, _ = await asyncio.wait(protocol.tasks, timeout=0.02)
                    if not done:
                        break  # the request is incomplete
        protocol.connection_lost(None)
        if protocol.tasks:
            await asyncio.wait(protocol.tasks, timeout=20)

    event_loop().run_until_complete(send())
    assert not transport.written or transport.written.startswith(b"HTTP/1.1 ")
    assert not transport.written.startswith(b"HTTP/1.1 5"), transport.written[:300]


REQUESTS = [
    b"POST /v1/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
    b'{"text": "a"}',
    b"GET /v1/labels?prefix=a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"POST /v1/suggest HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET /healthz HTTP/1.0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n",
]


# Data files


@functools.cache
def format_folders() -> list[tuple[str, Path, Path]]:
    """Write all example files; return the name, the folder and the file to replace for each example."""
    folders = []
    for number, (name, file) in enumerate(FORMAT_FILES.items()):
        folder = work_folder() / f"format-{number}"
        folder.mkdir()
        file.write(folder)
        path = folder / file.path
        if path.is_dir():
            path = min(entry for entry in path.rglob("*") if entry.is_file())
        folders.append((name, folder, path))
    return folders


def file_content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def read_data(data: bytes) -> None:
    """Read a data file with arbitrary content in one of the formats."""
    folders = format_folders()
    name, folder, path = folders[data[0] % len(folders) if data else 0]
    file = FORMAT_FILES[name]
    options = {key: folder / value if key == "labels" else value for key, value in file.options.items()}
    original = path.read_bytes()
    content = data[1:]
    path.write_bytes(gzip.compress(content, 1, mtime=0) if path.suffix == ".gz" else content)
    try:
        opened = open_data(folder / file.path, **(options | {"format": file.format}))
        if isinstance(opened, Corpus):
            for example in itertools.islice(opened, 1000):
                assert isinstance(example.text, str)
    except CaryaError:
        pass
    finally:
        path.write_bytes(original)


# Recipes, messages between servers, and models from other libraries


RECIPE = Recipe(
    carya.TextRanker(carya.Tfidf(min_df=1, ngram_range=(1, 2)), carya.Ensemble(carya.XRLinear(C=0.5), n_trees=2)),
    {"P@1": 0.5},
).to_dict()


def read_recipe(data: bytes) -> None:
    """Read a mutated recipe, or arbitrary bytes, as a recipe."""
    choices = Choices(data)
    content = choices.rest() if choices.integer(4) == 0 else encode_json(edit_json(RECIPE, choices))
    path = work_folder() / "recipe.json"
    path.write_bytes(content)
    try:
        recipe = Recipe.load(path)
        recipe.build()
        recipe.to_dict()
    except CaryaError:
        pass


def part_message(header: dict[str, Any], content: bytes) -> bytes:
    text = encode_json(header)
    return len(text).to_bytes(8, "little") + text + content


PART_HEADER = {
    "split": "s", "part": 0, "top_k": 2,
    "arrays": [
        ["indptr", "int64", [2]], ["features", "int32", [1]], ["values", "float32", [1]], ["dense", "float32", [1, 0]],
        ["starts.indptr", "int64", [2]], ["starts.clusters", "int32", [1]], ["starts.scores", "float32", [1]],
    ],
}  # fmt: skip
PART_CONTENT = (
    np.array([0, 1], np.int64).tobytes() + bytes(4) + bytes(4) + np.array([0, 1], np.int64).tobytes() + bytes(8)
)


def read_part_message(data: bytes) -> None:
    """Decode a mutated message between servers, or arbitrary bytes."""
    choices = Choices(data)
    if choices.integer(3) == 0:
        message = choices.rest()
    else:
        message = part_message(edit_json(PART_HEADER, choices), choices.rest() or PART_CONTENT)
    for decode in (lambda: PartRequest.decode(message, (5, 0), 3, 7), lambda: PartResponse.decode(message)):
        with contextlib.suppress(CaryaError):
            decode()


PECOS = GOLDEN.parent / "pecos" / "model"


def read_pecos(data: bytes) -> None:
    """Import a libpecos model in which one JSON file is edited or replaced."""
    from carya.models.xr_linear.import_pecos import import_pecos

    choices = Choices(data)
    folder = work_folder() / "pecos"
    if not folder.exists():
        shutil.copytree(PECOS, folder)
    files = sorted(folder.rglob("*.json"))
    path = files[choices.integer(len(files))]
    original = path.read_bytes()
    raw = choices.integer(4) == 0
    path.write_bytes(choices.rest() if raw else encode_json(edit_json(json.loads(original), choices)))
    try:
        import_pecos(folder)
    except CaryaError:
        pass
    finally:
        path.write_bytes(original)


@dataclass(frozen=True)
class Target:
    """A fuzz target.

    Attributes
    ----------
    run : callable
        Processes one input.
    seeds : callable
        Returns inputs with which a fuzzer starts.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def _edits() -> list[bytes]:
    """Return seeds for targets whose input is a sequence of decisions."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, 40, np.uint8).tobytes() for _ in range(60)]


def _requests() -> list[bytes]:
    return [bytes([0, number]) + encode_json(message) for number, (_, message) in enumerate(BODIES)] + _edits()


TARGETS: dict[str, Target] = {
    "model": Target(load_model, _edits),
    "request": Target(answer_request, _requests),
    "connection": Target(parse_connection, lambda: [bytes([128]) + request for request in REQUESTS]),
    "data": Target(
        read_data,
        lambda: [bytes([number]) + file_content(path) for number, (_, _, path) in enumerate(format_folders())],
    ),
    "recipe": Target(read_recipe, lambda: [bytes([0]) + encode_json(RECIPE), *_edits()]),
    "part-message": Target(
        read_part_message, lambda: [bytes([0]) + part_message(PART_HEADER, PART_CONTENT), *_edits()]
    ),
    "pecos": Target(read_pecos, _edits),
}


def run_target(name: str, data: bytes) -> None:
    """Process one input; warnings are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        TARGETS[name].run(data)
