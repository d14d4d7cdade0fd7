"""`carya demo`: train on the descriptions of this machine's packages, and say which packages others depend on."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from carya.data.io.text_dataset import TextSet
    from carya.text.text_ranker import TextRanker

_FEW = 1000  # packages: fewer teach nothing

_QUERIES = (
    "a small web application framework written in Python",
    "real-time strategy game with 3D graphics",
    "perl module to parse dates",
    "command line tool to convert audio files",
)
_WORLD_ROWS, _WORLD_LABELS = 20_000, 5_000


def demo(
    out: Annotated[Path | None, typer.Option(help="Keep the model in this folder.", show_default=False)] = None,
    generated: Annotated[
        bool, typer.Option("--generated", help="Use a generated world even where there are packages.")
    ] = False,
    lists: Annotated[Path | None, typer.Option(help="A folder of package lists; the machine's if not given.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed, another tree.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and the rest on standard error.")] = False,
) -> None:
    """Train a model in under a minute and ask it: on the packages of this Debian or Ubuntu, else on a made-up world.

    From the description of a package it learns which other packages such a package depends on.

    Examples:

      carya demo

      carya demo --out model/

      carya demo --generated
    """
    from rich.console import Console

    from carya.core.storage import check_place
    from carya.errors import InputError

    if out is not None:
        check_place(out)  # before the work, not after it
    if lists is not None and not lists.is_dir():
        raise InputError(f"{lists} is no folder of package lists")
    console = Console(highlight=False, emoji=False, stderr=as_json)
    data = None if generated else _debian(console, lists)
    if data is None:
        data, queries = _made_up(console, seed)
    else:
        queries = list(_QUERIES)
    ranker, seconds = _train(console, data, seed)
    found = _evaluate(console, data, ranker)
    _ask(console, ranker, queries)
    _what_next(console, ranker, out)
    if as_json:
        sizes = {"rows": len(data.train), "labels": len(ranker.labels_), "features": ranker.vectorizer_.n_features_}
        typer.echo(json.dumps({**sizes, "seconds": round(seconds, 3), **found}, indent=1))


def _debian(console: Console, lists: Path | None) -> TextSet | None:
    from carya.data.debian import dataset, find_index

    index = find_index(lists)
    if index is None:
        console.print("There is no package index here, so a generated world has to do.")
        return None
    console.print(f"Reading the package index of this machine ({', '.join(index.suites) or 'dpkg'}) …", soft_wrap=True)
    data = dataset("deps", index=index)
    if len(data.train) < _FEW:
        console.print(f"It has only {len(data.train):,} packages with dependencies, so a generated world has to do.")
        return None
    return data


def _made_up(console: Console, seed: int) -> tuple[TextSet, list[str]]:
    """A world of words without meaning, and some of its texts."""
    from carya.data.io.text_dataset import TextSet
    from carya.data.synthetic.generator import generate

    rows = _WORLD_ROWS + _WORLD_ROWS // 10
    console.print(f"Generating a world of {rows:,} texts and {_WORLD_LABELS:,} labels (seed {seed}) …")
    world = generate(rows, _WORLD_LABELS, seed=seed)
    texts = [
        (
            " ".join(world.word(word) for word in world.X.indices[world.X.indptr[row] : world.X.indptr[row + 1]]),
            tuple(world.label_name(one) for one in world.Y.indices[world.Y.indptr[row] : world.Y.indptr[row + 1]]),
        )
        for row in range(rows)
    ]
    names = sorted({label for _, labels in texts for label in labels})
    test = texts[_WORLD_ROWS:]
    return TextSet(texts[:_WORLD_ROWS], test, names), [text for text, _ in test[:3]]


def _train(console: Console, data: TextSet, seed: int) -> tuple[TextRanker, float]:
    from carya.models.xr_linear.model import XRLinear
    from carya.text.text_ranker import TextRanker
    from carya.text.tfidf import Tfidf

    texts, labels = zip(*data.train, strict=True)
    started = time.perf_counter()
    ranker = TextRanker(Tfidf(verbose=True), XRLinear(seed=seed, verbose=True)).fit(texts, labels)
    took = time.perf_counter() - started
    for one in (ranker.vectorizer_, ranker.model_):
        one.verbose = False
    console.print(
        f"Trained on {len(texts):,} texts with {len(ranker.labels_):,} labels in {took:.1f} s: "
        f"{ranker.vectorizer_.n_features_:,} terms, {ranker.model_.tree_}.",
        soft_wrap=True,
    )
    return ranker, took


def _evaluate(console: Console, data: TextSet, ranker: TextRanker) -> dict[str, float]:
    from rich.table import Table

    from carya import metrics
    from carya.text.labels import label_matrix

    texts, labels = zip(*data.test, strict=True)
    started = time.perf_counter()
    S = ranker.predict(texts, top_k=10)
    each = (time.perf_counter() - started) / len(texts)
    started = time.perf_counter()
    for text in texts[:200]:
        ranker.suggest(text)
    one = (time.perf_counter() - started) / len(texts[:200])
    console.print(
        f"Ranked {len(texts):,} texts it has not seen at {each * 1e6:.0f} µs each, {one * 1e6:.0f} µs one at a time:"
    )
    Y, _ = label_matrix(labels, ranker.labels_, others=True)  # labels it has never seen count as missed
    S.resize((len(texts), Y.shape[1]))
    found = metrics.report(Y, S, k=(1, 3, 5))
    table = Table("", "@1", "@3", "@5")
    for name, about in (("P", "of those suggested, right"), ("R", "of those right, suggested")):
        table.add_row(f"{about} ({name})", *(f"{100 * found[f'{name}@{k}']:.1f} %" for k in (1, 3, 5)))
    console.print(table)
    return found


def _ask(console: Console, ranker: TextRanker, queries: list[str]) -> None:
    for text in queries:
        best = ranker.suggest(text, top_k=5)
        if not best:
            continue
        shown = text if len(text) <= 90 else text[:88] + " …"
        console.print(f"\n[italic]{shown}[/italic]", soft_wrap=True)
        for one in best:
            why = ranker.explain(text, one.label)
            words = ", ".join(term.term for term in why.terms if term.share > 0.01)
            console.print(f"  {one.score:6.3f}  {one.name:<28} [dim]{_cut(words)}[/dim]", soft_wrap=True)


def _cut(words: str, most: int = 60) -> str:
    return words if len(words) <= most else words[:most].rpartition(",")[0]


def _what_next(console: Console, ranker: TextRanker, out: Path | None) -> None:
    from carya.core.storage import size_on_disk

    if out is None:
        with tempfile.TemporaryDirectory() as folder:  # that it can be saved is part of the show
            ranker.save(Path(folder) / "model")
            size = size_on_disk(Path(folder) / "model")
        console.print(f"\nSaved, the model takes {size / 1e6:.1f} MB. To keep it: carya demo --out model/")
    else:
        ranker.save(out)
        console.print(f"\nThe model is in {out}.")
    name = out or "model/"
    console.print("Try next:")
    console.print(f"  carya explain {name} 'a small web server'     which words speak for a label", markup=False)
    console.print(f"  carya serve {name}     a page to look at it, and an API", markup=False)
    console.print(f"  echo 'a small web server' | carya predict {name}", markup=False)
    console.print(
        "  carya data debian data/ && carya train data/ -o model/ && carya evaluate model/ data/", markup=False
    )
