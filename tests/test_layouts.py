"""Tests for packed weights: precision of each data type, the documented format, and damaged blocks."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import ModelFormatError
from carya.trees.beam_search import BeamSearcher
from carya.trees.layer import WEIGHT_DTYPES, Layer, Weights
from carya.trees.layout_choice import LAYOUTS
from carya.trees.transforms import Transform


def make_layer(matrix: np.ndarray, sizes: list[int], weight_dtype: str) -> Layer:
    """Return a layer with the given weights, of shape (features, nodes), and the given cluster sizes."""
    chunks = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    nodes = int(chunks[-1])
    return Layer(
        weights=Weights.pack(Csr.of_scipy(sp.csr_array(matrix.astype(np.float32))), chunks, weight_dtype, threads=2),
        dense=np.zeros((nodes, 0), np.float32),
        biases=np.zeros(nodes, np.float32),
        chunks=chunks,
        order=np.arange(nodes, dtype=np.int32),
        transform=Transform.from_name("noop"),
    )


def rounded_weights(matrix: np.ndarray, sizes: list[int], weight_dtype: str) -> np.ndarray:
    """Use NumPy to round the weights to a data type."""
    matrix = matrix.astype(np.float32)
    if weight_dtype == "float16":
        return matrix.astype(np.float16).astype(np.float32)
    if weight_dtype == "int8":
        rounded = matrix.copy()
        for begin, end in zip(np.cumsum([0, *sizes[:-1]]), np.cumsum(sizes), strict=True):
            chunk = matrix[:, begin:end]
            scale = np.abs(chunk).max(initial=0) / 127**2 or 1
            root = np.round(np.sqrt(np.abs(chunk) / scale))
            rounded[:, begin:end] = np.sign(chunk) * root**2 * scale
        return rounded
    return matrix


@pytest.mark.parametrize("weight_dtype", WEIGHT_DTYPES)
@given(
    seed=st.integers(0, 10_000),
    features=st.integers(0, 20),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=9) | st.lists(st.integers(1, 7), min_size=17, max_size=25),
    density=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
)
def test_round_trip_is_exact_up_to_the_data_type(
    weight_dtype: str, seed: int, features: int, sizes: list[int], density: float
) -> None:
    rng = np.random.default_rng(seed)
    shape = (features, sum(sizes))
    matrix = rng.standard_normal(shape) * 10 ** rng.uniform(-3, 3, shape) * (rng.random(shape) < density)
    actual = make_layer(matrix, sizes, weight_dtype).unpacked().to_scipy().toarray()
    expected = rounded_weights(matrix, sizes, weight_dtype)
    # If a value lies halfway between two int8 codes, the results may differ by one quantization step.
    step = np.abs(expected) * 0.02 + np.abs(expected).max(initial=0) / 127**2 if weight_dtype == "int8" else 0
    assert (np.abs(actual - expected) <= step + 1e-6 * np.abs(expected)).all()


@pytest.mark.parametrize("largest", [128, 129, 40_000])
@pytest.mark.parametrize("weight_dtype", WEIGHT_DTYPES)
def test_child_ids_with_one_two_and_four_bytes(largest: int, weight_dtype: str) -> None:
    matrix = np.zeros((2, largest + 1), np.float32)
    matrix[0, 0], matrix[1, largest - 1], matrix[1, largest] = 1, 2, 3
    layer = make_layer(matrix, [largest, 1], weight_dtype)
    assert np.allclose(layer.unpacked().to_scipy().toarray(), matrix, rtol=0.01)
    top = make_layer(np.eye(2), [2], weight_dtype)
    indptr, labels, scores = BeamSearcher([top, layer]).predict(
        validation.check_features(sp.csr_array(np.array([[0, 1]], np.float32))), top_k=2, beam_width=2, threads=1
    )
    assert indptr.tolist() == [0, 2]
    assert labels.tolist() == [largest, largest - 1]
    assert scores == pytest.approx([3, 2], rel=0.01)


@pytest.mark.parametrize("n_clusters", [1, 2, 7, 8, 14, 17, 40, 100, 256, 257, 300, 1024, 1025, 1500, 2100])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_of_all_kinds_of_blocks_equal_numpy(n_clusters: int, layout: str) -> None:
    """Scores are correct for narrow and wide beams, and for features with weights in few or many clusters."""
    rng = np.random.default_rng(n_clusters)
    sizes = rng.integers(1, 100 if n_clusters <= 100 else 12, n_clusters).tolist()
    matrix = rng.standard_normal((40, sum(sizes)))
    matrix *= rng.random(matrix.shape) < rng.choice([0, 0.02, 0.3, 1], (40, 1), p=[0.2, 0.3, 0.3, 0.2])
    layer = make_layer(matrix, sizes, "float32")
    assert (layer.unpacked().to_scipy().toarray() == matrix.astype(np.float32)).all()
    for count in (1, 5, sum(sizes)):
        positions = np.sort(rng.choice(sum(sizes), min(count, sum(sizes)), replace=False)).astype(np.int32)
        last = int(positions[-1])
        assert (layer.unpacked(positions).to_scipy().toarray() == matrix.astype(np.float32)[:, positions]).all()
        assert (layer.weights_at(np.arange(40, dtype=np.int32), last) == matrix.astype(np.float32)[:, last]).all()
    top = make_layer(rng.standard_normal((40, n_clusters)), [n_clusters], "float32")
    X = rng.standard_normal((30, 40)) * (rng.random((30, 40)) < 0.5)
    for beam_width in (1, 3, 16, 17, 65, n_clusters):
        indptr, labels, scores = BeamSearcher([top, layer], layout).predict(
            validation.check_features(sp.csr_array(X.astype(np.float32))), top_k=5, beam_width=beam_width, threads=1
        )
        assert indptr[-1] == labels.size
        for row, (begin, end) in enumerate(itertools.pairwise(indptr)):
            raw = X[row] @ matrix
            beam = np.argsort(-(X[row] @ top.unpacked().to_scipy().toarray()))[:beam_width]
            raw[~np.isin(np.repeat(np.arange(n_clusters), sizes), beam)] = -np.inf
            expected = np.sort(raw)[::-1][: end - begin]
            assert scores[begin:end] == pytest.approx(expected, abs=1e-4)
            assert raw[labels[begin:end]] == pytest.approx(expected, abs=1e-4)


def read_block(raw: bytes, chunks: np.ndarray, *, has_bitmaps: bool, kinds: set[str]) -> dict[int, float]:
    """Decode a block of float32 weights and one-byte child positions, as specified in docs/format.md.

    Returns a mapping from positions to weights. The kinds of the block and of its runs are added to `kinds`.
    """
    parents = chunks.size - 1
    id_bytes = 1 if parents <= 256 else 2
    bitmap_bytes = 2 * -(-int(np.diff(chunks).max()) // 16)
    n, offset = int.from_bytes(raw[:id_bytes], "little") + 1, id_bytes

    def take(count: int) -> bytes:
        nonlocal offset
        offset += count
        return raw[offset - count : offset]

    def read_bits(count: int) -> list[int]:
        return np.flatnonzero(np.unpackbits(np.frombuffer(take(count), np.uint8), bitorder="little")).tolist()

    def read_ids() -> list[int]:
        ids: list[int] = np.frombuffer(take(n * id_bytes), f"<u{id_bytes}").tolist()
        return ids

    def read_weights(count: int) -> list[float]:
        weights: list[float] = np.frombuffer(take(4 * count), "<f4").tolist()
        return weights

    if n < 8:
        block_chunks = read_ids()
        kinds.add("narrow with bitmaps" if has_bitmaps else "narrow")
        if has_bitmaps:
            positions = [chunks[chunk] + child for chunk in block_chunks for child in read_bits(bitmap_bytes)]
        else:
            positions, remaining = [], iter(block_chunks)
            chunk = next(remaining)
            for child in take((len(raw) - offset) // 5):
                positions.append(chunks[chunk] + child % 128)
                chunk = next(remaining, -1) if child >= 128 else chunk
        return dict(zip(positions, read_weights(len(positions)), strict=True))
    words = -(-parents // 64) * 8
    n_ranks = 0 if parents <= 1024 else -(-parents // 512)
    has_chunk_bits = words + 2 * n_ranks <= n * id_bytes
    ranks = np.frombuffer(take(2 * n_ranks if has_chunk_bits else 0), "<u2")
    block_chunks = read_bits(words) if has_chunk_bits else read_ids()
    assert len(block_chunks) == n
    for group, rank in enumerate(ranks):
        is_empty = not any(chunk // 512 == group for chunk in block_chunks)
        assert rank == (0 if is_empty else sum(chunk < 512 * group for chunk in block_chunks))
    kinds.update({"chunk bits" if has_chunk_bits else "ids"} | ({"sums"} if n > 32 else set()))
    kinds.update({"ranks"} if ranks.size else set())
    sums = np.frombuffer(take((n - 1) // 32 * 4), "<u4")
    counts = [count + 1 for count in take(n)]
    weights, first_run = {}, offset
    for i, (chunk, count) in enumerate(zip(block_chunks, counts, strict=True)):
        if i and i % 32 == 0:
            assert sums[i // 32 - 1] == offset - first_run
        kinds.add("bitmap" if count >= bitmap_bytes else "children")
        children = read_bits(bitmap_bytes) if count >= bitmap_bytes else list(take(count))
        assert len(children) == count
        weights.update(
            {chunks[chunk] + child: weight for child, weight in zip(children, read_weights(count), strict=True)}
        )
    assert offset == len(raw)
    return weights


def test_blocks_follow_the_documented_format() -> None:
    kinds: set[str] = set()
    for n_clusters in (20, 100, 256, 300, 1100):
        check_blocks(n_clusters, kinds)
    assert kinds == {"narrow", "narrow with bitmaps", "ids", "chunk bits", "ranks", "sums", "children", "bitmap"}


def check_blocks(n_clusters: int, kinds: set[str]) -> None:
    """Decode all blocks of a random layer and compare them with its weights."""
    rng = np.random.default_rng(n_clusters)
    sizes = rng.integers(1, 100, n_clusters).tolist()
    matrix = rng.standard_normal((40, sum(sizes))).astype(np.float32)
    matrix *= rng.random(matrix.shape) < rng.choice([0.001, 0.02, 0.3], (40, 1))
    matrix[:, 300:] *= rng.random((40, 1)) < 0.7  # some blocks have weights only in the first chunks
    layer = make_layer(matrix, sizes, "float32")
    base = layer.weights.starts[:, :4].copy().view("<i8").ravel()
    begins = (base[:, None] + (layer.weights.starts[:, 4:] & 0x3FFF)).ravel()
    for feature in range(40):
        entry = layer.weights.starts[feature // 28, 4 + feature % 28]
        raw = layer.weights.data[begins[feature] : begins[feature + 1]].tobytes()
        if entry & 0x8000:
            offset, size = np.frombuffer(raw, "<u8").tolist()
            raw = layer.weights.data[offset : offset + size].tobytes()
        actual = read_block(raw, layer.chunks, has_bitmaps=bool(entry & 0x4000), kinds=kinds) if raw else {}
        [expected] = np.nonzero(matrix[feature])
        assert sorted(actual) == expected.tolist()
        assert [actual[node] for node in expected.tolist()] == matrix[feature, expected].tolist()


@pytest.mark.parametrize("largest", [128, 129, 300, 40_000])
@pytest.mark.parametrize("n_clusters", [40, 300, 1100])
def test_wide_blocks_with_child_ids_of_any_size(largest: int, n_clusters: int) -> None:
    rng = np.random.default_rng(largest)
    sizes = [largest] + [2] * (n_clusters - 1)
    matrix = rng.standard_normal((12, sum(sizes))).astype(np.float32)
    matrix *= rng.random(matrix.shape) < rng.choice([0.02, 0.2, 0.9], (12, 1))
    layer = make_layer(matrix, sizes, "float32")
    assert (layer.unpacked().to_scipy().toarray() == matrix).all()
    top = make_layer(rng.standard_normal((12, n_clusters)), [n_clusters], "float32")
    X = sp.csr_array(rng.standard_normal((10, 12)).astype(np.float32))
    for beam_width in (1, 10, 70, n_clusters):
        by_label, packed = (
            BeamSearcher([top, layer], layout).predict(
                validation.check_features(X), top_k=5, beam_width=beam_width, threads=1
            )
            for layout in ("by-label", "packed")
        )
        assert packed[1].tolist() == by_label[1].tolist()
        assert packed[2] == pytest.approx(by_label[2], abs=1e-4)


def test_more_than_65536_clusters() -> None:
    n_clusters = 70_000
    top = make_layer(np.tile([[1.0]], (1, n_clusters)) * np.arange(n_clusters) / n_clusters, [n_clusters], "float32")
    leaf = make_layer(np.ones((1, n_clusters)), [1] * n_clusters, "float32")
    _, labels, _ = BeamSearcher([top, leaf]).predict(
        validation.check_features(sp.csr_array(np.ones((1, 1), np.float32))), top_k=3, beam_width=3, threads=1
    )
    assert labels.tolist() == [n_clusters - 3, n_clusters - 2, n_clusters - 1]


def test_unpacking_rejects_inconsistent_chunk_bits_and_flags() -> None:
    matrix = np.ones((1, 40), np.float32)
    matrix[0, 3] = 0
    layer = make_layer(matrix, [1] * 40, "float32")
    data = layer.weights.data.copy()
    data[1] |= 8  # sets the bit of cluster 3, which has no weights
    starts = layer.weights.starts.copy()
    starts[0, 4] |= 0x4000  # sets the bitmap flag, which is invalid for a wide block
    for change in ({"data": data}, {"starts": starts}):
        with pytest.raises(ModelFormatError, match=r"The block of feature 0 is invalid\."):
            replace(layer, weights=replace(layer.weights, **change)).unpacked()


#: Cluster sizes that together cover all sizes of chunk ids and child positions, and all kinds of blocks.
CLUSTER_SIZES = {
    "one cluster": [9],
    "merged blocks": [5, 3, 2],
    "merged blocks, two-byte children": [300, 3, 2],
    "few clusters": [120] * 6,
    "two-byte children": [300, 300, 2],
    "four-byte children": [70_000, 3, 2],
    "chunk bits": [4] * 40,
    "chunk bits, runs of children": [90] * 40,
    "chunk bits, two-byte children": [300] + [2] * 300,
    "chunk bits, four-byte children": [40_000] + [1] * 40,
    "two-byte ids": [2] * 300,
    "ids only": [1] * 1500,
    "four-byte ids, two-byte children": [129] + [1] * 66_000,
    "four-byte ids": [1] * 70_000,
}


def damage(layer: Layer, rng: np.random.Generator) -> Layer:
    """Return a copy of a layer with some bytes of its blocks, or the kind of a block, changed."""
    data, starts = layer.weights.data.copy(), layer.weights.starts.copy()
    while np.array_equal(data, layer.weights.data) and np.array_equal(starts, layer.weights.starts):
        match rng.choice(["anywhere", "heads", "weights", "kind"]):
            case "anywhere":
                offsets = rng.integers(0, data.size, rng.integers(1, 8))
            case "heads":  # the first bytes contain the starts of blocks and the locations of large blocks
                offsets = rng.integers(0, min(data.size, 100), rng.integers(1, 8))
            case "weights":  # the last bytes contain weights of the last block
                offsets = data.size - rng.integers(1, 3, 2)
            case _:
                offsets = np.zeros(0, np.int64)
                starts[0, 4 + rng.integers(0, 6)] ^= rng.choice([0x4000, 0x8000, 0xC000])
        data[offsets] = rng.choice([0, 1, 127, 254, 255], offsets.size)
    return replace(layer, weights=replace(layer.weights, starts=starts, data=data))


@pytest.mark.parametrize("level", CLUSTER_SIZES)
def test_damaged_blocks_are_harmless(level: str) -> None:
    """Searching damaged blocks does not access memory out of bounds; unpacking succeeds or raises ModelFormatError."""
    sizes = CLUSTER_SIZES[level]
    nodes = sum(sizes)
    queries = validation.check_features(sp.csr_array(np.ones((3, 6), np.float32)))
    outcomes: Counter[str] = Counter()
    for seed, weight_dtype, beam_width in itertools.product(range(4), WEIGHT_DTYPES, (3, 30)):
        rng = np.random.default_rng([seed, WEIGHT_DTYPES.index(weight_dtype), beam_width, nodes, len(sizes)])
        matrix = np.zeros((6, nodes), np.float32)
        for feature in range(6):  # some blocks are full, others nearly empty
            positions = rng.integers(0, nodes, nodes if rng.random() < 0.3 else 12)
            matrix[feature, positions] = rng.standard_normal(positions.size)
        layer = make_layer(matrix, sizes, weight_dtype)
        damaged = damage(layer, rng)
        top = make_layer(np.tile(rng.standard_normal(len(sizes)), (6, 1)), [len(sizes)], weight_dtype)
        _, labels, scores = BeamSearcher([top, damaged]).predict(queries, top_k=5, beam_width=beam_width, threads=1)
        assert np.isfinite(scores).all()
        assert ((labels >= 0) & (labels < nodes)).all()
        selected = np.unique(rng.integers(0, nodes, 3)).astype(np.int32)
        for unpack in (
            damaged.unpacked,
            lambda layer=damaged, positions=selected: layer.unpacked(positions),
            lambda layer=damaged, position=int(selected[0]): layer.weights_at(np.arange(6, dtype=np.int32), position),
        ):
            try:
                unpack()
                outcomes["accepted"] += 1
            except ModelFormatError as error:
                assert "weights are damaged" in str(error)  # noqa: PT017
                outcomes["rejected"] += 1
    assert outcomes.total() == 72
    assert outcomes["accepted"] > 0
    assert outcomes["rejected"] > 0


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([5], "less than the number of nodes"),
        ([-1], "positions must be >= 0"),
        ([2, 1], "strictly increasing"),
        ([1, 1], "strictly increasing"),
    ],
)
def test_invalid_positions_are_rejected(positions: list[int], message: str) -> None:
    layer = make_layer(np.ones((2, 5)), [3, 2], "int8")
    with pytest.raises(ValueError, match=message):
        layer.native.unpack_at(np.array(positions, np.int32))


def test_empty_positions_give_no_columns() -> None:
    layer = make_layer(np.ones((2, 5)), [3, 2], "int8")
    assert layer.unpacked(np.zeros(0, np.int32)).to_scipy().shape == (2, 0)


@pytest.mark.parametrize("feature", [-1, 2])
def test_invalid_features_are_rejected(feature: int) -> None:
    layer = make_layer(np.ones((2, 5)), [3, 2], "int8")
    with pytest.raises(ValueError, match="less than the number of features"):
        layer.native.weights_at(np.array([feature], np.int32), 0)
