from __future__ import annotations

import copy
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya import _core
from carya.core import storage
from carya.core.matrices import Csr
from carya.errors import ModelFormatError, SaveError
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import Learned
from carya.trees.transforms import Transform

from forging import forge

SAVED = storage.Saved(
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
    ("text", "want"),
    [
        (b"", "ef46db3751d8e999"),
        (b"a", "d24ec4f1a98c6e5b"),
        (b"as", "1c330fb2d66be179"),
        (b"asd", "631c37ce72a97393"),
        (b"asdf", "415872f599cea71e"),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", "02a2e85470d6fd96"),
    ],
)
def test_xxh64_is_the_published_one(text: bytes, want: str) -> None:
    assert f"{_core.xxh64(np.frombuffer(text, np.uint8)):016x}" == want


def test_what_goes_in_comes_out(folder: Path) -> None:
    got = storage.load(folder)
    assert (got.kind, got.parameters, got.shape) == (SAVED.kind, SAVED.parameters, SAVED.shape)
    assert got.arrays.keys() == SAVED.arrays.keys()
    for name, array in SAVED.arrays.items():
        assert got.arrays[name].dtype == array.dtype
        assert np.array_equal(got.arrays[name], array)
        assert not got.arrays[name].flags.writeable
        assert got.arrays[name].size == 0 or got.arrays[name].ctypes.data % 64 == 0


def test_the_format_byte_by_byte(folder: Path) -> None:
    """As docs/format.md says, read with nothing but the standard library and NumPy."""
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


