"""`carya train`: from data to a saved model."""

from __future__ import annotations

import gc
import inspect
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carya.cli.commands import lazily
from carya.cli.options import data_options
from carya.cli.options.parameter_flags import flags_of, values_of
from carya.errors import InputError, ParameterError

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Matrices
    from carya.data.vocabulary import Vocabulary
    from carya.text.labels import LabelRows

_MODELS = ("xr-linear", "xr-transformer", "x-transformer")


def _train(
    source: data_options.Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to save the model in.", show_default=False)],
    part: Annotated[str, typer.Option(help="Which part of a folder: train, test or dev.")] = "train",
    data_format: data_options.Format = None,
    labels: data_options.Labels = None,
    text_column: data_options.TextColumn = "text",
    label_column: data_options.LabelColumn = "labels",
    label_separator: data_options.LabelSeparator = None,
    vocabulary: data_options.Names = None,
    language: data_options.Language = "en",
    threads: data_options.Threads = -1,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Settings by name: fast, small, accurate, xr-linear, parabel, bonsai, plt, dismec, slice or annexml. "
            "Flags for the model change them.",
            show_default=False,
        ),
    ] = None,
    trees: Annotated[int | None, typer.Option(help="How many trees are one model.", min=1, show_default=False)] = None,
    model: Annotated[str, typer.Option("--model", help=f"Which model: {', '.join(_MODELS)}.")] = "xr-linear",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    **given: Any,
) -> None:
    """Train a model on texts and labels, or on matrices, and save it.

    Data may be a folder, JSONL, CSV, TSV, Parquet, XMC or svmlight files, or a text file with --labels; docs/data.md
    shows them all. The flags behind these are the parameters of the vectorizer and of the model.

    Examples:

      carya train data/ -o model/

      carya train train.jsonl -o model/ --preset fast

      carya train train.jsonl -o model/ --trees 3 --negatives teacher

      carya train data/ -o model/ --model xr-transformer --encoder sentence-transformers/all-MiniLM-L6-v2

      carya train train.csv -o model/ --text-column title,abstract --label-separator '|'

      carya train texts.txt --labels labels.txt -o model/ --analyzer word,char_wb --ngram-range 1,2/3,5

      zcat data.jsonl.gz | carya train - --format jsonl -o model/
    """
    from carya.core.storage import check_place, size_on_disk
    from carya.data.corpus import Matrices

    _check_model(model, preset, trees, given)
    check_place(out)  # before the work, not after it
    gc.disable()  # millions of strings, all of them kept to the end
    started = time.perf_counter()
    data = data_options.read(
        source,
        part=part,
        data_format=data_format,
        labels=labels,
        text_column=text_column,
        label_column=label_column,
        label_separator=label_separator,
        vocabulary=vocabulary,
        language=language,
    )
    if isinstance(data, Matrices):
        if model != "xr-linear":
            raise ParameterError(f"--model {model} is for texts, but {data.source} holds features")
        trained, found = _fit_matrices(data, threads, preset, trees, given)
    elif model == "xr-linear":
        trained, found = _fit_texts(data, threads, preset, trees, given)
    else:
        trained, found = _fit_transformer(data, model, threads, given)
    fitted = time.perf_counter()
    trained.save(out)
    found |= {
        "model": str(out),
        "bytes": size_on_disk(out),
        "seconds": round(time.perf_counter() - started, 3),
        "seconds_fitting": round(fitted - started, 3),
    }
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    typer.echo(
        f"{out}: {found['rows']:,} rows, {found['features']:,} features, {found['labels']:,} labels; "
        f"{found['bytes'] / 1e6:.1f} MB, {found['seconds']:.1f} s"
    )


def _model(threads: int, preset: str | None, trees: int | None, given: dict[str, Any]) -> Any:
    """The model to be trained: a tree, several, or what a preset names; flags change parameters of the trees."""
    from carya.models.xr_linear.model import XRLinear

    changes = {"n_jobs": threads, "verbose": True} | values_of(XRLinear, given)
    if preset is None and trees is None:
        return XRLinear(**changes)
    from carya.models import presets

    if preset is None:
        return presets.several(XRLinear(**changes), trees or 1)
    if trees is not None:
        raise ParameterError("--trees cannot be told besides --preset, which says how many trees there are")
    return presets.preset(preset, **changes)


