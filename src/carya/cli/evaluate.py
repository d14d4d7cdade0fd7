"""`carya evaluate`: measure the ranking metrics and the speed of a saved model."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import (
    PATH,
    beam_width_option,
    command_progress,
    dense_option,
    json_option,
    model_argument,
    quiet_option,
    ranks_texts,
    ray_option,
    record_option,
)
from carya.cli.options.data_options import DataOptions, data_options, was_passed
from carya.cli.options.rule_type import RuleType
from carya.cli.shared.inputs import check_common_labels, counted, load_model, naming_input
from carya.cli.shared.outputs import check_recording
from carya.cli.shared.reports import (
    EvaluatedRows,
    check_page_path,
    check_table_path,
    print_errors,
    print_report,
    worst_errors,
    write_label_report,
    write_report_page,
)
from carya.core.rules import Integer, Real
from carya.errors import InputError, ParameterError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from carya.core.inputs.labels import CoercedLabels
    from carya.core.matrices import Csr
    from carya.core.progress import Progress
    from carya.data.vocabulary import Vocabulary
    from carya.models.xr_linear.model import XRLinear

_KS = (1, 3, 5, 10)
#: The table rows and the corresponding metric names in :func:`carya.metrics.report`.
_METRICS = {
    "precision": "P",
    "recall": "R",
    "F1": "F1",
    "nDCG": "nDCG",
    "PSP": "PSP",
    "PSnDCG": "PSnDCG",
    "micro-F1": "micro-F1",
    "macro-precision": "macro-P",
    "macro-recall": "macro-R",
    "macro-F1": "macro-F1",
    "coverage": "coverage",
}
_BATCH = 8192  # rows per call to `predict`
_CALIBRATION_K = 5  # number of suggestions per row whose probabilities are evaluated


@command(
    "evaluate",
    examples=[
        "carya evaluate model/ data/",
        """carya evaluate model/ test.jsonl --json | jq '.["P@1"]'""",
        "carya evaluate model/ test.jsonl --errors 10 --per-label labels.csv",
        "carya evaluate model/ new.jsonl --report report.html",
        "carya evaluate model/ X.test.npz Y.test.npz --train Y.train.npz --weight-dtypes",
        "carya evaluate /shared/model /shared/test.jsonl --ray auto",
    ],
)
@model_argument
@data_options(part="test")
@argument(
    "label_matrix",
    type=PATH,
    required=False,
    metavar="[LABEL_MATRIX]",
    help="Label matrix (.npz or .npy) of shape (rows, labels), if DATA is a feature matrix.",
)
@dense_option
@option(
    "--train",
    type=PATH,
    metavar="DATA",
    heading="Data",
    help="Training data, or its label matrix, for PSP and PSnDCG; not needed if the model stores label frequencies.",
)
@beam_width_option
@ray_option
@option(
    "--propensity-a",
    type=RuleType(Real(0)),
    default=0.55,
    show_default=True,
    metavar="NUMBER",
    heading="Metrics",
    help="Constant A of the propensity model: 0.5 for Wikipedia data, 0.6 for Amazon data.",
)
@option(
    "--propensity-b",
    type=RuleType(Real(0, open_low=True)),
    default=1.5,
    show_default=True,
    metavar="NUMBER",
    heading="Metrics",
    help="Constant B of the propensity model: 0.4 for Wikipedia data, 2.6 for Amazon data.",
)
@option(
    "--per-label",
    type=PATH,
    metavar="FILE",
    heading="Output",
    help="Write the support, precision, recall and F1 of each label, with 95% confidence intervals, to a .csv, .tsv "
    "or .jsonl file.",
)
@option(
    "--per-label-k",
    type=RuleType(Integer(1, max(_KS))),
    default=5,
    show_default=True,
    metavar="INTEGER",
    heading="Output",
    help="Number of suggestions per row to count for --per-label and --report.",
)
@option(
    "--report",
    type=PATH,
    metavar="FILE",
    heading="Output",
    help="Write an HTML page (.html) with over-suggested labels, metrics for all labels, and the label and vocabulary "
    "shift since training.",
)
@option(
    "--errors",
    "n_errors",
    type=RuleType(Integer(1)),
    metavar="INTEGER",
    heading="Output",
    help="Show this number of rows with the lowest nDCG, with their texts and suggestions.",
)
@option(
    "--weight-dtypes",
    is_flag=True,
    heading="Output",
    help="Also evaluate the model with its weights converted to each smaller data type; requires a model with a single "
    "tree. int8, the default of `carya train`, is the smallest.",
)
@record_option("Also measure latency, recall per beam width, and reliability; record all results for `carya report`.")
@quiet_option
@json_option
def evaluate(
    model: Path,
    data: DataOptions,
    label_matrix: Path | None,
    dense: Path | None,
    train: Path | None,
    beam_width: int | None,
    ray: str | None,
    propensity_a: float,
    propensity_b: float,
    per_label: Path | None,
    per_label_k: int,
    report: Path | None,
    n_errors: int | None,
    weight_dtypes: bool,
    record: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure precision, recall, F1, nDCG, coverage and speed.

    Labels that do not occur in the training data count as false negatives. Precision, recall and F1 are means over
    rows; micro-F1 is computed from total counts, and macro metrics are means over labels. PSP and PSnDCG weight each
    label by its inverse propensity, which is estimated from its frequency in the training data. For calibrated models,
    ECE@5 is the expected calibration error of the probabilities. docs/evaluation.md defines all metrics.
    """
    from carya import metrics
    from carya.models.calibration.reliability import reliability
    from carya.text.base import warn_unknown_texts
    from carya.text.text_ranker import TextRanker

    _check_options(per_label, report, ray, weight_dtypes, record)
    loaded = load_model(model)
    vectorizer = next(iter(getattr(loaded, "vectorizers_", ())), None)
    data = data.with_model(loaded)
    with command_progress(quiet) as progress:
        X, rows = _read(loaded, data, model, label_matrix, dense, progress)
        counts, n_training_rows = _training_counts(loaded, data, train, rows, progress)
        complete, queries = loaded, X
        if ray is None and isinstance(loaded, TextRanker):
            with progress.stage("vectorize"):
                X, loaded = loaded.vectorizer_.transform(X), loaded.model_
            warn_unknown_texts(X.indptr)
        if weight_dtypes and not hasattr(loaded, "with_weight_dtype"):
            raise InputError(
                f"--weight-dtypes requires a model with a single tree, but {model} contains {type(loaded).__name__}."
            )
        propensity = None
        if counts is not None:
            propensity = metrics.propensities_from_counts(counts, n_training_rows, a=propensity_a, b=propensity_b)
        with naming_input(data.name):
            if ray is None:
                S, seconds = _rank(loaded, X, beam_width, progress)
            else:
                S, seconds = _rank_on_cluster(ray, loaded, model, data, dense, X, beam_width, progress)
        result, S = _measure(S, seconds, rows.Y, propensity, progress)
        calibration = getattr(complete, "calibration_", None)
        measured_reliability = None if calibration is None else reliability(calibration, rows.Y, S, k=_CALIBRATION_K)
        if measured_reliability is not None:
            result[f"ECE@{_CALIBRATION_K}"] = measured_reliability["error"]
            result["reliability"] = measured_reliability["bins"]
        if record is not None:
            with progress.stage("record"):
                _record(record, complete, model, data.name, queries, rows.Y, S, counts, result)
        if weight_dtypes:
            result["weight_dtypes"] = {
                dtype: {
                    "weight_bytes": size,
                    **_measure(*_rank(converted, X, beam_width, progress), rows.Y, propensity, progress)[0],
                }
                for dtype, size, converted in _smaller_weight_dtypes(loaded)
            }
    if per_label is not None:
        write_label_report(per_label, rows, S, per_label_k, counts)
    if report is not None:
        title = f"{model.name} on {Path(data.name).name}"
        result["report"] = write_report_page(
            report, title, rows, S, per_label_k, counts, n_training_rows, vectorizer, measured_reliability
        )
    if n_errors is not None:
        result["errors"] = worst_errors(rows, S, max(_KS), n_errors)
    if as_json:
        click.echo(json.dumps(result, indent=1, ensure_ascii=False))
        return
    _print(model, result, report, has_propensities=propensity is not None)


