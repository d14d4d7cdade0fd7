"""`carya demo`: train, evaluate and query a model in under a minute."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carya.cli.commands import command, option
from carya.cli.options.common import PATH, force_option, quiet_option
from carya.cli.options.rule_type import RuleType
from carya.cli.shared.outputs import check_model_output
from carya.core.rules import Integer

if TYPE_CHECKING:
    from rich.console import Console

    from carya.data.io.text_dataset import TextDataset
    from carya.text.text_ranker import TextRanker

_MIN_PACKAGES = 1000  # a model trained on fewer packages is not useful
_GENERATED_ROWS, _GENERATED_LABELS = 20_000, 5_000
_QUERIES = [
    "a small web application framework written in Python",
    "real-time strategy game with 3D graphics",
    "perl module to parse dates",
    "command line tool to convert audio files",
]
_SINGLE_QUERIES = 200  # number of texts for measuring the single-query latency
_MAX_TEXT_LENGTH, _MAX_TERMS_LENGTH = 90, 60  # maximum numbers of characters to print
_MIN_CONTRIBUTION = 0.01  # terms with smaller contributions are omitted


@command("demo", examples=["carya demo", "carya demo --out model/", "carya demo --generated"])
@option("--out", "-o", type=PATH, metavar="FOLDER", help="Folder to save the model to.")
@option("--generated", is_flag=True, help="Use generated data even if this machine has a package index.")
@option("--lists", type=PATH, metavar="FOLDER", help="Folder with package lists; by default, this machine's lists.")
@option(
    "--seed",
    type=RuleType(Integer(0)),
    default=0,
    show_default=True,
    metavar="INTEGER",
    help="Random seed for the model and the generated data.",
)
@force_option
@quiet_option
@option("--json", "as_json", is_flag=True, help="Print JSON on standard output, and everything else on standard error.")
def demo(
    out: Path | None, generated: bool, lists: Path | None, seed: int, force: bool, quiet: bool, as_json: bool
) -> None:
    """Train and query a model in under a minute.

    On Debian and Ubuntu, the model learns to predict the dependencies of packages from their descriptions. On other
    systems, it is trained on generated data.
    """
    from rich.console import Console

    from carya.errors import InputError

    if out is not None:
        check_model_output(out, force=force)  # checked before training starts
    if lists is not None and not lists.is_dir():
        raise InputError(f"--lists must be a folder with package lists, got {lists}.")
    console = Console(highlight=False, emoji=False, markup=False, soft_wrap=True, stderr=as_json)
    data = None if generated else _read_packages(console, lists)
    queries = _QUERIES
    if data is None:
        data = _generate(console, seed)
        queries = [text for text, _ in data.test[:3]]
    ranker, seconds = _train(console, data, seed, verbose=not quiet)
    measured = _evaluate(console, data, ranker)
    _query(console, ranker, queries)
    _save(console, ranker, out)
    if as_json:
        sizes = {"rows": len(data.train), "labels": len(ranker.labels_), "features": ranker.vectorizer_.n_features_}
        click.echo(json.dumps({**sizes, "seconds": round(seconds, 3), **measured}, indent=1))


def _read_packages(console: Console, lists: Path | None) -> TextDataset | None:
    """Return the descriptions and dependencies of packages; None if there is no index or it has too few packages."""
    from carya.data.debian import find_index, read_dataset
    from carya.errors import MissingExtraError

    index = find_index(lists)
    if index is None:
        console.print("No package index found. Using generated data instead.")
        return None
    console.print(f"Reading the package index ({', '.join(index.suites) or 'dpkg'}) …")
    try:
        data = read_dataset("deps", index=index)
    except MissingExtraError as error:  # Debian's Docker images compress the lists with LZ4
        if lists is not None:
            raise
        console.print(f"{error}\nUsing generated data instead.")
        return None
    if len(data.train) < _MIN_PACKAGES:
        console.print(f"Only {len(data.train):,} packages have dependencies. Using generated data instead.")
        return None
    return data


def _generate(console: Console, seed: int) -> TextDataset:
    from carya.data import generate_data
    from carya.data.io.text_dataset import TextDataset

    n_rows = _GENERATED_ROWS + _GENERATED_ROWS // 10
    console.print(f"Generating {n_rows:,} texts with {_GENERATED_LABELS:,} labels (seed {seed}) …")
    generated = generate_data(n_rows, _GENERATED_LABELS, seed=seed)
    X, Y = generated.X, generated.Y
    rows = [
        (
            " ".join(generated.word(word) for word in X.indices[X.indptr[row] : X.indptr[row + 1]]),
            tuple(generated.label_name(label) for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]),
        )
        for row in range(n_rows)
    ]
    names = sorted({label for _, labels in rows for label in labels})
    return TextDataset(rows[:_GENERATED_ROWS], rows[_GENERATED_ROWS:], names)


def _train(console: Console, data: TextDataset, seed: int, *, verbose: bool) -> tuple[TextRanker, float]:
    from carya.models.xr_linear.model import XRLinear
    from carya.text.text_ranker import TextRanker
    from carya.text.tfidf import Tfidf

    texts, labels = zip(*data.train, strict=True)
    started = time.perf_counter()
    ranker = TextRanker(Tfidf(verbose=verbose), XRLinear(seed=seed, verbose=verbose)).fit(texts, labels)
    seconds = time.perf_counter() - started
    for part in (ranker.vectorizer_, ranker.model_):
        part.verbose = False
    console.print(
        f"Trained on {len(texts):,} texts with {len(ranker.labels_):,} labels in {seconds:.1f} s: "
        f"{ranker.vectorizer_.n_features_:,} terms, {ranker.model_.tree_}."
    )
    return ranker, seconds


def _evaluate(console: Console, data: TextDataset, ranker: TextRanker) -> dict[str, float]:
    from rich.table import Table

    from carya import metrics
    from carya.text.labels import label_matrix

    texts, labels = zip(*data.test, strict=True)
    started = time.perf_counter()
    S = ranker.predict(texts, top_k=10)
    batch_seconds = (time.perf_counter() - started) / len(texts)
    started = time.perf_counter()
    for text in texts[:_SINGLE_QUERIES]:
        ranker.suggest(text)
    single_seconds = (time.perf_counter() - started) / len(texts[:_SINGLE_QUERIES])
    console.print(
        f"Ranked labels for {len(texts):,} held-out texts: {batch_seconds * 1e6:.0f} µs per text in a batch, "
        f"{single_seconds * 1e6:.0f} µs per text one at a time."
    )
    Y, _ = label_matrix(labels, ranker.labels_, keep_unknown=True)  # unknown labels count as false negatives
    S.resize((len(texts), Y.shape[1]))
    measured = metrics.report(Y, S, k=(1, 3, 5))
    table = Table("%", "@1", "@3", "@5")
    for name, key in (("precision", "P"), ("recall", "R")):
        table.add_row(name, *(f"{100 * measured[f'{key}@{k}']:.1f}" for k in (1, 3, 5)))
    console.print(table)
    return measured


def _query(console: Console, ranker: TextRanker, queries: list[str]) -> None:
    """Print suggestions for a few texts, and the terms that contribute most to each suggestion."""
    for text in queries:
        suggestions = ranker.suggest(text, top_k=5)
        if not suggestions:
            continue
        shown = text if len(text) <= _MAX_TEXT_LENGTH else text[: _MAX_TEXT_LENGTH - 2] + " …"
        console.print(f"\n{shown}", style="italic")
        for suggestion in suggestions:
            explanation = ranker.explain(text, suggestion.label)
            terms = ", ".join(term.term for term in explanation.terms if term.contribution > _MIN_CONTRIBUTION)
            if len(terms) > _MAX_TERMS_LENGTH:
                terms = terms[:_MAX_TERMS_LENGTH].rpartition(",")[0]
            console.print(f"  {suggestion.score:6.3f}  {suggestion.name:<28} {terms}")


def _save(console: Console, ranker: TextRanker, out: Path | None) -> None:
    """Save the model (to a temporary folder if no output is given) and print its size and commands to try next."""
    from carya.core.storage import size_on_disk

    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            ranker.save(Path(folder) / "model")
            size = size_on_disk(Path(folder) / "model")
        console.print(
            f"\nThe size of the saved model is {size / 1e6:.1f} MB. To keep the model, run carya demo --out model/"
        )
    else:
        ranker.save(out)
        console.print(f"\nSaved the model to {out}.")
    name = out or "model/"
    console.print("Try next:")
    console.print(f"  carya explain {name} 'a small web server'     contributions of the terms to a label's score")
    console.print(f"  carya serve {name}     explorer and HTTP API")
    console.print(f"  echo 'a small web server' | carya predict {name}")
    console.print("  carya data debian data/ && carya train data/ -o model/ && carya evaluate model/ data/")
