"""Options of commands that read a data set."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import argument, option
from carya.cli.options.common import PATH
from carya.cli.options.rule_type import RuleType
from carya.core.rules import Choice
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Matrices

_Callback = Callable[..., None]


@dataclass(frozen=True)
class DataOptions:
    """Location of a data set and options for reading it.

    Attributes
    ----------
    source : str
        A file, a folder, or ``-`` for standard input.
    part : str
        The part of a folder: train, test or dev.
    format : str or None
        None means to detect it.
    labels : Path or None
        A file with the labels, one line per text.
    text_column, label_column : str
    label_separator : str or None
    vocabulary : Path or None
        A file that lists the labels.
    language : str
        The language of the label names in the vocabulary.
    """

    source: str
    part: str
    format: str | None = None
    labels: Path | None = None
    text_column: str = "text"
    label_column: str | None = None
    label_separator: str | None = None
    vocabulary: Path | None = None
    language: str = "en"

    def open(self) -> Corpus | Matrices:
        """Open the data set; texts are read during iteration."""
        from carya.data.formats.vocabularies import read_vocabulary
        from carya.data.read_write import open_data

        return open_data(
            self.source,
            part=self.part,
            format=self.format,
            labels=self.labels,
            text_column=self.text_column,
            label_column=self.label_column,
            label_separator=unescape(self.label_separator),
            vocabulary=None if self.vocabulary is None else read_vocabulary(self.vocabulary, language=self.language),
        )

    def open_texts(self, model: Path) -> Corpus:
        """Open the data set for a model that was trained on texts; raise InputError if it contains features."""
        from carya.data.corpus import Matrices

        if Path(self.source).suffix in MATRIX_SUFFIXES:
            raise InputError(self._features_message(model))
        data = self.open()
        if isinstance(data, Matrices):
            raise InputError(self._features_message(model))
        return data

    def read_texts(self, model: Path) -> tuple[list[str], list[tuple[str, ...]]]:
        """Read all texts and their labels."""
        return texts_and_labels(self.open_texts(model))

    def _features_message(self, model: Path) -> str:
        return f"{self.source} contains features, but {model} was trained on texts. Pass texts."


#: Suffixes of files with a single matrix, which only models trained on features accept.
MATRIX_SUFFIXES = (".npz", ".npy")


def data_options(
    *, part: str, source: str | None = None, labels: bool = True, format_flag: str = "--format"
) -> Callable[[_Callback], _Callback]:
    """Add the data argument and options to a command, which receives them as a :class:`DataOptions` named `data`.

    Parameters
    ----------
    part : str
        The default part of a folder.
    source : str, optional
        The default source; the argument is required without it.
    labels : bool
        Whether the command reads labels.
    format_flag : str
        The option for the format.
    """
    source_settings: dict[str, Any] = {} if source is None else {"required": False, "default": source}
    decorators = [
        argument(
            "source",
            type=click.Path(allow_dash=True),
            metavar="DATA" if source is None else "[DATA]",
            help="File or folder; - for standard input. See docs/data.md for the formats.",
            **source_settings,
        ),
        _option(
            "--part",
            type=RuleType(Choice("train", "test", "dev")),
            metavar="[train|test|dev]",
            default=part,
            show_default=True,
            help="Part of a data folder.",
        ),
        _option(format_flag, "format", metavar="NAME", help="Format of the data; detected by default."),
        _option(
            "--text-column",
            default="text",
            show_default=True,
            metavar="NAMES",
            help="Column or key of the text; several, as in title,abstract, are joined.",
        ),
    ]
    if labels:
        decorators += [
            _option("--labels", type=PATH, metavar="FILE", help="File with the labels, one line per text."),
            _option(
                "--label-column",
                default="labels",
                show_default=True,
                metavar="NAME",
                help="Column or key of the labels.",
            ),
            _option("--label-separator", metavar="TEXT", help=r"Separator between labels; \t is a TAB."),
            _option("--vocabulary", type=PATH, metavar="FILE", help="List of all labels: .txt, .tsv, .csv or SKOS."),
            _option(
                "--language",
                default="en",
                show_default=True,
                metavar="CODE",
                help="Language of the label names in the vocabulary.",
            ),
        ]

    def decorate(callback: _Callback) -> _Callback:
        names = {field.name for field in fields(DataOptions)}

        @functools.wraps(callback)
        def with_data(*args: Any, **arguments: Any) -> None:
            data = DataOptions(**{name: arguments.pop(name) for name in names & arguments.keys()})
            callback(*args, data=data, **arguments)

        decorated: _Callback = with_data
        for decorator in reversed(decorators):
            decorated = decorator(decorated)
        return decorated

    return decorate


def texts_and_labels(corpus: Corpus) -> tuple[list[str], list[tuple[str, ...]]]:
    """Read all texts and labels in a corpus."""
    texts: list[str] = []
    labels: list[tuple[str, ...]] = []
    for example in corpus:
        texts.append(example.text)
        labels.append(example.labels)
    return texts, labels


def unescape(separator: str | None) -> str | None:
    r"""Replace ``\\t`` with a TAB, which is difficult to type in most shells."""
    return None if separator is None else separator.replace("\\t", "\t")


def _option(*names: str, **settings: Any) -> Callable[[_Callback], _Callback]:
    return option(*names, heading="Data", **settings)
