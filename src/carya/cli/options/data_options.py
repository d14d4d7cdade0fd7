"""Options for commands that read a data set."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from carya.cli.commands import argument, option
from carya.cli.options.common import PATH
from carya.cli.options.rule_type import RuleType
from carya.core.rules import Choice
from carya.data.io.files import display_name
from carya.errors import InputError, ParameterError
from carya.fork_safety import cached_property

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Example, Matrices
    from carya.data.vocabulary import Vocabulary

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
        None means that the format is detected automatically.
    labels : Path or None
        A file with the labels, one line per text, or a label matrix.
    text_column, label_column, label_separator : str or None
        If None, the value in `defaults` is used or, if there is none, the default of `open_data`.
    zero_based : bool or None
        Whether the features of svmlight files are numbered from 0. If None, the value in `defaults` is used or, if
        there is none, the numbering is inferred from the data.
    vocabulary : Path or None
        A file that lists the labels.
    language : str
        The language of the label names in the vocabulary.
    reads_labels : bool
        Whether the command uses labels.
    defaults : mapping
        The options stored in the model, which are used for options that are None.
    """

    source: str
    part: str
    format: str | None = None
    labels: Path | None = None
    text_column: str | None = None
    label_column: str | None = None
    label_separator: str | None = None
    zero_based: bool | None = None
    vocabulary: Path | None = None
    language: str = "en"
    reads_labels: bool = True
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def with_model(self, model: Any) -> DataOptions:
        """Return a copy of these options, with the options stored in the model as defaults."""
        return replace(self, defaults=model.data_options_)

    def to_store(self, data: Corpus | Matrices | None = None) -> dict[str, Any]:
        """Return the options to store in a model that was trained on this data."""
        given = {
            "format": self.detected_format or None,
            "text_column": self.text_column,
            "label_column": self.label_column,
            "label_separator": unescape(self.label_separator),
        }
        options = {name: value for name, value in given.items() if value is not None}
        return options | dict(getattr(data, "read_options", {}))

    def read_vocabulary(self) -> Vocabulary | None:
        """Read the list of labels from the vocabulary file, if one was passed."""
        from carya.data.formats.vocabularies import read_vocabulary

        return None if self.vocabulary is None else read_vocabulary(self.vocabulary, language=self.language)

    def open(self) -> Corpus | Matrices:
        """Open the data set; texts are read during iteration."""
        from carya.data.corpus import Matrices
        from carya.data.read_write import open_data

        data = open_data(
            self.source,
            part=self.part,
            format=self.detected_format or None,
            labels=self.labels,
            text_column=self.text_column,
            label_column=(self.label_column or ...) if self.reads_labels else None,
            label_separator=unescape(self.label_separator),
            zero_based=self.zero_based,
            vocabulary=self.read_vocabulary(),
            defaults=self.defaults,
        )
        if isinstance(data, Matrices) and data.is_guessed:
            click.echo(
                f"carya: {self.name} contains no feature 0, so features are assumed to be numbered from 1. Pass "
                "--one-based or --zero-based.",
                err=True,
            )
        return data

    def open_texts(self, model: Path | None = None) -> Corpus:
        """Open a data set of texts. If the data set contains features, raise an InputError that names the model."""
        from carya.data.corpus import Matrices

        data = None if self.contains_features() else self.open()
        if data is None or isinstance(data, Matrices):
            reason = "" if model is None else f", but {model} was trained on texts"
            raise InputError(f"{self.name} contains features{reason}. Pass texts.")
        return data

    def contains_features(self) -> bool:
        """Return whether the data is in a format that stores features, without reading all of it."""
        from carya.data.formats.registry import FORMATS

        form = FORMATS.get(self.detected_format)
        return form is not None and form.content == "features"

    @cached_property
    def detected_format(self) -> str:
        """The name of the format, or an empty string if it cannot be detected."""
        from carya.data.formats.detection import detect_format

        if self.format is not None:
            return self.format
        try:
            return detect_format(
                self.source,
                self.part,
                self.labels,
                needs_labels=self.reads_labels,
                default=self.defaults.get("format"),
                text_column=self.text_column or self.defaults.get("text_column", "text"),
            )
        except InputError:
            return ""

    @property
    def name(self) -> str:
        """The name of the source, for messages."""
        return display_name(self.source)