def _check_options(
    per_label: Path | None, report: Path | None, ray: str | None, weight_dtypes: bool, record: Path | None
) -> None:
    """Raise an error if options are invalid, contradict each other or have no effect."""
    check_recording(record)
    if record is not None and ray is not None:
        raise ParameterError("--record cannot be combined with --ray. Omit --ray to measure latencies on this machine.")
    if per_label is not None:
        check_table_path(per_label)
    elif was_passed("per_label_k") and report is None:
        raise ParameterError("--per-label-k requires --per-label or --report.")
    if report is not None:
        check_page_path(report)
    if ray is not None and weight_dtypes:
        raise ParameterError(
            "--weight-dtypes cannot be combined with --ray. Omit --ray to compare data types on this machine."
        )


def _read(
    loaded: Any, data: DataOptions, model: Path, label_matrix: Path | None, dense: Path | None, progress: Progress
) -> tuple[Any, EvaluatedRows]:
    """Return the input of the model (texts or features), and the evaluated rows with their labels."""
    X: Any
    if ranks_texts(loaded):
        if label_matrix is not None or dense is not None:
            raise InputError(f"{model} was trained on texts. Pass texts and their labels instead of matrices.")
        rows = _read_texts(loaded, data, model, progress)
        X = rows.texts
    else:
        with progress.stage("read features"):
            X, rows = _read_matrices(loaded, data, model, label_matrix, dense)
    if rows.Y.shape[0] == 0:
        raise InputError(f"{data.name} contains no rows. At least one is required.")
    if rows.Y.nnz == 0:
        raise InputError(f"{label_matrix or data.name} contains no labels. At least one is required.")
    return X, rows


