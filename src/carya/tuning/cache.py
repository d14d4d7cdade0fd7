"""File cache for features and label trees that are shared by several trials."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr, Features
from carya.core.parameters import read_settings, to_json
from carya.core.progress import Progress
from carya.indexing import Indexer
from carya.models.xr_linear.model import XRLinear
from carya.text.serialize import pack_vectorizer
from carya.text.tfidf import Tfidf
from carya.trees.label_tree import LabelTree
from carya.tuning.held_out import HeldOutData, read_arrays, triple, write_arrays

_TIMED_TEXTS = 50
_MAX_BYTES = 1_500_000_000


@dataclass(frozen=True, eq=False)
class TrialFeatures:
    """Features of the training and validation rows.

    Attributes
    ----------
    key : str
        A hash of the vectorizer's settings and the number of training rows.
    train, validation : Features
    labels : Csr
        The labels of the training rows, without empty columns.
    columns : ndarray of int32
        The label index of each column of `labels`.
    label_features : Csr or None
        The features of the label names.
    widths : tuple of int
        The number of features per analyzer.
    vectorizer_bytes : int
    vectorizer_us : float
        The mean time to vectorize one text, in microseconds.
    """

    key: str
    train: Features
    validation: Features
    labels: Csr
    columns: NDArray[np.int32]
    label_features: Csr | None
    widths: tuple[int, ...]
    vectorizer_bytes: int
    vectorizer_us: float


class TrialCache:
    """Cache of features and label trees in a folder; if it is full, the least recently used entries are deleted.

    Parameters
    ----------
    data : HeldOutData
    threads : int
    max_bytes : int
        The maximum total size of all entries.
    """

    def __init__(self, data: HeldOutData, *, threads: int, max_bytes: int = _MAX_BYTES) -> None:
        self._data, self._threads, self._max_bytes = data, threads, max_bytes
        self._root = data.folder / "cache"
        self.hits = 0
        self.misses = 0

    def features(self, vectorizer: Tfidf | None, n_rows: int) -> TrialFeatures:
        """Return the features of `n_rows` training rows and of the corresponding validation rows.

        Parameters
        ----------
        vectorizer : Tfidf or None
            The unfitted vectorizer; None if the rows are not texts.
        n_rows : int
            The number of training rows.
        """
        settings = None if vectorizer is None else to_json(list(vectorizer.get_params(deep=False).items()))
        key = _hash("features", settings, n_rows)
        rows = self._data.training_rows(n_rows)
        labels, columns = _used_columns(self._data.labels.take(rows))
        if vectorizer is None:
            assert self._data.features is not None
            every = self._data.features
            return TrialFeatures(
                key,
                every.take(rows),
                every.take(self._data.validation_rows(n_rows)),
                labels,
                columns,
                None,
                every.widths,
                0,
                0.0,
            )

        def compute(folder: Path) -> None:
            self._vectorize(vectorizer, rows, self._data.validation_rows(n_rows), columns, folder)

        arrays, values = self._read(key, compute)
        matrices = {
            name: Csr.of(*triple(arrays, name), values["n_features"])
            for name in ("train", "validation", "names")
            if f"{name}.indptr" in arrays
        }
        return TrialFeatures(
            key,
            Features.of(matrices["train"]),
            Features.of(matrices["validation"]),
            labels,
            columns,
            matrices.get("names"),
            tuple(values["widths"]),
            values["bytes"],
            values["microseconds"],
        )

    def tree(self, model: XRLinear, features: TrialFeatures) -> LabelTree:
        """Return the label tree for a model; build it if it is not in the cache."""
        indexer = read_settings(Indexer, model)
        key = _hash("tree", features.key, to_json([repr(value) for value in vars(indexer).values()]))

        def compute(folder: Path) -> None:
            built = indexer.build(
                features.train, features.labels.with_values(1), threads=self._threads, progress=Progress()
            )
            parents: list[NDArray[Any]] = list(built.parents)
            write_arrays(folder, {f"{level:02}": array for level, array in enumerate(parents)}, {})

        arrays, _ = self._read(key, compute)
        return LabelTree([np.asarray(arrays[name]) for name in sorted(arrays)])

    def _vectorize(
        self,
        vectorizer: Tfidf,
        rows: NDArray[np.int64],
        validation_rows: NDArray[np.int64],
        columns: NDArray[np.int32],
        folder: Path,
    ) -> None:
        data = self._data
        fitted = vectorizer.clone(n_jobs=self._threads, verbose=False)
        validation = data.texts_of(validation_rows)
        parts: dict[str, tuple[NDArray[Any], ...]] = {
            "train": fitted.fit_rows(data.texts_of(rows)),
            "validation": fitted.rows(validation),
        }
        if data.label_texts is not None:
            parts["names"] = fitted.rows([data.label_texts[label] for label in columns.tolist()])
        timed = validation[:_TIMED_TEXTS]
        started = time.perf_counter()
        for text in timed:
            fitted.row(text)
        microseconds = 1e6 * (time.perf_counter() - started) / max(1, len(timed))
        arrays = {
            f"{name}.{part}": array
            for name, arrays_of_part in parts.items()
            for part, array in zip(("indptr", "indices", "values"), arrays_of_part, strict=True)
        }
        values = {
            "n_features": fitted.n_features_,
            "widths": list(fitted.widths_),
            "bytes": sum(array.nbytes for array in pack_vectorizer(fitted).arrays.values()),
            "microseconds": microseconds,
        }
        write_arrays(folder, arrays, values)

    def _read(self, key: str, compute: Callable[[Path], None]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the contents of an entry; compute the entry if it does not exist."""
        try:
            return read_arrays(self._get(key, compute))
        except FileNotFoundError:  # another process has deleted the entry in the meantime
            return read_arrays(self._get(key, compute))

    def _get(self, key: str, compute: Callable[[Path], None]) -> Path:
        """Return the folder of an entry; compute the entry if it does not exist."""
        folder = self._root / key
        if folder.is_dir():
            self.hits += 1
            os.utime(folder)
            return folder
        self.misses += 1
        self._root.mkdir(exist_ok=True)
        # Process ids are not unique on a cluster, whose machines share the folder.
        temporary = self._root / f"{key}.{secrets.token_hex(8)}"
        compute(temporary)
        try:
            temporary.rename(folder)
        except OSError:  # another process has computed the same entry
            shutil.rmtree(temporary, ignore_errors=True)
        self._delete_oldest(folder)
        return folder

    def _delete_oldest(self, kept: Path) -> None:
        entries = [path for path in self._root.iterdir() if "." not in path.name]
        sizes = {path: sum(file.stat().st_size for file in path.glob("*")) for path in entries}
        total = sum(sizes.values())
        for path in sorted(entries, key=lambda path: path.stat().st_mtime):
            if total <= self._max_bytes:
                break
            if path != kept:
                shutil.rmtree(path, ignore_errors=True)
                total -= sizes[path]


def _used_columns(labels: Csr) -> tuple[Csr, NDArray[np.int32]]:
    """Return the nonempty columns of a label matrix, and their indices."""
    used = np.flatnonzero(labels.column_counts())
    to = np.zeros(labels.cols, np.int32)
    to[used] = np.arange(used.size, dtype=np.int32)
    return labels.merge_columns(to, max(1, used.size)).with_values(1), used.astype(np.int32)


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
