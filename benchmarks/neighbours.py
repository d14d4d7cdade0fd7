"""Nearest neighbours: which library, which search, which settings. python neighbours.py PART FEATURES

libraries   usearch and hnswlib over dense vectors (truncated SVD of the features): time to build, recall against all
            comparisons, time a query with one and two threads, same bytes, size, opening
sparse      an exact inverted index, and graphs over projections of the features whose candidates are compared exactly
dense       Carya's exact search of generated dense vectors, and its graph, by the number of items; without FEATURES
models      P@k and times of the models, on the test part or, with --held-out, on a tenth of the training rows

Needs carya[ann], and hnswlib for the comparison. Prints JSON lines; times are wall clock, and "cpu" what the process
itself used, which others on the machine disturb less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD
from sklearn.random_projection import SparseRandomProjection

import carya
from carya.core import validation
from carya.indexing.representations import pifa, unit
from carya.matching.hnsw import Graph
from carya.matching.nearest_neighbors import Neighbours, index_layer
from carya.trees.beam_search import Searcher

import measure

QUERIES = 2000
CONNECTIVITY, BUILD_WIDTH = 16, 128
WIDTHS = (50, 100, 200, 400)
PROJECTIONS = {
    "128 random": SparseRandomProjection(128, random_state=0, dense_output=True),
    "512 random": SparseRandomProjection(512, random_state=0, dense_output=True),
    "128 svd": TruncatedSVD(128, random_state=0, n_iter=2),
    "256 svd": TruncatedSVD(256, random_state=0, n_iter=2),
}


def timed(call, name, queries=None):
    """A result, and the seconds it took or the milliseconds a query, by the clock and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if queries is None:
        return result, {f"{name}_s": wall, f"{name}_cpu_s": cpu}
    return result, {f"{name}_ms": wall / queries * 1e3, f"{name}_cpu_ms": cpu / queries * 1e3}


def unit_rows(vectors):
    return np.ascontiguousarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def nearest(items, queries, count):
    """How near the nearest items are, by all comparisons."""
    best = [-np.sort(-(queries[at : at + 250] @ items.T), axis=1)[:, :count] for at in range(0, len(queries), 250)]
    return np.concatenate(best)


def recall(near, truth, count):
    """The share of the `count` found that are as near as the nearest; of equally near ones any will do."""
    return float(np.mean(near[:, :count] >= truth[:, count - 1 : count] - 1e-5))


class Usearch:
    """usearch, with vectors of a type."""

    def __init__(self, scalar):
        import usearch.index

        self.name, self.scalar, self.made = f"usearch {scalar}", scalar, usearch.index.Index

    def build(self, vectors, threads):
        """Index vectors."""
        self.index = self.made(
            ndim=vectors.shape[1],
            metric="ip",
            dtype=self.scalar,
            connectivity=CONNECTIVITY,
            expansion_add=BUILD_WIDTH,
            enable_key_lookups=False,
        )
        self.index.add(np.arange(len(vectors), dtype=np.uint64), vectors, threads=threads)

    def search(self, queries, count, width, threads):
        """The nearest items of each query."""
        self.index.expansion_search = width
        return self.index.search(queries, count, threads=threads).keys.astype(np.int64)

    def save(self, path):
        """Write a file."""
        self.index.save(path)

    def open(self, path, dimensions):
        """Open a file, mapped if the library can."""
        self.made.restore(path, view=True)


class Hnswlib:
    """hnswlib; it does not map files."""

    name = "hnswlib"

    def build(self, vectors, threads):
        """Index vectors."""
        import hnswlib

        self.made = hnswlib.Index
        self.index = self.made(space="ip", dim=vectors.shape[1])
        self.index.init_index(len(vectors), M=CONNECTIVITY, ef_construction=BUILD_WIDTH, random_seed=0)
        self.index.add_items(vectors, num_threads=threads)

    def search(self, queries, count, width, threads):
        """The nearest items of each query."""
        self.index.set_ef(width)
        return self.index.knn_query(queries, count, num_threads=threads)[0].astype(np.int64)

    def save(self, path):
        """Write a file."""
        self.index.save_index(path)

    def open(self, path, dimensions):
        """Open a file, mapped if the library can."""
        self.made(space="ip", dim=dimensions).load_index(path)


def libraries(X, Y, Xt, dimensions):
    svd = TruncatedSVD(dimensions, random_state=0, n_iter=2).fit(X)
    rows, queries = unit_rows(svd.transform(X)), unit_rows(svd.transform(Xt[:QUERIES]))
    for over, items in (("labels", unit_rows(Y.T @ rows)), ("rows", rows)):
        truth, brute = timed(lambda items=items: nearest(items, queries, 50), "all_comparisons", QUERIES)
        measure.emit({"over": over, "items": len(items), **brute})
        for library in (Usearch("f16"), Hnswlib()):
            about = {"over": over, "library": library.name}
            with tempfile.TemporaryDirectory() as folder:
                result, written = dict(about), []
                for name, threads in (("build", 1), ("again", 1), ("build_2", 2)):
                    result |= timed(lambda n=threads, i=items, one=library: one.build(i, n), name)[1]
                    library.save(f"{folder}/graph")
                    written.append(Path(folder, "graph").read_bytes())
                result |= {"same_bytes_1": written[0] == written[1], "same_bytes_2": written[0] == written[2]}
                result["mb"] = len(written[0]) / 1e6
                result |= timed(lambda one=library, at=folder: one.open(f"{at}/graph", dimensions), "open")[1]
                measure.emit(result)
            for width in WIDTHS:
                line = about | {"width": width}
                for threads in (1, 2):
                    found, took = timed(
                        lambda w=width, n=threads, one=library: one.search(queries, 50, w, n),
                        f"threads_{threads}",
                        QUERIES,
                    )
                    line |= took
                near = np.einsum("qd,qcd->qc", queries, items[found])
                measure.emit(line | {f"recall@{k}": recall(near, truth, k) for k in (10, 50)})


