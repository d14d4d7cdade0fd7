"""`carya encode`: convert texts to embeddings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import command, option
from carya.cli.options.common import PATH, command_progress, json_option, quiet_option
from carya.cli.options.data_options import DataOptions, data_options
from carya.cli.options.rule_type import RuleType
from carya.cli.shared.inputs import text_batches
from carya.cli.shared.outputs import check_matrix_output, check_not_input
from carya.core.rules import Choice, Integer
from carya.errors import InputError, ParameterError, SaveError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POOLINGS = ("auto", "first", "mean", "last")

#: Converts texts to embeddings.
_Encode = Callable[[list[str]], "NDArray[np.float32]"]


@command(
    "encode",
    examples=[
        "carya encode texts.txt -o E.npy --encoder sentence-transformers/all-MiniLM-L6-v2",
        "carya encode test.jsonl -o E.npy --model xr-transformer-model/",
        "carya encode data.csv -o E.npy --encoder encoder/ --text-column title,abstract --max-length 256",
    ],
)
@data_options(part="train", labels=False, features=False)
@option(
    "--encoder",
    metavar="NAME",
    heading="Encoder",
    help="Folder or Hugging Face Hub name of any model that transformers.AutoModel can load.",
)
@option(
    "--model", type=PATH, metavar="FOLDER", heading="Encoder", help="Saved transformer model whose encoder is used."
)
@option(
    "--max-length",
    type=RuleType(Integer(8)),
    metavar="INTEGER",
    heading="Encoder",
    help="Maximum number of tokens per text; by default, 128, or with --model, the setting of the saved model.",
)
@option(
    "--pooling",
    type=RuleType(Choice(*_POOLINGS)),
    metavar=f"[{'|'.join(_POOLINGS)}]",
    heading="Encoder",
    help="Pooling of token embeddings; by default, auto, or with --model, the setting of the saved model.",
)
@option(
    "--device",
    default="auto",
    show_default=True,
    metavar="NAME",
    heading="Encoder",
    help="PyTorch device: auto, cpu, cuda, cuda:1, …; auto means the GPU if one is available.",
)
@option(
    "--out",
    "-o",
    type=PATH,
    required=True,
    metavar="FILE",
    heading="Output",
    help="Output file (.npy) for the matrix of shape (texts, dimensions).",
)
@quiet_option
@json_option
def encode(
    data: DataOptions,
    encoder: str | None,
    model: Path | None,
    max_length: int | None,
    pooling: str | None,
    device: str,
    out: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Convert texts to embeddings.

    The output is a float32 matrix in NumPy's format, with one row per text. Each row has norm 1. The rows are in the
    same order as the texts in DATA. Texts are read, encoded and written in blocks. Requires pip install
    'carya[transformer]'.
    """
    import carya

    check_matrix_output(out, ".npy")
    check_not_input(out, data.source)
    if (encoder is None) == (model is None):
        raise ParameterError("Pass either --encoder or --model (a saved transformer model).")
    started = time.perf_counter()
    with command_progress(quiet) as progress:
        with progress.stage("load encoder"):
            if model is not None:
                loaded = carya.load(model)
                embed = _encoder_of(loaded, model, max_length, pooling, device)
                data = data.with_model(loaded)
            else:
                embed = _pretrained_encoder(str(encoder), max_length, pooling, device)
        with progress.stage("encode") as report:
            rows, width = _write(data, embed, out, report)
    seconds = round(time.perf_counter() - started, 3)
    if as_json:
        click.echo(json.dumps({"matrix": str(out), "rows": rows, "dimensions": width, "seconds": seconds}, indent=1))
    else:
        click.echo(f"{out}: {rows:,} rows, {width:,} dimensions; {seconds:.1f} s")


def _write(data: DataOptions, embed: _Encode, out: Path, report: Any) -> tuple[int, int]:
    """Write the embeddings of each batch of texts; return the shape of the matrix."""
    from carya.core.atomic import atomic_file
    from carya.data.io.array_writer import ArrayWriter

    rows = width = 0
    try:
        with atomic_file(out) as stream:
            writer = None
            for batch in text_batches(data):
                embeddings = embed(batch.texts)
                if writer is None:
                    width = embeddings.shape[1]
                    writer = ArrayWriter(stream, width)
                writer.append(embeddings)
                rows += len(batch.texts)
                if report is not None:
                    report(rows, 0)
            if writer is None:
                raise InputError(f"{data.name} contains no rows. At least one is required.")
            writer.finish()
    except OSError as error:
        if isinstance(error, SaveError):
            raise
        raise SaveError(f"{out}: {error.strerror or error}.") from error
    return rows, width


def _encoder_of(loaded: Any, path: Path, max_length: int | None, pooling: str | None, device: str) -> _Encode:
    """Return the encoder of a saved transformer model."""
    from carya.transformer.base import TransformerRanker
    from carya.transformer.embedding import move_to_device

    for name, value in (("--max-length", max_length), ("--pooling", pooling)):
        if value is not None:
            raise ParameterError(
                f"{name} cannot be combined with --model, because the setting of the saved model is used."
            )
    if not isinstance(loaded, TransformerRanker):
        raise InputError(
            f"{path} contains a model of kind {type(loaded).__name__}, which has no encoder. Pass an XRTransformer or "
            "XTransformer, or use --encoder."
        )
    move_to_device(loaded, device)
    return loaded.encode


def _pretrained_encoder(name: str, max_length: int | None, pooling: str | None, device: str) -> _Encode:
    from carya.transformer.settings import TransformerSettings, require_transformer_packages

    require_transformer_packages("carya encode")
    from carya.transformer.embedding import load_pretrained

    settings = TransformerSettings(encoder=name, device=device)
    if max_length is not None:
        settings.max_length = max_length
    if pooling is not None:
        settings.pooling = pooling
    return load_pretrained(settings)
