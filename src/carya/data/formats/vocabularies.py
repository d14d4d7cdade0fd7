"""Read and write vocabularies: one label per line, TSV, Annif's TSV and CSV, and SKOS."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from carya.core.extras import require
from carya.data.formats.columns import TAB, check_one_line, quote_names
from carya.data.formats.tables.delimited import check_n_fields, csv_rows, find_column, tsv_rows
from carya.data.io.files import PathLike, display_name, open_text_output, read_bytes, read_lines, uncompressed_name
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

#: rdflib's names for RDF formats, by suffix.
_RDF_FORMATS = {".ttl": "turtle", ".nt": "nt", ".rdf": "xml", ".xml": "xml"}
_MAX_ENTITY_LENGTH = 250
_NAME_COLUMN = re.compile(r"label_(.+)")

#: The id and the name of a label, and the line on which they occur.
_Entry = tuple[str, str, int]


def read_vocabulary(path: PathLike, *, language: str = "en") -> Vocabulary:
    r"""Read the labels listed in a file.

    Parameters
    ----------
    path : path
        A file, compressed or not, whose suffix selects the format. ``.txt`` files contain one label per line, used as
        both id and name. ``.tsv`` files contain ``id<TAB>name`` lines, in which ids can be in angle brackets and a
        third field is ignored. ``.csv`` files contain a column ``uri`` and columns such as ``label_en`` and
        ``label_fi``. ``.ttl``, ``.nt``, ``.rdf`` and ``.xml`` files contain a SKOS vocabulary, whose concepts are
        sorted by URI; deprecated concepts are omitted.
    language : str
        The language of the names in CSV and SKOS files. If a label has no name in this language, its id is used as its
        name; in SKOS files, a name without a language tag takes precedence over the id.

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
    suffix = Path(uncompressed_name(path)).suffix
    if suffix in _RDF_FORMATS:
        return _read_skos(path, _RDF_FORMATS[suffix], language)
    entries: Iterator[_Entry]
    match suffix:
        case ".txt":
            entries = ((line.strip(" "), line.strip(" "), number) for number, line in enumerate(read_lines(path), 1))
        case ".tsv":
            entries = _read_tsv(path)
        case ".csv":
            entries = _read_csv(path, language)
        case _:
            suffixes = ", ".join((".txt", ".tsv", ".csv", *_RDF_FORMATS))
            raise InputError(f'{display_name(path)}: Unknown vocabulary file type "{suffix}". Use {suffixes}.')
    return _collect(path, entries)


