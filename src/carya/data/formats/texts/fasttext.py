"""fastText's format: one text per line; words that begin with ``__label__`` are its labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from carya.data.corpus import Example
from carya.data.formats.columns import check_one_line, short_repr
from carya.data.io.files import PathLike, display_name, open_text_output, read_lines
from carya.errors import InputError

_PREFIX = "__label__"
_LABEL = re.compile(rf"(?:^|(?<=\s)){_PREFIX}(\S*)\s*", re.ASCII)
_WORD_END = re.compile(r"\s+", re.ASCII)
_SPACE = " \t\r\f\v"  # word separators; other whitespace is part of words


def read_fasttext(path: PathLike) -> Iterator[Example]:
    """Yield the examples in a file whose lines contain labels, such as ``__label__x``, and a text.

    Labels usually come first, but they are recognized anywhere in a line. Blank lines are ignored.
    """
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        labels, text = _split(line)
        if "" in labels:
            raise InputError(f"{display_name(path)}, line {number}: The label after {_PREFIX} is empty.")
        yield Example(text, tuple(labels))


def _split(line: str) -> tuple[list[str], str]:
    """Return the labels and the text of a line; if there are no labels, the text is the complete line."""
    if _PREFIX not in line:
        return [], line
    labels = []
    rest = line.lstrip(_SPACE)
    while rest.startswith(_PREFIX):  # searching the whole line for labels takes ten times as long
        word, _, rest = _split_word(rest)
        labels.append(word.removeprefix(_PREFIX))
    if _PREFIX not in rest:
        return labels, rest.strip(_SPACE) if labels else line
    others = _LABEL.findall(rest)
    return [*labels, *others], _LABEL.sub("", rest).strip(_SPACE) if labels or others else line


def _split_word(text: str) -> tuple[str, str, str]:
    """Return the first word, the separator after it, and the rest."""
    match = _WORD_END.search(text)
    return (text, "", "") if match is None else (text[: match.start()], match[0], text[match.end() :])


def write_fasttext(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples, labels first; return the number of examples."""
    rows = 0
    with open_text_output(path) as write:
        for rows, example in enumerate(examples, 1):
            location = f"{path}, line {rows}"
            for label in example.labels:
                if not label or re.search(r"\s", label, re.ASCII):
                    raise InputError(
                        f"{location}: Label {short_repr(label)} is empty or contains whitespace, which this format "
                        "cannot represent."
                    )
            text = check_one_line(example.text, location)
            if _PREFIX in text and _LABEL.search(text):
                raise InputError(
                    f"{location}: {short_repr(text)} contains a word that begins with {_PREFIX}, which this format "
                    "cannot represent."
                )
            line = " ".join([*(_PREFIX + label for label in example.labels), text])
            if not line.strip() or text != text.strip(_SPACE):
                raise InputError(
                    f"{location}: {short_repr(text)} is blank, or begins or ends with a space, which this format "
                    "cannot represent."
                )
            write(line + "\n")
    return rows