def edit(folder: Path, change: Callable[[dict], object], *, seal: bool = True) -> None:
    """Change the manifest, and give it a checksum that fits unless told not to."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    if seal:
        del manifest["checksum"]
    change(manifest)
    file.write_bytes(storage._sealed(manifest) if seal else json.dumps(manifest).encode())


def cut(folder: Path) -> None:
    file = folder / "arrays.bin"
    file.write_bytes(file.read_bytes()[:-1])


def append(folder: Path) -> None:
    with (folder / "arrays.bin").open("ab") as file:
        file.write(b"x")


def flip(folder: Path, name: str, at: int) -> None:
    file = folder / name
    raw = bytearray(file.read_bytes())
    raw[at] ^= 4
    file.write_bytes(bytes(raw))


ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "is not a Carya model"),
    "no arrays": (lambda f: (f / "arrays.bin").unlink(), "arrays.bin cannot be read"),
    "empty arrays": (lambda f: (f / "arrays.bin").write_bytes(b""), "arrays.bin cannot be read"),
    "cut arrays": (cut, "cut short"),
    "longer arrays": (append, "has 201 bytes, the manifest describes 200"),
    "flipped bit": (lambda f: flip(f, "arrays.bin", 70), "arrays.bin has been altered: the checksum of bytes 0 and on"),
    "flipped checksum": (lambda f: flip(f, "arrays.bin", 195), "the checksum of its checksums does not match"),
    "flipped manifest": (
        lambda f: edit(f, lambda m: m["shape"].update(columns=4), seal=False),
        "manifest.json has been altered",
    ),
    "not JSON": (lambda f: (f / "manifest.json").write_text("{"), "cannot be read"),
    "not UTF-8": (lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"), "cannot be read"),
    "deep JSON": (lambda f: (f / "manifest.json").write_text("[" * 100_000), "cannot be read|not that of"),
    "a number": (lambda f: (f / "manifest.json").write_text("1"), "not that of a Carya model"),
    "no string end": (lambda f: (f / "manifest.json").write_text('{"a'), "a string does not end at byte"),
    "no colon": (lambda f: (f / "manifest.json").write_text('{"a" 1}'), "there is no colon at byte"),
    "two values": (lambda f: (f / "manifest.json").write_text("{} {}"), "something follows the value"),
    "a list": (lambda f: (f / "manifest.json").write_text("[1]"), "not that of a Carya model"),
    "no format": (lambda f: edit(f, lambda m: m.pop("format")), "not that of a Carya model"),
    "newer format": (
        lambda f: edit(f, lambda m: m.update(format=3)),
        "has format 3, this version of Carya reads up to 2: upgrade",
    ),
    "older format": (
        lambda f: edit(f, lambda m: m.update(format=1)),
        "has format 1, of a version before .* reads format 2: train the model again",
    ),
    "no kind": (lambda f: edit(f, lambda m: m.pop("kind")), "has no kind"),
    "no checksum": (lambda f: edit(f, lambda m: m.pop("checksum"), seal=False), "has no checksum"),
    "huge shape": (lambda f: edit(f, lambda m: m["arrays"][0].update(shape=[2**40, 2**40])), "lies outside it"),
    "negative shape": (lambda f: edit(f, lambda m: m["arrays"][0].update(shape=[-1])), "unknown type or shape"),
    "odd shape": (lambda f: edit(f, lambda m: m["arrays"][0].update(shape=["2"])), "unknown type or shape"),
    "negative offset": (lambda f: edit(f, lambda m: m["arrays"][0].update(offset=-64)), "lies outside it"),
    "overlap": (lambda f: edit(f, lambda m: m["arrays"][1].update(offset=0)), "lies outside it"),
    "misaligned": (lambda f: edit(f, lambda m: m["arrays"][1].update(offset=65)), "lies outside it"),
    "code as type": (lambda f: edit(f, lambda m: m["arrays"][0].update(dtype="object")), "unknown type"),
    "no array name": (lambda f: edit(f, lambda m: m["arrays"][0].pop("name")), "describes an array badly"),
    "no checksums": (lambda f: edit(f, lambda m: m.pop("checksums")), "has no checksums"),
    "fewer checksums": (lambda f: edit(f, lambda m: m["checksums"].update(shape=[0])), "the manifest describes 192"),
    "checksums of another type": (
        lambda f: edit(f, lambda m: m["checksums"].update(dtype="int64")),
        "describes an array badly",
    ),
    "an array that is none": (lambda f: edit(f, lambda m: m["arrays"].append(3)), "describes an array badly"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_damaged_folders_are_refused(folder: Path, attack: str) -> None:
    damage, message = ATTACKS[attack]
    damage(folder)
    with pytest.raises(ModelFormatError, match=message):
        storage.load(folder)


def test_every_flipped_byte_is_noticed(folder: Path) -> None:
    for name in ("arrays.bin", "manifest.json"):
        size = (folder / name).stat().st_size
        for at in range(0, size, 3 if name == "manifest.json" else 1):
            flip(folder, name, at)
            with pytest.raises(ModelFormatError):
                storage.load(folder)
            flip(folder, name, at)
    storage.load(folder)


def test_large_models_are_verified_as_they_are_used(tmp_path: Path) -> None:
    """Opening reads next to nothing; what a query touches is checked, and so is all that is saved or taken out."""
    labels, width = 8000, 2200  # 70 MB of weights
    rng = np.random.default_rng(0)
    sparse = np.zeros((3, labels), np.float32)
    sparse[0, :5], sparse[1] = 1, 2  # a small block and a large one
    layer = Layer(
        weights=Weights.pack(Csr.of_scipy(sp.csr_array(sparse)), np.array([0, labels]), "int8"),
        dense=rng.standard_normal((labels, width), np.float32),
        offsets=np.zeros(labels, np.float32),
        chunks=np.array([0, labels]),
        order=np.arange(labels, dtype=np.int32),
        transform=Transform.named("noop"),
    )
    tree = carya.LabelTree.flat(labels)
    model = carya.XRLinear.from_learned(Learned(tree, [layer], (3, width)))
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
        with pytest.raises(ModelFormatError, match="altered: the checksum of bytes 8978432 and on"):
            use()
    assert not (tmp_path / "copy").exists()


def test_damage_is_met_only_by_those_who_touch_it(tmp_path: Path) -> None:
    labels, features = 500, 40_000  # every feature has a large block
    values = np.random.default_rng(0).integers(1, 9, labels).astype(np.float32)
    indptr = np.arange(features + 1, dtype=np.int64) * labels
    columns = np.arange(labels, dtype=np.int32)
    matrix = Csr.of(indptr, np.tile(columns, features), np.tile(values, features), labels)
    chunks = np.array([0, labels])
    layer = Layer(
        weights=Weights.pack(matrix, chunks, "float32"),
        dense=np.zeros((labels, 0), np.float32),
        offsets=np.zeros(labels, np.float32),
        chunks=chunks,
        order=np.arange(labels, dtype=np.int32),
        transform=Transform.named("noop"),
    )
    learned = Learned(carya.LabelTree.flat(labels), [layer], (features, 0))
    carya.XRLinear.from_learned(learned).save(tmp_path / "model")
    flip(tmp_path / "model", "arrays.bin", (tmp_path / "model" / "arrays.bin").stat().st_size // 2)
    damaged = carya.load(tmp_path / "model")
    answers, errors = 0, 0
    for feature in range(0, features, 20):
        query = sp.csr_array(([1.0], ([0], [feature])), shape=(1, features))
        try:
            assert damaged.rank(query, top_k=3)[0].size == 3
            answers += 1
        except ModelFormatError:
            errors += 1
    assert errors > 0
    assert answers > 1900


@pytest.mark.parametrize("seed", range(60))
def test_a_sealed_model_with_wrong_arrays_is_refused_or_safe(
    saved_model: Path, tmp_path: Path, seed: int, world
) -> None:
    """An attacker who fixes the checksums gets an error or a model that answers something: never a crash."""
    place = tmp_path / "model"
    forge(saved_model, place, seed)
    try:
        model = carya.load(place)
        model.predict(world.X[:20])
        model.predict_selected(world.X[:20], world.Y[:20])
    except ModelFormatError as error:
        assert str(place) in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.shape.update(sparse_features=1),
        lambda s: s.shape.update(sparse_features="many"),
        lambda s: s.shape.pop("dense_features"),
        lambda s: s.shape.update(transforms=["noop"]),
        lambda s: s.shape.update(transforms=["eval(1)"] * 3),
        lambda s: s.parameters.update(unknown=1),
        lambda s: s.arrays.pop("1.offsets"),
        lambda s: s.arrays.update({"1.dense": np.zeros((3, 3), np.float32)}),
        lambda s: s.arrays.update({"2.parents": np.zeros(1, np.int32)}),
        lambda s: s.arrays.update({"1.weights.starts": np.zeros((4, 32), np.uint16)}),
        lambda s: s.arrays.update({"1.weights.starts": np.zeros(32, np.uint16)}),
        lambda s: s.arrays.update({"1.weights.starts": s.arrays["1.weights.starts"].astype(np.int32)}),
        lambda s: s.arrays.update({"1.weights.data": np.zeros(4, np.uint8)}),
        lambda s: s.arrays.update({"1.weights.scales": np.zeros(0, np.float32)}),
        lambda s: s.shape.update(precisions=["int4"] * 3),
        lambda s: s.arrays.update({"1.offsets": np.zeros(4, np.int32)}),
    ],
)
def test_parts_that_do_not_fit_are_refused(saved_model: Path, tmp_path: Path, change: Callable) -> None:
    saved = storage.load(saved_model)
    change(saved)
    storage.save(tmp_path / "model", saved)
    with pytest.raises(ModelFormatError, match="do not fit together"):
        carya.load(tmp_path / "model")


def test_other_kinds_are_named(folder: Path) -> None:
    with pytest.raises(ModelFormatError, match="kind 'toy', which this version of Carya does not know"):
        carya.load(folder)


def test_saving_replaces_a_model_and_nothing_else(model: carya.XRLinear, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "er" / "model"
    model.save(place)
    before = storage.load(place)
    model.save(place)
    assert np.array_equal(before.arrays["1.offsets"], model.layers_[0].offsets)  # still mapped, still readable
    assert [path.name for path in place.parent.iterdir()] == ["model"]

    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(SaveError, match="is not a Carya model, or holds other files too; it is left alone"):
        model.save(other)
    (other / "manifest.json").write_text('{"name": "my web app"}')  # others have files of that name
    with pytest.raises(SaveError, match="left alone"):
        model.save(other)
    (place / "notes.txt").write_text("beside a model")
    with pytest.raises(SaveError, match="left alone"):
        model.save(place)
    assert (other / "thesis.txt").read_text() == "years of work"
    with pytest.raises(SaveError, match="is not a folder"):
        model.save(other / "thesis.txt")
    with pytest.raises(OSError, match=r"thesis\.txt"):
        model.save(other / "thesis.txt" / "model")
    empty = tmp_path / "empty"
    empty.mkdir()
    model.save(empty)
    carya.load(empty)


def test_a_failed_save_leaves_the_old_model(
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


def test_without_exchange_the_old_model_is_replaced_in_two_steps(
    model: carya.XRLinear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage._core, "exchange_paths", lambda a, b: False)
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")
    carya.load(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_read_only_folder_opens(saved_model: Path, tmp_path: Path) -> None:
    place = tmp_path / "model"
    shutil.copytree(saved_model, place)
    for file in place.iterdir():
        file.chmod(stat.S_IRUSR)
    place.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert carya.load(place).tree_.n_labels == 150
    finally:
        place.chmod(stat.S_IRWXU)


GOLDEN = Path(__file__).parent / "golden" / "format-2"


def sparse_row(query: dict[str, Any], width: int) -> sp.csr_array:
    values = np.array(query["values"], np.float32)
    return sp.csr_array((values, np.array(query["indices"]), [0, values.size]), shape=(1, width))


def test_a_model_with_wide_blocks_still_answers() -> None:
    model = carya.load(GOLDEN / "wide")
    for query in json.loads((GOLDEN / "wide.json").read_text()):
        labels, scores = model.rank(sparse_row(query, 250), top_k=4)
        assert labels.tolist() == query["labels"]
        assert scores.tolist() == pytest.approx(query["scores"], rel=1e-4)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_models_written_by_the_first_version_still_answer(precision: str) -> None:
    """Whoever changes the format after a release has to give it another number, and go on reading this one."""
    model = carya.load(GOLDEN / precision)
    for query in json.loads((GOLDEN / "answers.json").read_text()):
        labels, scores = model.rank((sparse_row(query, 80), np.array([query["dense"]], np.float32)), top_k=4)
        assert labels.tolist() == query["answers"][precision]["labels"]
        assert scores.tolist() == pytest.approx(query["answers"][precision]["scores"], rel=1e-4)