def _fit_texts(
    data: Corpus, threads: int, preset: str | None, trees: int | None, given: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    from carya.text.default_vectorizer import suited
    from carya.text.text_ranker import TextRanker
    from carya.text.tfidf import Tfidf

    model = _model(threads, preset, trees, given)
    vectorizer = suited(model, n_jobs=threads, verbose=True, **values_of(Tfidf, given))
    vectorizer.check_parameters()  # before a long file is read
    model.check_parameters()
    texts, labels = _taken_apart(data)
    wants = model.needs_label_features
    names = _names(data.vocabulary)
    if wants and names is None:
        raise InputError(f"--representation {given['representation']} needs names of labels: give --vocabulary")
    ranker = TextRanker(vectorizer, model).fit(texts, labels, names=names, label_texts=names if wants else None)
    _be_quiet(ranker.vectorizer_, ranker.model_)
    return ranker, {
        "kind": "text-ranker",
        "rows": ranker.known().n_texts,
        "features": ranker.vectorizer_.n_features_,
        "labels": len(ranker.labels_),
    }


def _taken_apart(data: Corpus) -> tuple[Iterator[str], list[tuple[str, ...]] | LabelRows]:
    """The texts, read while their terms are counted, and labels that are there when the texts have been read."""
    if data.matrix is not None and data.vocabulary is not None:
        from carya.text.labels import LabelRows

        return data.texts(), LabelRows(data.matrix, data.vocabulary.ids)
    labels: list[tuple[str, ...]] = []

    def texts() -> Iterator[str]:
        for example in data:
            labels.append(example.labels)
            yield example.text

    return texts(), labels


def _check_model(model: str, preset: str | None, trees: int | None, given: dict[str, Any]) -> None:
    """Refuse models that there are not, and flags of others than the one that is wanted."""
    from carya.models.xr_linear.model import XRLinear
    from carya.text.tfidf import Tfidf

    if model not in _MODELS:
        raise ParameterError(f"--model is {model!r}; it must be {', '.join(_MODELS[:-1])} or {_MODELS[-1]}")
    if model != "xr-linear" and (preset is not None or trees is not None):
        raise ParameterError("--preset and --trees are for --model xr-linear")
    linear = {field.name for kind in (Tfidf, XRLinear) for field in kind.parameters()}
    for name, value in given.items():
        if model == "xr-linear" and value is not None and name not in linear:
            raise ParameterError(f"--{name.replace('_', '-')} is for --model {_MODELS[1]} or {_MODELS[2]}")


def _fit_transformer(data: Corpus, model: str, threads: int, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from carya.models.xr_linear.model import XRLinear
    from carya.text.tfidf import Tfidf
    from carya.transformer.x_transformer import XTransformer
    from carya.transformer.xr_transformer import XRTransformer

    kind = XTransformer if model == "x-transformer" else XRTransformer
    made = kind(
        vectorizer=Tfidf(n_jobs=threads, **values_of(Tfidf, given)),
        ranker=XRLinear(n_jobs=threads, **values_of(XRLinear, given)),
        n_jobs=threads,
        verbose=True,
        **values_of(kind, given),
    )
    made.check_parameters()  # before a long file is read
    texts, labels = data_options.gather(data)
    names = _names(data.vocabulary)
    made.fit(texts, labels, names=names, label_texts=names)
    made.verbose = False
    return made, {
        "kind": model,
        "rows": len(texts),
        "features": made.vectorizer_.n_features_,
        "labels": len(made.labels_),
        "mixture": made.weights_,
    }


def _names(known: Vocabulary | None) -> dict[str, str] | None:
    """What people call the labels, if that is something else than their ids."""
    names = {} if known is None else dict(zip(known.ids, known.names, strict=True))
    return None if all(one == name for one, name in names.items()) else names


def _kind(model: Any) -> str:
    """What saved folders call a model."""
    from carya.models.registry import KINDS

    return next(kind for kind, (_, name) in KINDS.items() if name == type(model).__name__)


def _be_quiet(*parts: Any) -> None:
    """Without progress bars from now on: whoever opens a model says for himself that he wants them."""
    for part in parts:
        if hasattr(part, "verbose"):
            part.verbose = False
        _be_quiet(*getattr(part, "members_", ()))


def _fit_matrices(
    data: Matrices, threads: int, preset: str | None, trees: int | None, given: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    from carya.models.xr_linear.model import XRLinear
    from carya.text.tfidf import Tfidf

    useless = [name for name in values_of(Tfidf, given) if name not in {field.name for field in XRLinear.parameters()}]
    if useless:
        flag = "--" + useless[0].replace("_", "-")
        raise ParameterError(f"{flag} is about texts, but {data.source} holds features")
    model = _model(threads, preset, trees, given).fit(data.X, data.Y)
    _be_quiet(model)
    return model, {
        "kind": _kind(model),
        "rows": data.Y.shape[0],
        "features": sum(model.widths_),
        "labels": model.n_labels_,
    }


def _command() -> Callable[..., None]:
    """The command with a flag for every parameter."""
    from carya.models.xr_linear.model import XRLinear
    from carya.text.tfidf import Tfidf
    from carya.transformer.settings import TransformerParameters

    own = inspect.signature(_train, eval_str=True)
    mine = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    flags = flags_of(Tfidf=Tfidf, XRLinear=XRLinear, XRTransformer=TransformerParameters)

    def command(**arguments: Any) -> None:
        _train(**arguments)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in mine] + flags
    command.__doc__ = _train.__doc__
    vars(command)["__signature__"] = own.replace(parameters=parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


@lazily(_command)
def train() -> None:
    """Train a model on texts and labels, or on matrices, and save it."""
