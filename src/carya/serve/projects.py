"""The Annif projects under which models are served: their names, vocabularies and languages."""

from __future__ import annotations

import configparser
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from carya.data.formats.vocabularies import read_languages
from carya.errors import InputError


@dataclass(frozen=True)
class Project:
    """An Annif project.

    Attributes
    ----------
    name : str
        The display name of the project.
    language : str
        The language of the texts and, by default, of the label names.
    vocabulary : str
        The id of the vocabulary.
    names : mapping of str to mapping of str to str
        For each language, the name of each label by id.
    notations : mapping of str to str
        The notations of labels by id.
    """

    name: str
    language: str
    vocabulary: str
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notations: Mapping[str, str] = field(default_factory=dict)

    @property
    def languages(self) -> list[str]:
        """The languages of the label names; the language of the project comes first."""
        return [self.language, *(language for language in sorted(self.names) if language != self.language)]

    def label_name(self, label: str, language: str, default: str) -> str:
        """Return the name of a label in a language, or the default name if the vocabulary has none."""
        return self.names.get(language, {}).get(label, default)


def read_projects(path: Path | None, models: Collection[str], language: str) -> dict[str, Project]:
    """Return the project of each model.

    Parameters
    ----------
    path : path or None
        A file in the format of Annif's projects.cfg. Sections of other projects and the settings of Annif's backends
        are ignored.
    models : collection of str
        The names of the models, which are the ids of the projects.
    language : str
        The language of projects that specify none.
    """
    projects = {model: Project(model, language, model) for model in models}
    if path is None:
        return projects
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    try:
        parser.read_string(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a valid projects file: {' '.join(str(error).split())}.") from None
    sections = [section for section in parser.sections() if section in projects]
    if not sections:
        raise InputError(
            f"{path} contains no section for a served model. Add a section named {', '.join(map(repr, models))}."
        )
    for section in sections:
        values = parser[section]
        project_language = values.get("language", language)
        names: Mapping[str, Mapping[str, str]] = {}
        notations: Mapping[str, str] = {}
        if "vocabulary_file" in values:
            names, notations = read_languages(path.parent / values["vocabulary_file"], language=project_language)
        vocabulary = values.get("vocab", section).partition("(")[0].strip()  # Annif allows vocab=yso(en)
        projects[section] = Project(values.get("name", section), project_language, vocabulary, names, notations)
    return projects