def _read_texts(ranker: Any, data: DataOptions, model: Path, progress: Progress) -> EvaluatedRows:
    """Read the texts and their label matrix, which has additional columns for labels unknown to the ranker."""
    texts: list[str] = []
    labels: list[tuple[str, ...]] = []
    text_ids: list[str | None] = []
    with progress.stage("read texts") as report:
        for example in counted(data.open_texts(model), report):
            texts.append(example.text)
            labels.append(example.labels)
            text_ids.append(example.id)
    if not texts:
        raise InputError(f"{data.name} contains no rows. At least one is required.")
    check_common_labels(ranker, labels, data.name, model)
    Y, ids = ranker.label_matrix_and_ids(labels)
    return EvaluatedRows(Y, ids, ranker.label_names_, texts, text_ids)


def _read_matrices(
    model: Any, data: DataOptions, path: Path, label_matrix: Path | None, dense: Path | None
) -> tuple[Any, EvaluatedRows]:
    """Return the features, and the evaluated rows with their labels."""
    from carya.core import lazy_sparse as sp
    from carya.core import validation
    from carya.data.corpus import Matrices
    from carya.data.io.files import MATRIX_SUFFIXES
    from carya.data.io.matrix_files import read_matrix

    if label_matrix is not None and data.labels is not None:
        raise InputError("Pass the labels either as LABEL_MATRIX or with --labels, not both.")
    if label_matrix is not None:
        X, Y, vocabulary = read_matrix(data.source), read_matrix(label_matrix), data.read_vocabulary()
    elif Path(data.source).suffix in MATRIX_SUFFIXES and data.labels is None:
        raise InputError(
            f"{data.name} contains only features. Also pass the labels: carya evaluate {path} {data.name} Y.npz"
        )
    else:
        matrices = data.open()
        if not isinstance(matrices, Matrices):
            raise InputError(f"{data.name} contains texts, but {path} was trained on features. Pass features.")
        X, Y, vocabulary = matrices.X, matrices.Y, matrices.vocabulary
        if not matrices.widths_known:  # trailing empty columns may be missing from the file
            X.resize((X.shape[0], max(X.shape[1], sum(model.widths_))))
            if vocabulary is None:
                Y.resize((Y.shape[0], max(Y.shape[1], model.n_labels_)))
    labels = _match_columns(
        model, validation.check_labels(Y, str(label_matrix or data.name)), vocabulary, str(label_matrix or data.name)
    )
    checked = labels.matrix.to_scipy()
    blocks = [X] if dense is None else [X, read_matrix(dense)]
    for block, name in zip(blocks, (data.name, str(dense)), strict=False):
        if block.ndim != 2 or block.shape[0] != checked.shape[0]:
            raise InputError(
                f"{name} has shape {block.shape}, but {label_matrix or data.name} has {checked.shape[0]} rows. Both "
                "must be matrices with the same number of rows."
            )
    X = X.tocsr() if sp.issparse(X) else X  # CSR matrices can be sliced by row
    return X if dense is None else (X, blocks[1]), EvaluatedRows(checked, labels.all_ids())


def _match_columns(
    model: Any, Y: Csr, vocabulary: Vocabulary | None, source: str, known: Sequence[str] | None = None
) -> CoercedLabels:
    """Reorder label columns to match the labels of a feature model, by name if the columns and the labels have names.

    Parameters
    ----------
    known : sequence of str, optional
        The model's labels, followed by any other labels; by default, only the model's labels.
    """
    from carya.core.inputs.labels import CoercedLabels, align_columns
    from carya.core.strings import NumberStrings

    is_named = not isinstance(model.labels_, NumberStrings)
    if vocabulary is not None and len(vocabulary) != Y.cols:
        raise InputError(
            f"{source} has {Y.cols} columns, but {vocabulary.source} has {len(vocabulary)} labels. Pass a vocabulary "
            "with one label per column."
        )
    if vocabulary is not None and is_named:
        return align_columns(Y, vocabulary.ids, known or model.labels_, keep_unknown=True)
    if Y.cols < model.n_labels_:
        raise InputError(
            f"{source} has {Y.cols} columns, but the model has {model.n_labels_} labels. Pass one column per label, in "
            "the same order as in training."
        )
    if is_named and Y.cols > model.n_labels_:
        raise InputError(
            f"{source} has {Y.cols} columns without names, but the model has {model.n_labels_} labels with names. Pass "
            "the column names with --vocabulary."
        )
    return CoercedLabels(Y, list(model.labels_) if is_named else None if vocabulary is None else vocabulary.ids)


