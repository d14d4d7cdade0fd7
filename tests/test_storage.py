"""Tests for the model format: reading, writing, and rejecting damaged or forged folders."""

from __future__ import annotations

import copy
import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya import _core
from carya.core import storage
from carya.core.matrices import Csr
from carya.data import SyntheticData
from carya.errors import ModelFormatError, SaveError
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

from forging import use_forged
from matrix_helpers import ranking_of

SAVED = storage.SavedModel(
    "toy",
    {"alpha": 0.5, "names": ["é", "b"]},
    {"columns": 3},
    {
        "a": np.arange(6, dtype=np.int32).reshape(2, 3),
        "b": np.array([1.5, -2.5], np.float32),
        "none": np.zeros((0, 4), np.float32),
        "long": np.array([2**40], np.int64),
    },
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    storage.save(tmp_path / "toy", SAVED)
    return tmp_path / "toy"


@pytest.mark.parametrize(
    ("text", "checksum"),
    [
        (b"", "ef46db3751d8e999"),
        (b"a", "d24ec4f1a98c6e5b"),
        (b"as", "1c330fb2d66be179"),
        (b"asd", "631c37ce72a97393"),
        (b"asdf", "415872f599cea71e"),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", "02a2e85470d6fd96"),
    ],
)
def test_xxh64_gives_the_published_test_values(text: bytes, checksum: str) -> None:
    assert f"{_core.xxh64(np.frombuffer(text, np.uint8)):016x}" == checksum


def test_saved_data_is_restored(folder: Path) -> None:
    loaded = storage.load(folder)
    assert (loaded.kind, loaded.parameters, loaded.shape) == (SAVED.kind, SAVED.parameters, SAVED.shape)
    assert loaded.arrays.keys() == SAVED.arrays.keys()
    for name, array in SAVED.arrays.items():
        assert loaded.arrays[name].dtype == array.dtype
        assert np.array_equal(loaded.arrays[name], array)
        assert not loaded.arrays[name].flags.writeable
        assert loaded.arrays[name].size == 0 or loaded.arrays[name].ctypes.data % 64 == 0


def test_files_follow_the_specification(folder: Path) -> None:
    """Read a folder as specified in docs/format.md, using only the standard library and NumPy."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == 2
    assert manifest["written_by"] == f"carya {carya.__version__}"
    raw = (folder / "arrays.bin").read_bytes()
    [a, b, none, long] = manifest["arrays"]
    assert (a["name"], a["dtype"], a["shape"], a["offset"]) == ("a", "int32", [2, 3], 0)
    assert raw[:24] == np.arange(6, dtype="<i4").tobytes()
    assert (b["offset"], raw[64:72]) == (64, np.array([1.5, -2.5], "<f4").tobytes())
    assert raw[24:64] == bytes(40)
    assert (none["shape"], long["offset"]) == ([0, 4], 128)
    sums = manifest["checksums"]
    assert (sums["offset"], sums["shape"], sums["dtype"], len(raw)) == (192, [1], "uint64", 200)
    assert raw[192:] == _core.xxh64(np.frombuffer(raw[:192], np.uint8)).to_bytes(8, "little")
    assert sums["checksum"] == f"{_core.xxh64(np.frombuffer(raw[192:], np.uint8)):016x}"
    text = (folder / "manifest.json").read_bytes()
    body = text[: text.index(b' "checksum": "' + manifest["checksum"].encode())]
    assert manifest["checksum"] == f"{_core.xxh64(np.frombuffer(body, np.uint8)):016x}"


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object], *, valid_checksum: bool = True) -> None:
    """Change the manifest and, by default, update its checksum."""
    file = folder / "manifest.json"
    before = file.read_bytes()
    manifest = json.loads(before)
    if valid_checksum:
        del manifest["checksum"]
    change(manifest)
    file.write_bytes(storage._seal(manifest) if valid_checksum else json.dumps(manifest).encode())
    assert file.read_bytes() != before


def truncate(folder: Path) -> None:
    file = folder / "arrays.bin"
    file.write_bytes(file.read_bytes()[:-1])


def append(folder: Path) -> None:
    with (folder / "arrays.bin").open("ab") as file:
        file.write(b"x")


def flip(folder: Path, name: str, position: int) -> None:
    """Flip one bit in a file."""
    file = folder / name
    raw = bytearray(file.read_bytes())
    raw[position] ^= 4
    file.write_bytes(bytes(raw))


FILE_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "is not a Carya model"),
    "no arrays": (lambda folder: (folder / "arrays.bin").unlink(), "arrays.bin cannot be read"),
    "empty arrays": (lambda folder: (folder / "arrays.bin").write_bytes(b""), "arrays.bin cannot be read"),
    "truncated arrays": (truncate, "truncated"),
    "longer arrays": (append, "has 201 bytes, but the manifest describes 200"),
    "flipped bit": (
        lambda folder: flip(folder, "arrays.bin", 70),
        "arrays.bin is damaged: .* block at byte 0 does not",
    ),
    "flipped checksum": (lambda folder: flip(folder, "arrays.bin", 195), "checksum of its checksums does not match"),
}

MANIFEST_TEXTS: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"{", "is not valid JSON: expected a member name at byte 1"),
    "not UTF-8": (b"\xff\xfe", "is not valid JSON: expected a value at byte 0"),
    "deep JSON": (b"[" * 100_000, "is not valid JSON"),
    "number": (b"1", "not the manifest of a Carya model"),
    "list": (b"[1]", "not the manifest of a Carya model"),
    "unterminated string": (b'{"a', "unterminated string at byte"),
    "no colon": (b'{"a" 1}', "expected ':' at byte"),
    "two values": (b"{} {}", "unexpected text after the value"),
}

MANIFEST_EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no format": (lambda manifest: manifest.pop("format"), "not the manifest of a Carya model"),
    "newer format": (lambda manifest: manifest.update(format=3), "has format 3, but .* formats up to 2. Upgrade"),
    "older format": (
        lambda manifest: manifest.update(format=1),
        "has format 1, .*Train the model again .* format 2",
    ),
    "no kind": (lambda manifest: manifest.pop("kind"), "has no valid entry 'kind'"),
    "huge shape": (lambda manifest: manifest["arrays"][0].update(shape=[2**40, 2**40]), "invalid offset or shape"),
    "negative shape": (
        lambda manifest: manifest["arrays"][0].update(shape=[-1]),
        "unknown data type or an invalid shape",
    ),
    "shape of strings": (
        lambda manifest: manifest["arrays"][0].update(shape=["2"]),
        "unknown data type or an invalid shape",
    ),
    "negative offset": (lambda manifest: manifest["arrays"][0].update(offset=-64), "invalid offset or shape"),
    "overlap": (lambda manifest: manifest["arrays"][1].update(offset=0), "invalid offset or shape"),
    "misaligned": (lambda manifest: manifest["arrays"][1].update(offset=65), "invalid offset or shape"),
    "dtype object": (lambda manifest: manifest["arrays"][0].update(dtype="object"), "unknown data type"),
    "no array name": (lambda manifest: manifest["arrays"][0].pop("name"), "invalid array description"),
    "array is a number": (lambda manifest: manifest["arrays"].append(3), "invalid array description"),
    "no checksums": (lambda manifest: manifest.pop("checksums"), "has no valid entry 'checksums'"),
    "fewer checksums": (lambda manifest: manifest["checksums"].update(shape=[0]), "but the manifest describes 192"),
    "checksums of int64": (lambda manifest: manifest["checksums"].update(dtype="int64"), "invalid array description"),
}


@pytest.mark.parametrize("name", FILE_DAMAGE)
def test_damaged_files_are_rejected(folder: Path, name: str) -> None:
    damage, message = FILE_DAMAGE[name]
    damage(folder)
    with pytest.raises(ModelFormatError, match=message):
        storage.load(folder)


@pytest.mark.parametrize("name", MANIFEST_TEXTS)
def test_invalid_manifests_are_rejected(folder: Path, name: str) -> None:
    text, message = MANIFEST_TEXTS[name]
    (folder / "manifest.json").write_bytes(text)
    with pytest.raises(ModelFormatError, match=message):
        storage.load(folder)


@pytest.mark.parametrize("name", MANIFEST_EDITS)
def test_forged_manifests_are_rejected(folder: Path, name: str) -> None:
    change, message = MANIFEST_EDITS[name]
    edit_manifest(folder, change)
    with pytest.raises(ModelFormatError, match=message):
        storage.load(folder)


def test_edited_manifests_without_a_valid_checksum_are_rejected(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["shape"].update(columns=4), valid_checksum=False)
    with pytest.raises(ModelFormatError, match=r"manifest\.json is damaged"):
        storage.load(folder)
    edit_manifest(folder, lambda manifest: manifest.pop("checksum"), valid_checksum=False)
    with pytest.raises(ModelFormatError, match="has no valid entry 'checksum'"):
        storage.load(folder)


def test_every_flipped_byte_is_detected(folder: Path) -> None:
    rejected = 0
    for name in ("arrays.bin", "manifest.json"):
        size = (folder / name).stat().st_size
        for position in range(0, size, 3 if name == "manifest.json" else 1):
            flip(folder, name, position)
            with pytest.raises(ModelFormatError):
                storage.load(folder)
            rejected += 1
            flip(folder, name, position)
    assert rejected > 400  # all 200 bytes of arrays.bin and every third byte of the manifest
    storage.load(folder)


def test_large_models_are_verified_on_first_use(tmp_path: Path) -> None:
    """Loading a model reads little data; weights are verified when they are searched, unpacked, saved or copied."""
    labels, width = 8000, 2200  # 70 MB of weights
    rng = np.random.default_rng(0)
    sparse = np.zeros((3, labels), np.float32)
    sparse[0, :5], sparse[1] = 1, 2  # creates a small block and a large block
    layer = Layer(
        weights=Weights.pack(Csr.of_scipy(sp.csr_array(sparse)), np.array([0, labels]), "int8"),
        dense=rng.standard_normal((labels, width), np.float32),
        biases=np.zeros(labels, np.float32),
        chunks=np.array([0, labels]),
        order=np.arange(labels, dtype=np.int32),
        transform=Transform.from_name("noop"),
    )
    tree = carya.LabelTree.flat(labels)
    model = carya.XRLinear.from_trained_tree(TrainedTree(tree, [layer], (3, width)))
    model.save(tmp_path / "model")
    query = (sp.csr_array((1, 3)), rng.standard_normal((1, width)))
    assert carya.load(tmp_path / "model").rank(query)[0].tolist() == model.rank(query)[0].tolist()
    flip(tmp_path / "model", "arrays.bin", 9_000_000)
    damaged = carya.load(tmp_path / "model")
    for use in (
        lambda: damaged.rank(query),
        lambda: damaged.predict(query),
        lambda: damaged.predict_selected(query, np.ones((1, labels))),
        damaged.layers_[0].matrix,
        lambda: damaged.save(tmp_path / "copy"),
        lambda: copy.deepcopy(damaged),
    ):
        with pytest.raises(ModelFormatError, match="damaged: the checksum of the block at byte 8978432"):
            use()
    assert not (tmp_path / "copy").exists()


def test_damage_affects_only_queries_that_read_the_damaged_weights(tmp_path: Path) -> None:
    labels, features = 500, 40_000  # every feature has a large block
    values = np.random.default_rng(0).integers(1, 9, labels).astype(np.float32)
    indptr = np.arange(features + 1, dtype=np.int64) * labels
    columns = np.arange(labels, dtype=np.int32)
    matrix = Csr.of(indptr, np.tile(columns, features), np.tile(values, features), labels)
    chunks = np.array([0, labels])
    layer = Layer(
        weights=Weights.pack(matrix, chunks, "float32"),
        dense=np.zeros((labels, 0), np.float32),
        biases=np.zeros(labels, np.float32),
        chunks=chunks,
        order=np.arange(labels, dtype=np.int32),
        transform=Transform.from_name("noop"),
    )
    trained = TrainedTree(carya.LabelTree.flat(labels), [layer], (features, 0))
    carya.XRLinear.from_trained_tree(trained).save(tmp_path / "model")
    flip(tmp_path / "model", "arrays.bin", (tmp_path / "model" / "arrays.bin").stat().st_size // 2)
    damaged = carya.load(tmp_path / "model")
    accepted, rejected = 0, 0
    for feature in range(0, features, 20):
        query = sp.csr_array(([1.0], ([0], [feature])), shape=(1, features))
        try:
            assert damaged.rank(query, top_k=3)[0].size == 3
            accepted += 1
        except ModelFormatError:
            rejected += 1
    assert rejected > 0
    assert accepted > 1900


def test_forged_models_are_rejected_or_remain_usable(saved_model: Path, tmp_path: Path, world: SyntheticData) -> None:
    """Wrong values with valid checksums cause an error or different scores, but never a crash."""

    def use(model: carya.XRLinear) -> None:
        model.predict(world.X[:20])
        model.predict_selected(world.X[:20], world.Y[:20])

    outcomes = use_forged(saved_model, tmp_path, range(60), use)
    assert outcomes.rejected >= 10
    assert outcomes.accepted >= 5


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved.shape.update(sparse_features=1),
        lambda saved: saved.shape.update(sparse_features="many"),
        lambda saved: saved.shape.pop("dense_features"),
        lambda saved: saved.shape.update(transforms=["noop"]),
        lambda saved: saved.shape.update(transforms=["eval(1)"] * 3),
        lambda saved: saved.parameters.update(unknown=1),
        lambda saved: saved.arrays.pop("1.offsets"),
        lambda saved: saved.arrays.update({"1.dense": np.zeros((3, 3), np.float32)}),
        lambda saved: saved.arrays.update({"2.parents": np.zeros(1, np.int32)}),
        lambda saved: saved.arrays.update({"1.weights.starts": np.zeros((4, 32), np.uint16)}),
        lambda saved: saved.arrays.update({"1.weights.starts": np.zeros(32, np.uint16)}),
        lambda saved: saved.arrays.update({"1.weights.starts": saved.arrays["1.weights.starts"].astype(np.int32)}),
        lambda saved: saved.arrays.update({"1.weights.data": np.zeros(4, np.uint8)}),
        lambda saved: saved.arrays.update({"1.weights.scales": np.zeros(0, np.float32)}),
        lambda saved: saved.shape.update(precisions=["int4"] * 3),
        lambda saved: saved.arrays.update({"1.offsets": np.zeros(4, np.int32)}),
    ],
)
def test_inconsistent_parts_are_rejected(
    saved_model: Path, tmp_path: Path, change: Callable[[storage.SavedModel], object]
) -> None:
    saved = storage.load(saved_model)
    change(saved)
    storage.save(tmp_path / "model", saved)
    with pytest.raises(ModelFormatError, match="The parts of the model are inconsistent"):
        carya.load(tmp_path / "model")


def test_file_names_with_a_null_byte_are_rejected(folder: Path, tmp_path: Path) -> None:
    saved = storage.load(folder)
    storage.save(tmp_path / "model", saved, extra=lambda path: (path / "a").touch())
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    del manifest["checksum"]
    manifest["files"][0]["name"] = "a\0"
    (tmp_path / "model" / "manifest.json").write_bytes(storage._seal(manifest))
    with pytest.raises(ModelFormatError, match="invalid file list"):
        storage.load(tmp_path / "model")


def test_the_error_for_a_path_that_cannot_be_written_names_it(model: carya.XRLinear, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match=r"file/model cannot be created, because .*file is not a folder\. Choose a"):
        model.save(tmp_path / "file" / "model")
    with pytest.raises(SaveError, match=r"^The model cannot be written to .*aaa: File name too long\.$"):
        model.save(tmp_path / ("a" * 300))


def test_the_error_for_an_unknown_kind_names_it(folder: Path) -> None:
    with pytest.raises(ModelFormatError, match="Unknown model kind 'toy'"):
        carya.load(folder)


def test_saving_replaces_only_models(model: carya.XRLinear, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er" / "model"
    model.save(folder)
    before = storage.load(folder)
    model.save(folder)
    assert np.array_equal(before.arrays["1.offsets"], model.layers_[0].biases)  # the old file is still memory-mapped
    assert [path.name for path in folder.parent.iterdir()] == ["model"]

    other = tmp_path / "documents"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(SaveError, match=r"contains files that are not part of a Carya model. It was not modified"):
        model.save(other)
    (other / "manifest.json").write_text('{"name": "my web app"}')  # not the manifest of a model
    with pytest.raises(SaveError, match="It was not modified"):
        model.save(other)
    (folder / "notes.txt").write_text("beside a model")
    with pytest.raises(SaveError, match="It was not modified"):
        model.save(folder)
    assert (other / "thesis.txt").read_text() == "years of work"
    with pytest.raises(SaveError, match="exists and is not a folder"):
        model.save(other / "thesis.txt")
    with pytest.raises(OSError, match=r"thesis\.txt"):
        model.save(other / "thesis.txt" / "model")
    empty = tmp_path / "empty"
    empty.mkdir()
    model.save(empty)
    carya.load(empty)


def test_a_failed_save_keeps_the_old_model(
    model: carya.XRLinear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "model")
    before = (tmp_path / "model" / "manifest.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveError, match="No space left on device"):
        model.save(tmp_path / "model")
    assert (tmp_path / "model" / "manifest.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_models_are_replaced_on_systems_without_an_atomic_exchange(
    model: carya.XRLinear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "exchange_paths", lambda a, b: errno.EINVAL)
    model.save(tmp_path / "model")
    before = (tmp_path / "model").stat().st_ino
    model.save(tmp_path / "model")
    carya.load(tmp_path / "model")
    assert (tmp_path / "model").stat().st_ino != before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_read_only_folder_can_be_loaded(saved_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved_model, folder)
    for file in folder.iterdir():
        file.chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert carya.load(folder).tree_.n_labels == 150
    finally:
        folder.chmod(stat.S_IRWXU)


GOLDEN = Path(__file__).parent / "golden" / "format-2"


def sparse_row(query: dict[str, Any], width: int) -> sp.csr_array:
    """Return the sparse features of a stored query."""
    values = np.array(query["values"], np.float32)
    return sp.csr_array((values, np.array(query["indices"]), [0, values.size]), shape=(1, width))


def test_a_stored_model_with_all_kinds_of_blocks_returns_the_stored_rankings() -> None:
    model = carya.load(GOLDEN / "wide")
    for query in json.loads((GOLDEN / "wide.json").read_text()):
        labels, scores = model.rank(sparse_row(query, 250), top_k=4)
        assert labels.tolist() == query["labels"]
        assert scores.tolist() == pytest.approx(query["scores"], rel=1e-4)


def test_stored_and_new_models_with_many_clusters_return_the_stored_rankings(tmp_path: Path) -> None:
    """Earlier versions stored the ids of clusters in all blocks; blocks that are packed now contain bits instead."""
    stored = carya.load(GOLDEN / "many-clusters")
    stored.save(tmp_path / "saved")
    trained = stored._state.trained
    layers = [
        replace(layer, weights=Weights.pack(layer.unpacked(), layer.chunks, "float32")) for layer in trained.layers
    ]
    packed = carya.XRLinear.from_trained_tree(replace(trained, layers=layers))
    packed.save(tmp_path / "packed")
    limits = {"saved": [1024, 1024], "packed": [65536, 65536]}
    expected = json.loads((GOLDEN / "many-clusters.json").read_text())
    queries = sp.csr_array(np.array(expected["queries"], np.float32))
    for name, limit in limits.items():
        assert json.loads((tmp_path / name / "manifest.json").read_text())["shape"]["max_bit_chunks"] == limit
        for beam_width, rankings in zip((2, 600), expected["rankings"], strict=True):
            S = carya.load(tmp_path / name).predict(queries, top_k=5, beam_width=beam_width)
            for row, ranking in enumerate(rankings):
                labels, scores = zip(*ranking, strict=True)
                assert [label for label, _ in ranking_of(S, row)] == list(labels)
                assert [score for _, score in ranking_of(S, row)] == pytest.approx(scores, rel=1e-4)


@pytest.mark.parametrize("limit", [-1, 65537, 1e30, "x"])
def test_invalid_limits_for_bits_are_rejected(tmp_path: Path, limit: object) -> None:
    model = tmp_path / "model"
    carya.load(GOLDEN / "many-clusters").save(model)
    edit_manifest(model, lambda manifest: manifest["shape"].update(max_bit_chunks=[limit, limit]))
    with pytest.raises(ModelFormatError, match="inconsistent"):
        carya.load(model)


@pytest.mark.parametrize("weight_dtype", ["float32", "float16", "int8"])
def test_stored_models_return_the_stored_rankings(weight_dtype: str) -> None:
    """Any change to the format requires a new format version, and these models must remain readable."""
    model = carya.load(GOLDEN / weight_dtype)
    for query in json.loads((GOLDEN / "answers.json").read_text()):
        labels, scores = model.rank((sparse_row(query, 80), np.array([query["dense"]], np.float32)), top_k=4)
        assert labels.tolist() == query["answers"][weight_dtype]["labels"]
        assert scores.tolist() == pytest.approx(query["answers"][weight_dtype]["scores"], rel=1e-4)
