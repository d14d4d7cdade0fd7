"""Rank labels for the rows of a data set on the workers of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from carya.cluster.rank_rows import Rankings, RankRows, SharedModel, concatenate
from carya.cluster.row_sources import FeatureFiles, GivenRows, RowSource, Shard, TextFiles, count_rows, divide_rows
from carya.core import lazy_sparse as sp
from carya.data.corpus import Corpus, Matrices
from carya.data.io.files import MATRIX_SUFFIXES
from carya.data.io.matrix_files import read_matrix
from carya.data.read_write import open_data
from carya.errors import InputError
from carya.loading import load
from carya.text.base import BaseTextRanker, warn_unknown_texts

#: A function that applies another function to each item on the workers of a cluster; yields the results in item order.
Map = Callable[[Any, Sequence[Any]], Iterator[Any]]

BATCH_SIZE = 2048


def predict_rows(
    map_items: Map,
    model: str | os.PathLike[str],
    data: str | os.PathLike[str] | Sequence[str],
    options: dict[str, Any],
    reading: dict[str, Any],
    threads: int,
) -> sp.csr_array:
    """Return the scores of the best labels for each row; see :meth:`carya.RayEngine.predict`."""
    shared, loaded = SharedModel.of(model), load(model)
    if isinstance(data, str | os.PathLike):
        source, shards = _open_files(loaded, Path(data).absolute(), reading)
    elif reading:
        raise InputError(f"{next(iter(reading))} applies only to files, but data is a list of texts. Pass a path.")
    else:
        source, shards = _given_texts(loaded, data)
    function = RankRows(shared, source, options, BATCH_SIZE, threads)
    parts: Iterable[Rankings] = map_items(function, shards)
    indptr, labels, scores = concatenate([(part.indptr, part.labels, part.scores) for part in parts])
    if isinstance(loaded, BaseTextRanker) and options["min_score"] is None:
        warn_unknown_texts(indptr, stacklevel=3)
    return sp.csr_array((scores, labels, indptr), shape=(indptr.size - 1, len(loaded.labels_)))


def _given_texts(model: Any, texts: Sequence[str]) -> tuple[RowSource, list[Shard]]:
    if not isinstance(model, BaseTextRanker) or not all(isinstance(text, str) for text in texts):
        raise InputError("data must be a path or, for a text model, a list of texts.")
    return GivenRows(), divide_rows(len(texts), BATCH_SIZE, list(texts))


def _open_files(model: Any, path: Path, reading: dict[str, Any]) -> tuple[RowSource, list[Shard]]:
    """Return the row source of a data set, and the shards into which its rows are divided."""
    if path.suffix in MATRIX_SUFFIXES and "labels" not in reading:
        features: Callable[[], Any] = partial(read_matrix, path)
        return FeatureFiles(path, features), divide_rows(count_rows(features()), BATCH_SIZE)
    options = {"part": "test", "label_column": None, "defaults": dict(model.data_options_)} | reading
    opened = open_data(path, **options)
    if isinstance(opened, Matrices) == isinstance(model, BaseTextRanker):
        wrong, right = ("texts", "features") if isinstance(opened, Corpus) else ("features", "texts")
        raise InputError(f"{path} contains {wrong}, but the model was trained on {right}. Pass {right}.")
    if isinstance(opened, Matrices):
        features = partial(_read_features, path, options, sum(model.widths_))
        return FeatureFiles(path, features), divide_rows(count_rows(opened.X), BATCH_SIZE)
    n_rows = sum(1 for _ in opened)
    return TextFiles(path, partial(open_data, path, **options)), divide_rows(n_rows, BATCH_SIZE)


def _read_features(path: Path, options: dict[str, Any], n_features: int) -> Any:
    matrices: Any = open_data(path, **options)
    if not matrices.widths_known:  # trailing empty columns may be missing from the file
        matrices.X.resize((matrices.X.shape[0], max(matrices.X.shape[1], n_features)))
    return matrices.X