def _training_counts(
    model: Any, data: DataOptions, train: Path | None, rows: EvaluatedRows, progress: Progress
) -> tuple[NDArray[np.int64] | None, int]:
    """Return the number of training rows per column of Y (None if unknown) and the total number of training rows."""
    import numpy as np

    counts: NDArray[np.int64] | None
    if train is None:
        label_set = getattr(model, "label_set_", None)
        counts, n_rows = (None, None) if label_set is None else (label_set.counts, label_set.n_texts)
    else:
        with progress.stage("read training labels") as report:
            counts, n_rows = _count_labels(model, data, train, rows, report)
    if counts is None:
        return None, 0
    n_columns = rows.Y.shape[1]  # additional columns are labels that do not occur in the training data
    padded = np.zeros(n_columns, np.int64)
    padded[: min(counts.size, n_columns)] = counts[:n_columns]
    return padded, int(n_rows or 0)


def _count_labels(
    model: Any, data: DataOptions, train: Path, rows: EvaluatedRows, report: Any
) -> tuple[NDArray[np.int64], int]:
    """Count the training rows per label."""
    from carya.core.matrices import Csr
    from carya.data.corpus import Matrices
    from carya.data.io.files import MATRIX_SUFFIXES
    from carya.data.io.matrix_files import read_labels
    from carya.text.labels import label_matrix

    if train.suffix in MATRIX_SUFFIXES:
        if ranks_texts(model):
            raise InputError(f"--train must contain texts, like the model's training data, but {train} is a matrix.")
        Y = _match_columns(model, read_labels(train), data.read_vocabulary(), str(train), rows.labels).matrix
        counts, n_rows = Y.column_counts(), Y.rows
    else:
        training = dataclasses.replace(data, source=str(train), part="train", labels=None)
        if training.contains_features() == ranks_texts(model):
            wrong, right = ("features", "texts") if ranks_texts(model) else ("texts", "features")
            raise InputError(
                f"--train must contain {right}, like the model's training data, but {train} contains {wrong}."
            )
        opened = training.open()
        if isinstance(opened, Matrices):
            if not opened.widths_known and opened.vocabulary is None:
                opened.Y.resize((opened.Y.shape[0], max(opened.Y.shape[1], model.n_labels_)))
            labels = _match_columns(model, Csr.of_scipy(opened.Y), opened.vocabulary, str(train), rows.labels)
            matrix = labels.matrix.to_scipy()
        else:
            matrix, _ = label_matrix((example.labels for example in counted(opened, report)), rows.labels)
        counts, n_rows = Csr.of_scipy(matrix).column_counts(), matrix.shape[0]
    if not counts.any():
        raise InputError(
            f"--train {train} contains no label of the model or of the evaluated data. Pass the data that the model "
            "was trained on."
        )
    return counts, n_rows


def _rank(model: Any, X: Any, beam_width: int | None, progress: Progress) -> tuple[Any, float]:
    """Return the scores and the ranking time in seconds."""
    import scipy.sparse as sp

    n_rows = X[0].shape[0] if isinstance(X, tuple) else len(X) if isinstance(X, list) else X.shape[0]
    parts = []
    seconds = 0.0
    with progress.stage("rank") as report:
        for begin in range(0, n_rows, _BATCH):
            end = begin + _BATCH
            block = tuple(part[begin:end] for part in X) if isinstance(X, tuple) else X[begin:end]
            started = time.perf_counter()
            parts.append(model.predict(block, top_k=max(_KS), beam_width=beam_width))
            seconds += time.perf_counter() - started
            if report is not None:
                report(min(end, n_rows), n_rows)
    return parts[0] if len(parts) == 1 else sp.vstack(parts, format="csr"), seconds


