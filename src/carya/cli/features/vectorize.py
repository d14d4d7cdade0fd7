"""`carya vectorize`: convert texts to a TF-IDF matrix."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import Option, command, option
from carya.cli.options.common import PATH, command_progress, force_option, json_option, quiet_option, ranks_texts
from carya.cli.options.data_options import DataOptions, data_options
from carya.cli.options.parameter_flags import flag, given_parameters, parameter_options
from carya.cli.shared.inputs import text_batches
from carya.cli.shared.outputs import check_matrix_output, check_model_output, check_not_input
from carya.errors import InputError, ParameterError, SaveError

if TYPE_CHECKING:
    from carya.core.progress import Progress
    from carya.text.tfidf import Tfidf


def _generate_options() -> list[Option]:
    """Return the options for the parameters of the vectorizer."""
    from carya.text.tfidf import Tfidf

    return parameter_options([Tfidf], {"text features": "Text features", "other": "Text features"})


@command(
    "vectorize",
    generate_options=_generate_options,
    examples=[
        "carya vectorize train.jsonl -o X.train.npz --save-vectorizer tfidf/",
        "carya vectorize test.jsonl -o X.test.npz --model tfidf/",
        "carya vectorize texts.txt -o X.npz --model model/",
        "carya vectorize train.csv -o X.npz --text-column title,abstract --analyzer char_wb --ngram-range 3,5",
    ],
)
@data_options(part="train", labels=False, features=False)
@option(
    "--model",
    type=PATH,
    metavar="FOLDER",
    heading="Text features",
    help="Saved model or vectorizer to use; by default, the vocabulary is learned from DATA.",
)
@option(
    "--out",
    "-o",
    type=PATH,
    required=True,
    metavar="FILE",
    heading="Output",
    help="Output file (.npz) for the matrix of shape (texts, terms).",
)
@option("--save-vectorizer", type=PATH, metavar="FOLDER", heading="Output", help="Folder to save a new vectorizer to.")
@force_option
@quiet_option
@json_option
@click.pass_context
def vectorize(
    context: click.Context,
    /,
    data: DataOptions,
    model: Path | None,
    out: Path,
    save_vectorizer: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **_parameters: Any,
) -> None:
    """Convert texts to a matrix of TF-IDF features.

    The output is a sparse float32 matrix in SciPy's format, with one row per text and one column per term. The rows are
    in the same order as the texts in DATA. Without --model, files are read twice, first to learn the vocabulary. Only
    one block of rows is held in memory at a time, unless DATA is standard input and --model is not given.
    """
    import carya
    from carya.data.io.csr_writer import CsrWriter
    from carya.text.default_vectorizer import default_vectorizer
    from carya.text.tfidf import Tfidf

    given = given_parameters(context, Tfidf)
    check_matrix_output(out, ".npz")
    check_not_input(out, data.source)
    if model is not None:
        _check_options_of_a_model(given, save_vectorizer)
    if save_vectorizer is not None:
        check_model_output(save_vectorizer, force=force)
    started = time.perf_counter()
    matrix: Any = None
    with command_progress(quiet) as progress:
        if model is None:
            vectorizer = default_vectorizer(None, **given)  # as in carya train
            vectorizer.check_parameters()
            with progress.stage("learn vocabulary") as report:
                if data.source == "-":  # standard input can be read only once
                    matrix = vectorizer.fit_transform(_texts(data, report))
                else:
                    vectorizer.fit(_texts(data, report))
        else:
            loaded = carya.load(model)
            vectorizer = _vectorizer_of(loaded, model).set_params(**given)
            data = data.with_model(loaded)
        with _atomic_npz(out) as path, CsrWriter(path, vectorizer.n_features_) as writer:
            if matrix is None:
                rows = _write_rows(data, vectorizer, writer, progress)
            else:
                writer.append(matrix)
                rows = matrix.shape[0]
        if save_vectorizer is not None:
            vectorizer.data_options_ = data.to_store()
            vectorizer.save(save_vectorizer)
    seconds = round(time.perf_counter() - started, 3)
    features = vectorizer.n_features_
    if as_json:
        click.echo(json.dumps({"matrix": str(out), "rows": rows, "features": features, "seconds": seconds}, indent=1))
    else:
        click.echo(f"{out}: {rows:,} rows, {features:,} features; {seconds:.1f} s")


def _check_options_of_a_model(given: dict[str, Any], save_vectorizer: Path | None) -> None:
    """Raise ParameterError if an option was passed that applies only to a new vectorizer."""
    for name in given:
        if name != "n_jobs":
            raise ParameterError(
                f"{flag(name)} cannot be combined with --model, because the vocabulary of a saved model is fixed."
            )
    if save_vectorizer is not None:
        raise ParameterError(
            "--save-vectorizer cannot be combined with --model, because the vectorizer is already saved."
        )


def _texts(data: DataOptions, report: Any) -> Iterator[str]:
    """Yield the texts and report their number."""
    for batch in text_batches(data):
        yield from batch.texts
        if report is not None:
            report(batch.first + len(batch.texts) - 1, 0)


def _write_rows(data: DataOptions, vectorizer: Tfidf, writer: Any, progress: Progress) -> int:
    """Write the features of each batch of texts; return the number of texts."""
    rows = 0
    with progress.stage("vectorize") as report:
        for batch in text_batches(data):
            writer.append(vectorizer.transform(batch.texts))
            rows += len(batch.texts)
            if report is not None:
                report(rows, 0)
    if not rows:
        raise InputError(f"{data.name} contains no rows. At least one is required.")
    return rows


def _vectorizer_of(loaded: Any, path: Path) -> Tfidf:
    """Return a saved vectorizer, or the vectorizer of a saved model."""
    from carya.text.tfidf import Tfidf

    vectorizer = loaded if isinstance(loaded, Tfidf) else getattr(loaded, "vectorizer_", None)
    if not isinstance(vectorizer, Tfidf) and ranks_texts(loaded):
        raise InputError(
            f"{path} contains a model of kind {type(loaded).__name__}, which has no vectorizer of its own. Pass a "
            "TextRanker, or a saved vectorizer."
        )
    if not isinstance(vectorizer, Tfidf):
        raise InputError(f"{path} was trained on features and has no vectorizer. Pass a model trained on texts.")
    return vectorizer


@contextmanager
def _atomic_npz(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file; it replaces `path` on success and is deleted on error."""
    from carya.core.atomic import temporary_sibling

    temporary = temporary_sibling(path).with_suffix(".npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise SaveError(f"{path}: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