def sparse(X, Y, Xt):
    features, labels = validation.training_pair(X, Y)
    asked = Xt[:QUERIES]
    queries = validation.features_like(asked, features.widths)
    centroids = unit(pifa(features, labels.with_values(1), keep=384, threads=2))
    for over, items in (("labels", centroids), ("rows", features)):
        searcher = Searcher([index_layer(items, precision="float32", threads=2)])
        line = {"over": over, "items": items.rows, "search": "inverted index"}
        for threads in (1, 2):
            (_, _, cosines), took = timed(
                lambda n=threads, one=searcher: one.predict(queries, top_k=50, beam_width=50, threads=n),
                f"threads_{threads}",
                QUERIES,
            )
            line |= took
        measure.emit(line)
        truth = cosines.reshape(QUERIES, 50)
        matrix = items.sparse.to_scipy()
        for name, projection in PROJECTIONS.items():
            line = {"over": over, "search": f"graph over {name}"}
            line |= timed(lambda p=projection: p.fit(X), "learn")[1]
            points = unit_rows(np.asarray(projection.transform(matrix)))
            library = Usearch("f16")
            line |= timed(lambda one=library, p=points: one.build(p, 1), "build")[1]
            projected, took = timed(lambda p=projection: unit_rows(np.asarray(p.transform(asked))), "project", QUERIES)
            line |= took
            for candidates in (50, 200, 500):
                width = max(100, candidates)
                found, took = timed(
                    lambda one=library, q=projected, c=candidates, w=width: one.search(q, c, w, 1), "walk", QUERIES
                )
                best = -np.sort(-compared(asked, matrix, found), axis=1)
                recalls = {f"recall@{k}": recall(best, truth, k) for k in (10, 50)}
                measure.emit(line | took | {"candidates": candidates, **recalls})


def dense(dimensions):
    rng = np.random.default_rng(0)
    for items in (2000, 10_000, 20_000):
        centres = rng.standard_normal((items // 20, dimensions))
        points = unit_rows(
            centres[rng.integers(0, len(centres), items)] + 0.7 * rng.standard_normal((items, dimensions))
        )
        asked = unit_rows(points[:300] + 0.02 * rng.standard_normal((300, dimensions)))
        queries = validation.features(asked)
        exact = Neighbours(Searcher([index_layer(validation.features(points), precision="float32")]))
        (_, _, truth), took = timed(lambda near=exact, q=queries: near.search(q, count=100, threads=1), "exact", 300)
        graph, built = timed(lambda p=points: Graph.build(p), "build")
        walked = Neighbours(exact.index, graph)
        (_, found, _), walk = timed(lambda near=walked, q=queries: near.search(q, count=100, threads=1), "graph", 300)
        near = np.einsum("qd,qcd->qc", asked, points[found.reshape(300, 100)])
        line = {"items": items, **took, **built, **walk}
        measure.emit(line | {f"recall@{k}": recall(near, truth.reshape(300, 100), k) for k in (10, 100)})


def compared(queries, items, found):
    """The cosines of what was found, by the sparse features themselves."""
    return np.stack([(items[some] @ queries[[row]].T).toarray().ravel() for row, some in enumerate(found)])


def models(X, Y, Xt, Yt, settings):
    for name, change in settings.items():
        made = carya.XRLinear(n_jobs=2) if change is None else carya.NearestNeighbours(n_jobs=2, **change)
        _, train = timed(lambda one=made: one.fit(X, Y), "train")
        S, predict = timed(lambda one=made: one.predict(Xt, top_k=10), "predict", Xt.shape[0])
        one = measure.latency(lambda row, one=made: one.rank(Xt[[row]]), min(300, Xt.shape[0]))
        with tempfile.TemporaryDirectory() as folder:
            made.save(f"{folder}/model")
            size = measure.folder_bytes(f"{folder}/model") / 1e6
        about = {"model": name, "similarity": getattr(made, "similarity_", None), "mb": size}
        measure.emit({**about, **train, **predict, **one, **measure.precision(Yt, S)})


SETTINGS = {
    "rows": {"over": "rows"},
    "labels": {},
    "rows, votes only": {"over": "rows", "ranker": None},
    "labels, cosines only": {"ranker": None},
    "XRLinear": None,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["libraries", "sparse", "dense", "models"])
    parser.add_argument("features", nargs="?")
    parser.add_argument("--dimensions", type=int, default=256)
    parser.add_argument("--held-out", action="store_true")
    arguments = parser.parse_args()
    if arguments.part == "dense":
        dense(arguments.dimensions)
        return
    if arguments.features is None:
        parser.error("this part needs FEATURES")
    X, Y, Xt, Yt = measure.load(arguments.features)
    if arguments.held_out:
        order = np.random.default_rng(0).permutation(X.shape[0])
        seen, unseen = np.sort(order[X.shape[0] // 10 :]), np.sort(order[: X.shape[0] // 10])
        X, Y, Xt, Yt = X[seen], Y[seen], X[unseen], Y[unseen]
    if arguments.part == "libraries":
        libraries(sp.csr_matrix(X), Y, Xt, arguments.dimensions)
    elif arguments.part == "sparse":
        sparse(X, Y, Xt)
    else:
        models(X, Y, Xt, Yt, SETTINGS)


if __name__ == "__main__":
    main()