def _rank_on_cluster(
    address: str,
    loaded: Any,
    model: Path,
    data: DataOptions,
    dense: Path | None,
    X: Any,
    beam_width: int | None,
    progress: Progress,
) -> tuple[Any, float]:
    """Return the scores and the total ranking time of all workers, in seconds."""
    import scipy.sparse as sp

    from carya.cli.shared.cluster import rank_on_cluster
    from carya.cluster.rank_rows import concatenate
    from carya.text.base import warn_unknown_texts

    options = {"top_k": max(_KS), "beam_width": beam_width}
    with progress.stage("rank") as report:
        parts = list(counted(rank_on_cluster(address, loaded, model, data, dense, X, options, _BATCH), report, every=1))
    indptr, labels, scores = concatenate([(part.indptr, part.labels, part.scores) for part in parts])
    if ranks_texts(loaded):
        warn_unknown_texts(indptr)
    S = sp.csr_array((scores, labels, indptr), shape=(indptr.size - 1, len(loaded.labels_)))
    return S, sum(part.seconds for part in parts)


def _measure(S: Any, seconds: float, Y: Any, propensity: Any, progress: Progress) -> tuple[dict[str, Any], Any]:
    """Return the metrics, and the scores with additional columns for the labels that are unknown to the model."""
    from carya import metrics

    n_rows = Y.shape[0]
    if Y.shape[1] > S.shape[1]:  # labels unknown to the model
        S.resize((n_rows, Y.shape[1]))
    with progress.stage("measure"):
        measured = metrics.report(Y, S, k=_KS, propensity=propensity)
    return {"rows": n_rows, "microseconds_per_row": 1e6 * seconds / n_rows, **measured}, S


def _record(
    run: Path,
    model: Any,
    path: Path,
    data: str,
    queries: Any,
    Y: Any,
    S: Any,
    counts: NDArray[np.int64] | None,
    result: dict[str, Any],
) -> None:
    """Measure all values shown in a report, and write them to a run folder."""
    from carya.core.storage import size_on_disk
    from carya.report.measurement import measure_run
    from carya.report.run import record_evaluation

    seconds_per_row = result["microseconds_per_row"] / 1e6
    measured = measure_run(model, queries, Y, S, seconds_per_row=seconds_per_row, counts=counts)
    description = {
        "model": getattr(model, "model_kind_", type(model).__name__),
        "data": data,
        "rows": Y.shape[0],
        "labels": len(model.labels_),
        "bytes": size_on_disk(path),
        "metrics": result,
    }
    record_evaluation(run, description | measured)


def _smaller_weight_dtypes(model: XRLinear) -> Iterator[tuple[str, int, XRLinear]]:
    """Yield the model's weight data type and every smaller one, with the total size of the weights in bytes and the
    converted model.
    """
    from carya.trees.layer import WEIGHT_DTYPES

    largest = min(WEIGHT_DTYPES.index(layer.weights.dtype) for layer in model.layers_)
    for dtype in WEIGHT_DTYPES[largest:]:
        converted = model.with_weight_dtype(dtype)
        yield dtype, sum(layer.weights.n_bytes for layer in converted.layers_), converted


def _print(model: Path, result: dict[str, Any], report: Path | None, *, has_propensities: bool) -> None:
    _print_metrics(model, result)
    if not has_propensities:
        click.echo(
            "For PSP and PSnDCG, pass --train. These metrics require the label frequencies in the training data."
        )
    if report is not None:
        print_report(result["report"])
        click.echo(f"{report}: label report")
    if "errors" in result:
        print_errors(result["errors"])


def _print_metrics(model: Path, result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    click.echo(f"{model} on {result['rows']:,} rows:")
    table = Table("%", *(f"@{k}" for k in _KS))
    for name, key in _METRICS.items():
        if f"{key}@1" in result:
            table.add_row(name, *(f"{100 * result[f'{key}@{k}']:.2f}" for k in _KS))
    console.print(table)
    error = result.get(f"ECE@{_CALIBRATION_K}")
    if error is not None:
        click.echo(f"expected calibration error of the top-{_CALIBRATION_K} probabilities: {100 * error:.2f}%")
    click.echo(f"{result['microseconds_per_row']:.1f} µs per row in a batch")
    if "weight_dtypes" not in result:
        return
    first = next(iter(result["weight_dtypes"].values()))
    keys = ("P@1", "P@3", "P@5")
    table = Table("weights", "bytes", *keys, "µs per row", title="Data types of the weights, and the change in P@k")
    for dtype, measured in result["weight_dtypes"].items():
        table.add_row(
            dtype,
            f"{measured['weight_bytes']:,}",
            *(f"{100 * measured[key]:.2f} {100 * (measured[key] - first[key]):+.2f}" for key in keys),
            f"{measured['microseconds_per_row']:.1f}",
        )
    console.print(table)
