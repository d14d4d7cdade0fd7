"""Rank labels on a Ray cluster, for commands with the --ray option."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carya.cli.options.common import ranks_texts
from carya.cli.options.data_options import DataOptions
from carya.cli.shared.inputs import BATCH_SIZE, counted, naming_input, open_texts, read_features, text_batch
from carya.cli.shared.ranked_rows import FormattedRows, format_rows, rank_texts, ranked_rows
from carya.cluster.rank_rows import Rankings, RankRows, SharedModel
from carya.cluster.ray_engine import RayEngine
from carya.cluster.row_sources import FeatureFiles, GivenRows, RowSource, Shard, TextFiles, count_rows, divide_rows

if TYPE_CHECKING:
    from carya.core.progress import Progress


@dataclasses.dataclass(frozen=True)
class Request:
    """The inputs of `carya predict`.

    Attributes
    ----------
    model : Path
        The folder of the model.
    data : DataOptions
    texts : sequence of str or None
        Texts that were passed as arguments instead of data.
    dense : Path or None
        A file with dense features.
    limits : dict
        The arguments of the model's `predict`.
    form : str
        The output format.
    """

    model: Path
    data: DataOptions
    texts: Sequence[str] | None
    dense: Path | None
    limits: dict[str, Any]
    form: str


class FormatShard:
    """Callable that ranks labels for a shard and formats the output; the first call loads the model."""

    def __init__(self, request: Request, source: RowSource, threads: int) -> None:
        self._model = SharedModel.of(request.model)
        self._source = source
        self._limits = request.limits
        self._form = request.form
        self._name = request.data.name
        self._threads = threads
        self._loaded: Any = None

    def __call__(self, shard: Shard) -> FormattedRows:
        """Return the output lines for the rows of a shard."""
        if self._loaded is None:
            self._loaded = self._model.load(self._threads)
        rows = self._source.read(shard)
        if not ranks_texts(self._loaded):
            with naming_input(self._name):
                S = self._loaded.predict(rows, **self._limits)
            lines = format_rows(ranked_rows(self._loaded, S, shard.first + 1), self._form)
            return FormattedRows(lines, shard.n_rows, [])
        lines, unknown = "", []
        for begin in range(0, shard.n_rows, BATCH_SIZE):  # use the same batches as without a cluster
            batch = text_batch(rows[begin : begin + BATCH_SIZE], shard.first + begin + 1)
            ranked, unknown_texts = rank_texts(self._loaded, batch, self._limits)
            lines += format_rows(ranked, self._form)
            unknown += unknown_texts
        return FormattedRows(lines, shard.n_rows, unknown)


def format_on_cluster(
    address: str, n_jobs: int, model: Any, request: Request, progress: Progress
) -> tuple[Iterator[FormattedRows], int]:
    """Return the formatted output, in the order of the input, and its number of rows.

    Parameters
    ----------
    address : str
        The address of the cluster.
    n_jobs : int
        The number of CPUs per worker; -1 means 1.
    model : the loaded model
    request : Request
    progress : Progress
    """
    engine = _engine(address, n_jobs)
    data, rows = request.data, None
    if not ranks_texts(model):
        with progress.stage("read features"):
            rows = read_features(data, sum(model.widths_), request.model, request.dense)
        n_rows = count_rows(rows)
    elif request.texts is not None:
        rows = list(request.texts)
        n_rows = len(rows)
    else:
        with progress.stage("read texts") as report:
            texts = counted(open_texts(data, request.model), report)
            rows = None if _is_on_disk(data) else list(texts)
            n_rows = sum(1 for _ in texts) if rows is None else len(rows)
    are_files = request.texts is None and _is_on_disk(data)
    source = _files(data, model, request.model, request.dense) if are_files else GivenRows()
    shards = divide_rows(n_rows, BATCH_SIZE, None if are_files else rows)
    return engine.map(FormatShard(request, source, engine.threads_per_task), shards), n_rows


def rank_on_cluster(
    address: str,
    model: Any,
    path: Path,
    data: DataOptions,
    dense: Path | None,
    rows: Any,
    options: dict[str, Any],
    batch_size: int,
) -> Iterator[Rankings]:
    """Yield the ranked labels for consecutive rows of a data set.

    Parameters
    ----------
    address : str
        The address of the cluster.
    model : the loaded model
    path : Path
        The folder of the model.
    data : DataOptions
    dense : Path or None
        A file with dense features.
    rows : list of str or features
        The rows of the data set; they are sent to the workers if the workers cannot read them from files.
    options : dict
        The arguments of the model's `predict`.
    batch_size : int
        The number of rows per call to `predict`.
    """
    engine = _engine(address)
    are_files = _is_on_disk(data)
    source = _files(data, model, path, dense) if are_files else GivenRows()
    function = RankRows(SharedModel.of(path), source, options, batch_size, engine.threads_per_task)
    return engine.map(function, divide_rows(count_rows(rows), batch_size, None if are_files else rows))


def _engine(address: str, n_jobs: int = -1) -> RayEngine:
    engine = RayEngine(address, threads_per_task=max(n_jobs, 1))
    engine.check_dependencies()
    return engine


def _is_on_disk(data: DataOptions) -> bool:
    """Return whether data can be read several times, unlike standard input and pipes."""
    path = Path(data.source)
    return data.source != "-" and (path.is_file() or path.is_dir())


def _files(data: DataOptions, model: Any, path: Path, dense: Path | None) -> RowSource:
    """Return a source from which each worker reads its rows of a text or feature data set."""
    # Worker processes have different working directories, and mapping proxies cannot be pickled.
    absolute = dataclasses.replace(
        data,
        source=str(Path(data.source).absolute()),
        labels=None if data.labels is None else data.labels.absolute(),
        vocabulary=None if data.vocabulary is None else data.vocabulary.absolute(),
        defaults=dict(data.defaults),
    )
    if ranks_texts(model):
        open_rows = absolute.open_texts if data.reads_labels else partial(open_texts, absolute)
        return TextFiles(Path(absolute.source), partial(open_rows, path))
    dense = None if dense is None else dense.absolute()
    return FeatureFiles(Path(absolute.source), partial(read_features, absolute, sum(model.widths_), path, dense))