def data_options(
    *,
    part: str,
    source: str | None = None,
    labels: bool = True,
    format_flag: str = "--format",
    stored: bool = True,
    writes_part: bool = False,
    features: bool = True,
) -> Callable[[_Callback], _Callback]:
    """Add the data argument and options to a command, which receives them as a :class:`DataOptions` named `data`.

    Parameters
    ----------
    part : str
        The default part of a folder.
    source : str, optional
        The default source; without a default, the argument is required.
    labels : bool
        Whether the command reads labels.
    format_flag : str
        The name of the format option.
    stored : bool
        Whether the command uses a saved model, which stores the options used to read its training data.
    writes_part : bool
        Whether `part` also selects the part to write; if so, it can be passed even if the source is a file.
    features : bool
        Whether the command accepts features.
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
        _option("--test", "uses_test", is_flag=True, help="Same as --part test."),
        _option(format_flag, "format", metavar="NAME", help="Format of the data; detected by default."),
        _option(
            "--text-column",
            metavar="NAMES",
            help=f"Text column or key; several columns, as in title,abstract, are joined. {_default('text', stored)}",
        ),
    ]
    if features:
        decorators.append(
            _option(
                "--zero-based/--one-based",
                "zero_based",
                default=None,
                help="Whether features in svmlight files are numbered from 0 or from 1. "
                f"{_default('from 0 if feature 0 occurs', stored)}",
            )
        )
    if labels:
        decorators += [
            _option(
                "--labels", type=PATH, metavar="FILE", help="Label file with one line per text, or a label matrix."
            ),
            _option("--label-column", metavar="NAME", help=f"Label column or key. {_default('labels', stored)}"),
            _option(
                "--label-separator",
                metavar="TEXT",
                help=rf"Separator between labels; \t is a tab. {_default('format-dependent', stored)}",
            ),
            _option("--vocabulary", type=PATH, metavar="FILE", help="List of all labels (.txt, .tsv, .csv or SKOS)."),
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
            _check_combination(arguments, writes_part=writes_part)
            if arguments.pop("uses_test"):
                arguments["part"] = "test"
            data = DataOptions(**{name: arguments.pop(name) for name in names & arguments.keys()}, reads_labels=labels)
            callback(*args, data=data, **arguments)

        decorated: _Callback = with_data
        for decorator in reversed(decorators):
            decorated = decorator(decorated)
        return decorated

    return decorate


def _check_combination(arguments: dict[str, Any], *, writes_part: bool) -> None:
    """Raise ParameterError if an option that was passed has no effect or contradicts another one."""
    source, part = arguments["source"], arguments["part"]
    is_file = source == "-" or (path_exists(source) and Path(source).is_file())
    if arguments["uses_test"] and was_passed("part") and part != "test":
        raise ParameterError(f"--test cannot be combined with --part {part}.")
    for flag, name in {"--part": "part", "--test": "uses_test"}.items():
        if was_passed(name) and is_file and not writes_part:
            raise ParameterError(f"{flag} selects a part of a folder, but {display_name(source)} is not a folder.")
    if was_passed("language") and arguments.get("vocabulary") is None:
        raise ParameterError("--language requires --vocabulary, because it selects the language of the label names.")


def was_passed(name: str) -> bool:
    """Return whether a parameter of the current command was passed on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def path_exists(argument: str) -> bool:
    """Return whether an argument is an existing path; unlike pathlib, do not raise an error for long texts."""
    return os.path.exists(argument)  # noqa: PTH110


def _default(value: str, stored: bool) -> str:
    return f"[default: the model's setting, if any; otherwise, {value}]" if stored else f"[default: {value}]"


def texts_and_labels(corpus: Iterable[Example]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Read all texts and labels in a corpus."""
    texts: list[str] = []
    labels: list[tuple[str, ...]] = []
    for example in corpus:
        texts.append(example.text)
        labels.append(example.labels)
    return texts, labels


def unescape(separator: str | None) -> str | None:
    r"""Replace ``\\t`` with a tab, which is difficult to type in most shells."""
    return None if separator is None else separator.replace("\\t", "\t")


def _option(*names: str, **settings: Any) -> Callable[[_Callback], _Callback]:
    return option(*names, heading="Data", **settings)
