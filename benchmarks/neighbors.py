"""Measure nearest-neighbor libraries, search algorithms and models: python neighbors.py PART FEATURES

libraries   usearch and hnswlib with dense vectors (truncated SVD of the features): build time, recall relative to
            brute force, time per query with one and two threads, reproducibility, size and load time
sparse      an exact inverted index, and HNSW graphs over projected features with exact rescoring of the candidates
dense       Carya's exact search and HNSW graph on generated dense vectors, by number of items; FEATURES is not used
models      P@k and times of the models on the test set or, with --held-out, on a tenth of the training rows

The script requires carya[ann]; the part `libraries` also requires hnswlib. The results are printed as JSON lines with
wall-clock times and CPU times. The CPU times, which have "cpu" in their names, vary less on a busy machine.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.random_projection import SparseRandomProjection

import carya
from carya.core import validation
from carya.indexing.representations import normalize, pifa
from carya.matching.hnsw import HnswGraph
from carya.matching.nearest_neighbors import NeighborSearcher, index_layer
from carya.trees.beam_search import BeamSearcher

import measure

QUERIES = 2000
CONNECTIVITY, EF_CONSTRUCTION = 16, 128
EF_SEARCH = (50, 100, 200, 400)
PROJECTIONS = {
    "128 random": SparseRandomProjection(128, random_state=0, dense_output=True),
    "512 random": SparseRandomProjection(512, random_state=0, dense_output=True),
    "128 svd": TruncatedSVD(128, random_state=0, n_iter=2),
    "256 svd": TruncatedSVD(256, random_state=0, n_iter=2),
}
SETTINGS: dict[str, dict[str, Any] | None] = {
    "rows": {"over": "rows"},
    "labels": {},
    "rows, votes only": {"over": "rows", "ranker": None},
    "labels, cosines only": {"ranker": None},
    "XRLinear": None,
}

Vectors = NDArray[np.float32]


def timed(call: Callable[[], Any], name: str, queries: int | None = None) -> tuple[Any, dict[str, float]]:
    """Return the result of a call and its wall-clock and CPU times, in seconds or in milliseconds per query."""
    result, wall, cpu = measure.timed(call)
    if queries is None:
        return result, {f"{name}_s": wall, f"{name}_cpu_s": cpu}
    return result, {f"{name}_ms": wall / queries * 1e3, f"{name}_cpu_ms": cpu / queries * 1e3}


def unit_rows(vectors: Any) -> Vectors:
    return np.ascontiguousarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def nearest(items: Vectors, queries: Vectors, count: int) -> Vectors:
    """Return the similarities of the nearest items, computed by brute force."""
    blocks = [queries[begin : begin + 250] for begin in range(0, len(queries), 250)]
    return np.concatenate([-np.sort(-(block @ items.T), axis=1)[:, :count] for block in blocks])


def recall(similarities: Vectors, truth: Vectors, count: int) -> float:
    """Return the recall: the fraction of the first `count` items that are among the true `count` nearest items."""
    return float(np.mean(similarities[:, :count] >= truth[:, count - 1 : count] - 1e-5))


class Library(Protocol):
    """A nearest-neighbor library."""

    name: str

    def build(self, vectors: Vectors, threads: int) -> None:
        """Build an index of the vectors."""

    def search(self, queries: Vectors, count: int, ef: int, threads: int) -> NDArray[np.int64]:
        """Return the items nearest to each query."""
        ...

    def save(self, path: str) -> None:
        """Write the index to a file."""

    def open(self, path: str, dimensions: int) -> None:
        """Open an index file, memory-mapped if possible."""


class Usearch:
    """The usearch library, with vectors stored in a given data type."""

    def __init__(self, dtype: str) -> None:
        import usearch.index

        self.name, self.dtype = f"usearch {dtype}", dtype
        self.index_class: Any = usearch.index.Index

    def build(self, vectors: Vectors, threads: int) -> None:
        self.index = self.index_class(
            ndim=vectors.shape[1],
            metric="ip",
            dtype=self.dtype,
            connectivity=CONNECTIVITY,
            expansion_add=EF_CONSTRUCTION,
            enable_key_lookups=False,
        )
        self.index.add(np.arange(len(vectors), dtype=np.uint64), vectors, threads=threads)

    def search(self, queries: Vectors, count: int, ef: int, threads: int) -> NDArray[np.int64]:
        self.index.expansion_search = ef
        return np.asarray(self.index.search(queries, count, threads=threads).keys, np.int64)

    def save(self, path: str) -> None:
        self.index.save(path)

    def open(self, path: str, dimensions: int) -> None:
        self.index_class.restore(path, view=True)


class Hnswlib:
    """The hnswlib library, which cannot memory-map files."""

    name = "hnswlib"

    def build(self, vectors: Vectors, threads: int) -> None:
        import hnswlib

        self.index_class = hnswlib.Index
        self.index = self.index_class(space="ip", dim=vectors.shape[1])
        self.index.init_index(len(vectors), M=CONNECTIVITY, ef_construction=EF_CONSTRUCTION, random_seed=0)
        self.index.add_items(vectors, num_threads=threads)

    def search(self, queries: Vectors, count: int, ef: int, threads: int) -> NDArray[np.int64]:
        self.index.set_ef(ef)
        return np.asarray(self.index.knn_query(queries, count, num_threads=threads)[0], np.int64)

    def save(self, path: str) -> None:
        self.index.save_index(path)

    def open(self, path: str, dimensions: int) -> None:
        self.index_class(space="ip", dim=dimensions).load_index(path)


def libraries(X: Any, Y: Any, Xt: Any, dimensions: int) -> None:
    svd = TruncatedSVD(dimensions, random_state=0, n_iter=2).fit(X)
    rows, queries = unit_rows(svd.transform(X)), unit_rows(svd.transform(Xt[:QUERIES]))
    for over, items in (("labels", unit_rows(Y.T @ rows)), ("rows", rows)):
        truth, brute_force = timed(partial(nearest, items, queries, 50), "all_comparisons", len(queries))
        measure.emit({"over": over, "items": len(items), **brute_force})
        for library in (Usearch("f16"), Hnswlib()):
            measure_library(library, over, items, queries, truth)


def measure_library(library: Library, over: str, items: Vectors, queries: Vectors, truth: Vectors) -> None:
    identity = {"over": over, "library": library.name}
    with tempfile.TemporaryDirectory() as folder:
        result: dict[str, Any] = dict(identity)
        files = []
        for name, threads in (("build", 1), ("again", 1), ("build_2", 2)):
            result |= timed(partial(library.build, items, threads), name)[1]
            library.save(f"{folder}/graph")
            files.append(Path(folder, "graph").read_bytes())
        result |= {"same_bytes_1": files[0] == files[1], "same_bytes_2": files[0] == files[2]}
        result["mb"] = len(files[0]) / 1e6
        result |= timed(partial(library.open, f"{folder}/graph", items.shape[1]), "open")[1]
        measure.emit(result)
    for ef in EF_SEARCH:
        line: dict[str, Any] = identity | {"width": ef}
        for threads in (1, 2):
            found, times = timed(partial(library.search, queries, 50, ef, threads), f"threads_{threads}", len(queries))
            line |= times
        similarities = np.einsum("qd,qcd->qc", queries, items[found])
        measure.emit(line | {f"recall@{k}": recall(similarities, truth, k) for k in (10, 50)})


def sparse(X: Any, Y: Any, Xt: Any) -> None:
    features, labels = validation.check_training_data(X, Y)
    test = Xt[:QUERIES]
    n_queries = test.shape[0]
    queries = validation.check_features_like(test, features.widths)
    centroids = normalize(pifa(features, labels.with_values(1), keep=384, threads=2))
    for over, items in (("labels", centroids), ("rows", features)):
        searcher = BeamSearcher([index_layer(items, weight_dtype="float32", threads=2)])
        line: dict[str, Any] = {"over": over, "items": items.rows, "search": "inverted index"}
        for threads in (1, 2):
            (_, _, cosines), times = timed(
                partial(searcher.predict, queries, top_k=50, beam_width=50, threads=threads),
                f"threads_{threads}",
                n_queries,
            )
            line |= times
        measure.emit(line)
        truth = cosines.reshape(n_queries, 50)
        matrix = items.sparse.to_scipy()
        for name, projection in PROJECTIONS.items():
            line = {"over": over, "search": f"graph over {name}"}
            line |= timed(partial(projection.fit, X), "learn")[1]
            points = unit_rows(np.asarray(projection.transform(matrix)))
            library = Usearch("f16")
            line |= timed(partial(library.build, points, 1), "build")[1]
            projected, times = timed(partial(projection.transform, test), "project", n_queries)
            projected = unit_rows(np.asarray(projected))
            line |= times
            for candidates in (50, 200, 500):
                search = partial(library.search, projected, candidates, max(100, candidates), 1)
                found, times = timed(search, "walk", n_queries)
                best = -np.sort(-rescore(test, matrix, found), axis=1)
                recalls = {f"recall@{k}": recall(best, truth, k) for k in (10, 50)}
                measure.emit(line | times | {"candidates": candidates, **recalls})


def rescore(queries: Any, items: Any, candidates: NDArray[np.int64]) -> Vectors:
    """Return the exact cosine similarities between each query and its candidates."""
    return np.stack([(items[own] @ queries[[row]].T).toarray().ravel() for row, own in enumerate(candidates)])


def dense(dimensions: int) -> None:
    rng = np.random.default_rng(0)
    for items in (2000, 10_000, 20_000):
        centers = rng.standard_normal((items // 20, dimensions))
        points = unit_rows(
            centers[rng.integers(0, len(centers), items)] + 0.7 * rng.standard_normal((items, dimensions))
        )
        vectors = unit_rows(points[:300] + 0.02 * rng.standard_normal((300, dimensions)))
        queries = validation.check_features(vectors)
        index = BeamSearcher([index_layer(validation.check_features(points), weight_dtype="float32")])
        (_, _, truth), exact_times = timed(
            partial(NeighborSearcher(index).search, queries, count=100, threads=1), "exact", 300
        )
        graph, build_times = timed(partial(HnswGraph.build, points), "build")
        (_, found, _), graph_times = timed(
            partial(NeighborSearcher(index, graph).search, queries, count=100, threads=1), "graph", 300
        )
        similarities = np.einsum("qd,qcd->qc", vectors, points[found.reshape(300, 100)])
        recalls = {f"recall@{k}": recall(similarities, truth.reshape(300, 100), k) for k in (10, 100)}
        measure.emit({"items": items, **exact_times, **build_times, **graph_times, **recalls})


def models(X: Any, Y: Any, Xt: Any, Yt: Any) -> None:
    for name, settings in SETTINGS.items():
        model: Any = carya.XRLinear(n_jobs=2) if settings is None else carya.NearestNeighbors(n_jobs=2, **settings)
        _, train_times = timed(partial(model.fit, X, Y), "train")
        S, predict_times = timed(partial(model.predict, Xt, top_k=10), "predict", Xt.shape[0])
        queries = [Xt[[row]] for row in range(min(300, Xt.shape[0]))]
        single = measure.latency(lambda row: model.rank(queries[row]), len(queries))  # noqa: B023  called before the next iteration
        with tempfile.TemporaryDirectory() as folder:
            model.save(f"{folder}/model")
            size = measure.folder_bytes(f"{folder}/model") / 1e6
        identity = {"model": name, "similarity": getattr(model, "similarity_weight_", None), "mb": size}
        measure.emit({**identity, **train_times, **predict_times, **single, **measure.precision(Yt, S)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["libraries", "sparse", "dense", "models"])
    parser.add_argument("features", nargs="?")
    parser.add_argument("--dimensions", type=int, default=256)
    parser.add_argument("--held-out", action="store_true", help="use a tenth of the training rows as the test set")
    arguments = parser.parse_args()
    if arguments.part == "dense":
        dense(arguments.dimensions)
        return
    if arguments.features is None:
        parser.error(f"The part {arguments.part} requires FEATURES. Pass a feature folder.")
    X, Y, Xt, Yt = measure.load(arguments.features)
    if arguments.held_out:
        order = np.random.default_rng(0).permutation(X.shape[0])
        train, held_out = np.sort(order[X.shape[0] // 10 :]), np.sort(order[: X.shape[0] // 10])
        X, Y, Xt, Yt = X[train], Y[train], X[held_out], Y[held_out]
    if arguments.part == "libraries":
        libraries(sp.csr_matrix(X), Y, Xt, arguments.dimensions)
    elif arguments.part == "sparse":
        sparse(X, Y, Xt)
    else:
        models(X, Y, Xt, Yt)


if __name__ == "__main__":
    main()