def read_languages(path: PathLike, *, language: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the names of all labels in all languages of a vocabulary file, and their notations.

    Parameters
    ----------
    path : path
        A SKOS or CSV file, as in :func:`read_vocabulary`, or a monolingual file.
    language : str
        The language of the names in monolingual files.

    Returns
    -------
    tuple of two dicts
        The names by language and id, and the notations by id.
    """
    suffix = Path(uncompressed_name(path)).suffix
    names: dict[str, dict[str, str]] = {}
    notations: dict[str, str] = {}
    if suffix in _RDF_FORMATS:
        rdflib, graph = _parse_skos(path, _RDF_FORMATS[suffix])
        skos = rdflib.namespace.SKOS
        for concept, name in sorted(graph.subject_objects(skos.prefLabel), reverse=True):
            names.setdefault(getattr(name, "language", None) or language, {})[str(concept)] = str(name)
        for concept, notation in sorted(graph.subject_objects(skos.notation), reverse=True):
            notations[str(concept)] = str(notation)
    elif suffix == ".csv":
        rows = csv_rows(path)
        line, header = next(rows, (1, []))
        id_index = find_column(header, "uri", f"{display_name(path)}, line {line}")
        columns = {match[1]: place for place, name in enumerate(header) if (match := _NAME_COLUMN.fullmatch(name))}
        for number, row in rows:
            check_n_fields(row, header, f"{display_name(path)}, line {number}")
            for column_language, place in columns.items():
                if row[place]:
                    names.setdefault(column_language, {})[row[id_index]] = row[place]
            if "notation" in header and row[header.index("notation")]:
                notations[row[id_index]] = row[header.index("notation")]
    else:
        vocabulary = read_vocabulary(path, language=language)
        names[language] = dict(zip(vocabulary.ids, vocabulary.names, strict=True))
    return names, notations


def write_vocabulary(path: PathLike, vocabulary: Vocabulary, *, brackets: bool = True) -> None:
    """Write a vocabulary: one label per line in ``.txt`` files, otherwise ``<id><TAB>name`` lines, as in Annif.

    Parameters
    ----------
    path : path
    vocabulary : Vocabulary
    brackets : bool
        Whether to enclose all ids in angle brackets; otherwise, only ids that begin and end with angle brackets are
        enclosed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_vocabulary(f"{folder}/a.tsv.gz", Vocabulary(["a:1", "a:2"], ["cat", "dog"]))
    ...     read_vocabulary(f"{folder}/a.tsv.gz").names
    ['cat', 'dog']
    """
    with open_text_output(path) as write:
        for number, (label_id, name) in enumerate(zip(vocabulary.ids, vocabulary.names, strict=True), 1):
            location = f"{path}, line {number}"
            for text in (label_id, name):
                if not text or text != text.strip(" "):
                    raise InputError(
                        f"{location}: An id or name must not be empty and must not begin or end with a space, got "
                        f"{text!r}."
                    )
            if uncompressed_name(path).endswith(".txt"):
                if label_id != name:
                    raise InputError(f"{location}: A .txt file cannot store names in addition to ids. Use .tsv.")
                write(check_one_line(label_id, location) + "\n")
            else:
                field = f"<{label_id}>" if brackets or _has_brackets(label_id) else label_id
                write(f"{check_one_line(field, location, TAB)}\t{check_one_line(name, location, TAB)}\n")


def _collect(path: PathLike, entries: Iterable[_Entry]) -> Vocabulary:
    """Create a vocabulary from entries; raise InputError for empty or repeated ids."""
    lines: dict[str, int] = {}
    names = []
    for label_id, name, line in entries:
        if not label_id:
            raise InputError(f"{display_name(path)}, line {line}: The label is empty.")
        first = lines.setdefault(label_id, line)
        if first != line:
            raise InputError(
                f"{display_name(path)}, line {line}: Label {label_id!r} occurs more than once, first on line {first}."
            )
        names.append(name)
    if not lines:
        raise InputError(f"{display_name(path)} contains no labels. Pass a file with one label per line.")
    return Vocabulary(lines, names, source=display_name(path))


def _read_tsv(path: PathLike) -> Iterator[_Entry]:
    for line, row in tsv_rows(path):
        if len(row) not in (2, 3):
            location = f"{display_name(path)}, line {line}"
            raise InputError(
                f"{location}: Expected 2 or 3 fields, the first two being an id and a name, got {len(row)}."
            )
        label_id, name = row[0].strip(" "), row[1].strip(" ")
        label_id = label_id[1:-1] if _has_brackets(label_id) else label_id
        yield label_id, name or label_id, line


def _has_brackets(label_id: str) -> bool:
    return label_id.startswith("<") and label_id.endswith(">")


def _read_csv(path: PathLike, language: str) -> Iterator[_Entry]:
    rows = csv_rows(path)
    line, header = next(rows, (1, []))
    location = f"{display_name(path)}, line {line}"
    id_index = find_column(header, "uri", location)
    if f"label_{language}" not in header:
        languages = [match[1] for name in header if (match := _NAME_COLUMN.fullmatch(name))]
        raise _missing_language(location, language, languages)
    name_index = find_column(header, f"label_{language}", location)
    for number, row in rows:
        check_n_fields(row, header, f"{display_name(path)}, line {number}")
        yield row[id_index], row[name_index] or row[id_index], number


def _parse_skos(path: PathLike, rdf_format: str) -> tuple[Any, Any]:
    """Return the rdflib module and the graph parsed from a file."""
    rdflib = require("rdflib", extra="skos", purpose=display_name(path))
    graph = rdflib.Graph()
    content = read_bytes(path)
    try:
        if rdf_format == "xml":
            _check_entities(content)
        graph.parse(io.BytesIO(content), format=rdf_format)
    except InputError as error:
        raise InputError(f"{display_name(path)}: {error}") from None
    except Exception as error:  # rdflib's parsers raise exceptions of unrelated types
        raise InputError(
            f"{display_name(path)}{_error_line(error)}: Invalid {rdf_format}: {_error_message(error)}."
        ) from None
    return rdflib, graph


def _read_skos(path: PathLike, rdf_format: str, language: str) -> Vocabulary:
    rdflib, graph = _parse_skos(path, rdf_format)
    skos, owl = rdflib.namespace.SKOS, rdflib.namespace.OWL
    names: dict[str, str] = {}
    languages = set()
    for concept in graph.subjects(rdflib.namespace.RDF.type, skos.Concept, unique=True):
        if not isinstance(concept, rdflib.URIRef) or graph.value(concept, owl.deprecated) == rdflib.Literal(True):
            continue
        literals = [name for name in graph.objects(concept, skos.prefLabel) if isinstance(name, rdflib.Literal)]
        # If a concept has several names in a language, the first in alphabetical order is kept.
        by_language = {name.language: str(name) for name in sorted(literals, reverse=True)}
        languages |= {key for key in by_language if key}
        names[str(concept)] = by_language.get(language) or by_language.get(None) or str(concept)
    if not names:
        raise InputError(f"{display_name(path)} contains no skos:Concept.")
    if languages and language not in languages:
        raise _missing_language(display_name(path), language, sorted(languages))
    ids = sorted(names)
    return Vocabulary(ids, [names[label_id] for label_id in ids], source=display_name(path))


def _check_entities(content: bytes) -> None:
    """Raise InputError if a document defines entities that could expand to more text than memory can hold.

    Short entities that do not refer to other entities are common, usually as URI prefixes, and are allowed.
    """

    def check(name: str, is_parameter: int, value: str | None, *_: object) -> None:
        if is_parameter or value is None or "&" in value or len(value) > _MAX_ENTITY_LENGTH:
            raise InputError(
                f"The XML entity {name!r} is external, refers to other entities, or has more than "
                f"{_MAX_ENTITY_LENGTH} characters. Replace it with its text."
            )

    def stop(*_: object) -> None:  # all declarations precede the first element
        raise StopIteration

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = check
    parser.StartElementHandler = stop
    with contextlib.suppress(StopIteration, expat.ExpatError):  # rdflib reports errors in the document
        parser.Parse(content, True)


def _missing_language(location: str, language: str, languages: list[str]) -> InputError:
    available = f"The languages are {quote_names(languages)}." if languages else "There are no names in any language."
    return InputError(f'{location}: There are no names in the language "{language}". {available}')


def _error_line(error: Any) -> str:
    """Return the line of a parser error, if known; the Turtle parser counts lines from 0, the XML parser from 1."""
    if isinstance(getattr(error, "lines", None), int):
        return f", line {error.lines + 1}"
    return f", line {error.getLineNumber()}" if hasattr(error, "getLineNumber") else ""


def _error_message(error: Exception) -> str:
    """Return the first line of a parser's error message, without the final period."""
    message = getattr(error, "message", None) or (error.getMessage() if hasattr(error, "getMessage") else str(error))
    return str(message).strip().partition("\n")[0].removesuffix(".")
