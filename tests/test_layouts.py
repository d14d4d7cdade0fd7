"""Packed weights: what goes in comes out as precisely as promised, and damaged bytes lead nowhere."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import ModelFormatError
from carya.trees.beam_search import Searcher
from carya.trees.layer import PRECISIONS, Layer, Weights
from carya.trees.layouts import LAYOUTS
from carya.trees.transforms import Transform


def layer_of(matrix: np.ndarray, sizes: list[int], precision: str) -> Layer:
    chunks = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    nodes = int(chunks[-1])
    return Layer(
        weights=Weights.pack(Csr.of_scipy(sp.csr_array(matrix.astype(np.float32))), chunks, precision, threads=2),
        dense=np.zeros((nodes, 0), np.float32),
        offsets=np.zeros(nodes, np.float32),
        chunks=chunks,
        order=np.arange(nodes, dtype=np.int32),
        transform=Transform.named("noop"),
    )


def expected(matrix: np.ndarray, sizes: list[int], precision: str) -> np.ndarray:
    """What a precision makes of weights, in NumPy."""
    matrix = matrix.astype(np.float32)
    if precision == "float16":
        return matrix.astype(np.float16).astype(np.float32)
    if precision == "int8":
        out = matrix.copy()
        for first, last in zip(np.cumsum([0, *sizes[:-1]]), np.cumsum(sizes), strict=True):
            part = matrix[:, first:last]
            scale = np.abs(part).max(initial=0) / 127**2 or 1
            root = np.round(np.sqrt(np.abs(part) / scale))
            out[:, first:last] = np.sign(part) * root**2 * scale
        return out
    return matrix


@pytest.mark.parametrize("precision", PRECISIONS)
@given(
    seed=st.integers(0, 10_000),
    features=st.integers(0, 20),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=9) | st.lists(st.integers(1, 7), min_size=17, max_size=25),
    density=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
)
def test_weights_come_out_as_precisely_as_promised(
    precision: str, seed: int, features: int, sizes: list[int], density: float
) -> None:
    rng = np.random.default_rng(seed)
    shape = (features, sum(sizes))
    matrix = rng.standard_normal(shape) * 10 ** rng.uniform(-3, 3, shape) * (rng.random(shape) < density)
    got = layer_of(matrix, sizes, precision).unpacked().to_scipy().toarray()
    want = expected(matrix, sizes, precision)
    step = np.abs(want) * 0.02 + np.abs(want).max(initial=0) / 127**2 if precision == "int8" else 0  # one step of a tie
    assert (np.abs(got - want) <= step + 1e-6 * np.abs(want)).all()


@pytest.mark.parametrize("largest", [128, 129, 40_000])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_clusters_of_any_size(largest: int, precision: str) -> None:
    """The last child of a cluster needs 1, 2 or 4 bytes."""
    matrix = np.zeros((2, largest + 1), np.float32)
    matrix[0, 0], matrix[1, largest - 1], matrix[1, largest] = 1, 2, 3
    layer = layer_of(matrix, [largest, 1], precision)
    assert np.allclose(layer.unpacked().to_scipy().toarray(), matrix, rtol=0.01)
    top = layer_of(np.eye(2), [2], precision)
    indptr, labels, scores = Searcher([top, layer]).predict(
        validation.features(sp.csr_array(np.array([[0, 1]], np.float32))), top_k=2, beam_width=2, threads=1
    )
    assert indptr.tolist() == [0, 2]
    assert labels.tolist() == [largest, largest - 1]
    assert scores == pytest.approx([3, 2], rel=0.01)


@pytest.mark.parametrize("clusters", [1, 2, 7, 8, 14, 17, 40, 100, 256, 257, 300, 1024, 1025, 1500])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_of_any_shape(clusters: int, layout: str) -> None:
    """Features with weights in few or many clusters, in blocks of every kind; beams over few or all of them."""
    rng = np.random.default_rng(clusters)
    sizes = rng.integers(1, 100 if clusters <= 100 else 12, clusters).tolist()
    matrix = rng.standard_normal((40, sum(sizes)))
    matrix *= rng.random(matrix.shape) < rng.choice([0, 0.02, 0.3, 1], (40, 1), p=[0.2, 0.3, 0.3, 0.2])
    layer = layer_of(matrix, sizes, "float32")
    assert (layer.unpacked().to_scipy().toarray() == matrix.astype(np.float32)).all()
    for count in (1, 5, sum(sizes)):
        some = np.sort(rng.choice(sum(sizes), min(count, sum(sizes)), replace=False)).astype(np.int32)
        assert (layer.unpacked(some).to_scipy().toarray() == matrix.astype(np.float32)[:, some]).all()
        assert (
            layer.weights_at(np.arange(40, dtype=np.int32), int(some[-1])) == matrix.astype("f4")[:, some[-1]]
        ).all()
    top = layer_of(rng.standard_normal((40, clusters)), [clusters], "float32")
    X = rng.standard_normal((30, 40)) * (rng.random((30, 40)) < 0.5)
    for width in (1, 3, 16, 17, 65, clusters):
        indptr, labels, scores = Searcher([top, layer], layout).predict(
            validation.features(sp.csr_array(X.astype(np.float32))), top_k=5, beam_width=width, threads=1
        )
        assert indptr[-1] == labels.size
        for row, (first, last) in enumerate(itertools.pairwise(indptr)):
            raw = X[row] @ matrix
            kept = np.argsort(-(X[row] @ top.unpacked().to_scipy().toarray()))[:width]
            raw[~np.isin(np.repeat(np.arange(clusters), sizes), kept)] = -np.inf
            want = np.sort(raw)[::-1][: last - first]
            assert scores[first:last] == pytest.approx(want, abs=1e-4)
            assert raw[labels[first:last]] == pytest.approx(want, abs=1e-4)


def read_block(raw: bytes, chunks: np.ndarray, *, mapped: bool, seen: set[str]) -> dict[int, float]:
    """Position to weight, of float32, with Child of one byte: line by line as docs/format.md says.

    What kinds of blocks and runs there were is added to `seen`.
    """
    parents = chunks.size - 1
    id_bytes = 1 if parents <= 256 else 2
    map_bytes = 2 * -(-int(np.diff(chunks).max()) // 16)
    n, at = int.from_bytes(raw[:id_bytes], "little") + 1, id_bytes

    def take(count: int) -> bytes:
        nonlocal at
        at += count
        return raw[at - count : at]

    def bits(count: int) -> list[int]:
        return np.flatnonzero(np.unpackbits(np.frombuffer(take(count), np.uint8), bitorder="little")).tolist()

    def ids() -> list[int]:
        return np.frombuffer(take(n * id_bytes), f"<u{id_bytes}").tolist()

    def floats(count: int) -> list[float]:
        return np.frombuffer(take(4 * count), "<f4").tolist()

    if n < 8:
        which = ids()
        seen.add("narrow with maps" if mapped else "narrow")
        if mapped:
            nodes = [chunks[chunk] + place for chunk in which for place in bits(map_bytes)]
        else:
            nodes, left = [], iter(which)
            chunk = next(left)
            for child in take((len(raw) - at) // 5):
                nodes.append(chunks[chunk] + child % 128)
                chunk = next(left, -1) if child >= 128 else chunk
        return dict(zip(nodes, floats(len(nodes)), strict=True))
    words = -(-parents // 64) * 8
    has_bits = parents <= 1024 and words <= n * id_bytes
    which = bits(words) if has_bits else ids()
    assert len(which) == n
    seen.update({"bits" if has_bits else "ids"} | ({"sums"} if n > 32 else set()))
    sums = np.frombuffer(take((n - 1) // 32 * 4), "<u4")
    counts = [count + 1 for count in take(n)]
    out, first = {}, at
    for i, (chunk, count) in enumerate(zip(which, counts, strict=True)):
        if i and i % 32 == 0:
            assert sums[i // 32 - 1] == at - first
        seen.add("map" if count >= map_bytes else "children")
        places = bits(map_bytes) if count >= map_bytes else list(take(count))
        assert len(places) == count
        out.update({chunks[chunk] + place: value for place, value in zip(places, floats(count), strict=True)})
    assert at == len(raw)
    return out


def test_blocks_are_as_the_format_says() -> None:
    seen: set[str] = set()
    for clusters in (20, 100, 256, 300, 1100):
        check_blocks(clusters, seen)
    assert seen == {"narrow", "narrow with maps", "ids", "bits", "sums", "children", "map"}


def check_blocks(clusters: int, seen: set[str]) -> None:
    rng = np.random.default_rng(clusters)
    sizes = rng.integers(1, 100, clusters).tolist()
    matrix = rng.standard_normal((40, sum(sizes))).astype(np.float32)
    matrix *= rng.random(matrix.shape) < rng.choice([0.001, 0.02, 0.3], (40, 1))
    matrix[:, 300:] *= rng.random((40, 1)) < 0.7  # blocks of few chunks, some of them full
    layer = layer_of(matrix, sizes, "float32")
    base = layer.weights.starts[:, :4].copy().view("<i8").ravel()
    begins = (base[:, None] + (layer.weights.starts[:, 4:] & 0x3FFF)).ravel()
    for feature in range(40):
        mark = layer.weights.starts[feature // 28, 4 + feature % 28]
        raw = layer.weights.data[begins[feature] : begins[feature + 1]].tobytes()
        if mark & 0x8000:
            offset, size = np.frombuffer(raw, "<u8").tolist()
            raw = layer.weights.data[offset : offset + size].tobytes()
        got = read_block(raw, layer.chunks, mapped=bool(mark & 0x4000), seen=seen) if raw else {}
        [want] = np.nonzero(matrix[feature])
        assert sorted(got) == want.tolist()
        assert [got[node] for node in want.tolist()] == matrix[feature, want].tolist()


@pytest.mark.parametrize("large", [128, 129, 300, 40_000])
@pytest.mark.parametrize("clusters", [40, 300, 1100])
def test_wide_blocks_with_children_of_any_size(large: int, clusters: int) -> None:
    rng = np.random.default_rng(large)
    sizes = [large] + [2] * (clusters - 1)
    matrix = rng.standard_normal((12, sum(sizes))).astype(np.float32)
    matrix *= rng.random(matrix.shape) < rng.choice([0.02, 0.2, 0.9], (12, 1))
    layer = layer_of(matrix, sizes, "float32")
    assert (layer.unpacked().to_scipy().toarray() == matrix).all()
    top = layer_of(rng.standard_normal((12, clusters)), [clusters], "float32")
    X = sp.csr_array(rng.standard_normal((10, 12)).astype(np.float32))
    for width in (1, 10, 70, clusters):
        plain, packed = (
            Searcher([top, layer], layout).predict(validation.features(X), top_k=5, beam_width=width, threads=1)
            for layout in ("by-label", "packed")
        )
        assert packed[1].tolist() == plain[1].tolist()
        assert packed[2] == pytest.approx(plain[2], abs=1e-4)


def test_unpacking_sees_bits_and_marks_that_cannot_be() -> None:
    matrix = np.ones((1, 40), np.float32)
    matrix[0, 3] = 0
    layer = layer_of(matrix, [1] * 40, "float32")
    data = layer.weights.data.copy()
    data[1] |= 8  # the bit of cluster 3, which has no weights
    starts = layer.weights.starts.copy()
    starts[0, 4] |= 0x4000  # maps, in a wide block
    for change in ({"data": data}, {"starts": starts}):
        with pytest.raises(ModelFormatError, match="feature 0 are damaged"):
            replace(layer, weights=replace(layer.weights, **change)).unpacked()


def test_more_clusters_than_two_bytes_count() -> None:
    clusters = 70_000
    top = layer_of(np.tile([[1.0]], (1, clusters)) * np.arange(clusters) / clusters, [clusters], "float32")
    leaf = layer_of(np.ones((1, clusters)), [1] * clusters, "float32")
    _, labels, _ = Searcher([top, leaf]).predict(
        validation.features(sp.csr_array(np.ones((1, 1), np.float32))), top_k=3, beam_width=3, threads=1
    )
    assert labels.tolist() == [clusters - 3, clusters - 2, clusters - 1]


SHAPES = {
    "one cluster": [9],
    "whole blocks": [5, 3, 2],
    "whole blocks with two-byte children": [300, 3, 2],
    "few clusters": [120] * 6,
    "two-byte children": [300, 300, 2],
    "four-byte children": [70_000, 3, 2],
    "bits": [4] * 40,
    "bits and runs of children": [90] * 40,
    "bits and two-byte children": [300] + [2] * 300,
    "bits and four-byte children": [40_000] + [1] * 40,
    "two-byte ids": [2] * 300,
    "ids only": [1] * 1500,
    "four-byte ids and two-byte children": [129] + [1] * 66_000,
    "four-byte ids": [1] * 70_000,
}


@given(st.integers(0, 100_000), st.sampled_from(PRECISIONS), st.sampled_from(sorted(SHAPES)), st.sampled_from([3, 30]))
def test_damaged_blocks_are_harmless(seed: int, precision: str, shape: str, width: int) -> None:
    """Whatever the bytes are, a search stays inside its memory and unpacking says what is wrong."""
    rng = np.random.default_rng(seed)
    sizes = SHAPES[shape]
    nodes = sum(sizes)
    matrix = np.zeros((6, nodes), np.float32)
    for row in range(6):  # some blocks are full, some nearly empty
        some = rng.integers(0, nodes, nodes if rng.random() < 0.3 else 12)
        matrix[row, some] = rng.standard_normal(some.size)
    good = layer_of(matrix, sizes, precision)
    data = good.weights.data.copy()
    # Anywhere, or in the first bytes: heads of blocks, and where large ones say that they are.
    at = rng.integers(0, data.size if rng.random() < 0.5 else min(data.size, 100), rng.integers(1, 8))
    data[at] = rng.choice([0, 1, 127, 254, 255], at.size)
    starts = good.weights.starts.copy()
    starts[0, 4 + rng.integers(0, 6)] ^= rng.choice([0, 0x4000, 0x8000, 0xC000])  # what kind of block it is
    bad = Layer(
        replace(good.weights, starts=starts, data=data),
        good.dense,
        good.offsets,
        good.chunks,
        good.order,
        good.transform,
    )
    top = layer_of(np.tile(rng.standard_normal(len(sizes)), (6, 1)), [len(sizes)], precision)
    x = validation.features(sp.csr_array(np.ones((3, 6), np.float32)))
    _, _, scores = Searcher([top, bad]).predict(x, top_k=5, beam_width=width, threads=1)
    assert np.isfinite(scores).all()
    some = np.unique(rng.integers(0, nodes, 3)).astype(np.int32)
    for unpack in (
        bad.unpacked,
        lambda: bad.unpacked(some),
        lambda: bad.weights_at(np.arange(6, dtype=np.int32), int(some[0])),
    ):
        try:
            unpack()
        except ModelFormatError as error:
            assert "damaged" in str(error)  # noqa: PT017


def test_positions_that_cannot_be() -> None:
    layer = layer_of(np.ones((2, 5)), [3, 2], "int8")
    assert layer.unpacked(np.zeros(0, np.int32)).to_scipy().shape == (2, 0)
    for positions, message in (
        ([5], "no such position"),
        ([-1], "no such position"),
        ([2, 1], "ascend"),
        ([1, 1], "ascend"),
    ):
        with pytest.raises(ValueError, match=message):
            layer.native.unpack_at(np.array(positions, np.int32))
