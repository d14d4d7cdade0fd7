"""Vocabularies from files: one label a line, TSV, Annif's TSV and CSV, and SKOS."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carya.core.extras import need
from carya.data.formats.columns import TAB, one_line, quoted
from carya.data.formats.texts.tables import column, csv_rows, tsv_rows
from carya.data.io.files import PathLike, bare_name, read_bytes, read_lines, shown, writing_text
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

_RDF = {".ttl": "turtle", ".nt": "nt", ".rdf": "xml", ".xml": "xml"}
_LANGUAGE = re.compile(r"label_(.+)")

#: An id, its name, and the line they stand on.
Entry = tuple[str, str, int]


def read_vocabulary(path: PathLike, *, language: str = "en") -> Vocabulary:
    r"""The labels a file lists.

    Parameters
    ----------
    path : path
        By its suffix: ``.txt``, a label a line, which is its id and its name; ``.tsv``, ``id<TAB>name``, where ids may
        be in angle brackets and a third field is ignored; ``.csv`` with a column ``uri`` and columns ``label_en``,
        ``label_fi`` …; ``.ttl``, ``.nt``, ``.rdf`` or ``.xml``, the concepts of a SKOS vocabulary that are not
        deprecated, in the order of their URIs. All may be compressed.
    language : str
        Which names to take from CSV and SKOS; a label that has none in it is called by its id.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "animals.tsv")
    ...     _ = file.write_text("<http://a.example/1>\tcat\n<http://a.example/2>\tdog\n")
    ...     vocabulary = read_vocabulary(file)
    >>> vocabulary.ids[1], vocabulary.names[1]
    ('http://a.example/2', 'dog')
    """
    suffix = Path(bare_name(path)).suffix
    if suffix in _RDF:
        ids, names = _skos(path, _RDF[suffix], language)
        return Vocabulary(ids, names, source=shown(path))
    entries: Iterator[Entry]
    match suffix:
        case ".txt":
            entries = ((line.strip(" "), line.strip(" "), number) for number, line in enumerate(read_lines(path), 1))
        case ".tsv":
            entries = _of_tsv(path)
        case ".csv":
            entries = _of_csv(path, language)
        case _:
            known = ", ".join((".txt", ".tsv", ".csv", *_RDF))
            raise InputError(f"{shown(path)}: a vocabulary is read from a file that ends with {known}")
    return _gathered(path, entries)


def write_vocabulary(path: PathLike, vocabulary: Vocabulary, *, brackets: bool = True) -> None:
    """Write a vocabulary: a label a line to ``.txt``, else ``<id><TAB>name`` as Annif reads it.

    Parameters
    ----------
    path : path
    vocabulary : Vocabulary
    brackets : bool
        Put ids in angle brackets; otherwise only those that have some themselves.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_vocabulary(f"{folder}/a.tsv.gz", Vocabulary(["a:1", "a:2"], ["cat", "dog"]))
    ...     read_vocabulary(f"{folder}/a.tsv.gz").names
    ['cat', 'dog']
    """
    with writing_text(path) as write:
        for number, (one, name) in enumerate(zip(vocabulary.ids, vocabulary.names, strict=True), 1):
            where = f"{path}, line {number}"
            for part in (one, name):
                if not part or part != part.strip(" "):
                    raise InputError(f"{where}: {part!r} is empty or has spaces around it")
            if bare_name(path).endswith(".txt"):
                if one != name:
                    raise InputError(f"{where}: a .txt file holds no names beside ids: write .tsv")
                write(one_line(one, where) + "\n")
            else:
                held = f"<{one}>" if brackets or _in_brackets(one) else one
                write(f"{one_line(held, where, TAB)}\t{one_line(name, where, TAB)}\n")


def _gathered(path: PathLike, entries: Iterator[Entry]) -> Vocabulary:
    lines: dict[str, int] = {}
    names = []
    for one, name, line in entries:
        if not one:
            raise InputError(f"{shown(path)}, line {line}: the label is empty")
        first = lines.setdefault(one, line)
        if first != line:
            raise InputError(f"{shown(path)}, line {line}: the label {one!r} occurs twice, first on line {first}")
        names.append(name)
    return Vocabulary(lines, names, source=shown(path))


def _of_tsv(path: PathLike) -> Iterator[Entry]:
    for line, row in tsv_rows(path):
        if len(row) not in (2, 3):
            where = f"{shown(path)}, line {line}"
            raise InputError(f"{where}: the number of fields is {len(row)}, it must be 2 (id, name) or 3")
        one, name = row[0].strip(" "), row[1].strip(" ")
        one = one[1:-1] if _in_brackets(one) else one
        yield one, name or one, line


def _in_brackets(one: str) -> bool:
    return one.startswith("<") and one.endswith(">")


def _of_csv(path: PathLike, language: str) -> Iterator[Entry]:
    rows = csv_rows(path)
    line, header = next(rows, (1, []))
    where = f"{shown(path)}, line {line}"
    ids = column(header, "uri", where)
    if f"label_{language}" not in header:
        there = [found[1] for name in header if (found := _LANGUAGE.fullmatch(name))]
        raise InputError(f'{where}: there are no names in the language "{language}", only in {quoted(there) or "none"}')
    names = column(header, f"label_{language}", where)
    for number, row in rows:
        if len(row) != len(header):
            counted = f"the number of fields is {len(row)}, in the header it is {len(header)}"
            raise InputError(f"{shown(path)}, line {number}: {counted}")
        yield row[ids], row[names] or row[ids], number


def _skos(path: PathLike, form: str, language: str) -> tuple[list[str], list[str]]:
    rdflib = need("rdflib", "skos", shown(path))
    graph = rdflib.Graph()
    try:
        graph.parse(io.BytesIO(read_bytes(path)), format=form)
    except InputError:
        raise
    except Exception as error:  # the parsers of rdflib have no common error
        raise InputError(f"{shown(path)}{_line_of(error)}: not {form}: {_first_line(error)}") from None
    skos, owl = rdflib.namespace.SKOS, rdflib.namespace.OWL
    named: dict[str, str] = {}
    languages = set()
    for concept in graph.subjects(rdflib.namespace.RDF.type, skos.Concept, unique=True):
        if not isinstance(concept, rdflib.URIRef) or graph.value(concept, owl.deprecated) == rdflib.Literal(True):
            continue
        found = [one for one in graph.objects(concept, skos.prefLabel) if isinstance(one, rdflib.Literal)]
        labels = {one.language: str(one) for one in sorted(found, reverse=True)}  # of two, the first in the alphabet
        languages |= {one for one in labels if one}
        named[str(concept)] = labels.get(language) or labels.get(None) or str(concept)
    if not named:
        raise InputError(f"{shown(path)}: there is no skos:Concept in it")
    if languages and language not in languages:
        there = quoted(sorted(languages))
        raise InputError(f'{shown(path)}: there are no names in the language "{language}", only in {there}')
    ids = sorted(named)
    return ids, [named[one] for one in ids]


def _line_of(error: Any) -> str:
    """Where the error lies, if it tells: Turtle counts lines from 0, XML from 1."""
    if isinstance(getattr(error, "lines", None), int):
        return f", line {error.lines + 1}"
    return f", line {error.getLineNumber()}" if hasattr(error, "getLineNumber") else ""


def _first_line(error: Exception) -> str:
    message = getattr(error, "message", None) or (error.getMessage() if hasattr(error, "getMessage") else str(error))
    return str(message).strip().partition("\n")[0]
