"""Options generated from the parameters of estimators."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from carya.cli.commands import Option
from carya.cli.options.rule_type import RuleType, placeholder
from carya.core.parameters import Parameterized
from carya.core.rules import Choice, Rule

#: Parameters that cannot be specified as a string or that are set by the commands themselves.
_NOT_OPTIONS = frozenset({"tree", "verbose", "tokens", "parts", "part_token", "use_tfidf", "vectorizer", "ranker"})
#: Alternative option names, in addition to the aliases declared by the estimators.
_SPELLINGS = {"n_jobs": ["--threads"], "checkpoint_dir": ["--checkpoint"]}


def flag(name: str) -> str:
    """Return the command-line option for a parameter.

    >>> flag("beam_width")
    '--beam-width'
    """
    return "--" + name.replace("_", "-")


def parameter_options(estimators: Iterable[type[Parameterized]], headings: Mapping[str, str]) -> list[Option]:
    """Return one option per parameter of the given estimators; shared parameters are listed once.

    Parameters
    ----------
    estimators : iterable of type
    headings : mapping of str to str
        The heading of each parameter group, in display order; other groups are listed under their own names.
    """
    fields: dict[str, tuple[dataclasses.Field[Any], type[Parameterized]]] = {}
    for estimator in estimators:
        for field in estimator.parameters():
            if field.name not in _NOT_OPTIONS:
                fields.setdefault(field.name, (field, estimator))
    options = []
    for field, estimator in fields.values():
        group = field.metadata["group"]
        heading = headings.get(group, group.capitalize())
        options.append(_option(field, _spellings(field.name, estimator), heading))
    order = list(headings.values())
    return sorted(options, key=lambda option: order.index(option.heading) if option.heading in order else len(order))


def given_parameters(context: click.Context, estimator: type[Parameterized]) -> dict[str, Any]:
    """Return the parameters that the user passed on the command line for an estimator."""
    return {
        name: context.params[name]
        for name in estimator.parameter_names()
        if name not in _NOT_OPTIONS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def _option(field: dataclasses.Field[Any], spellings: list[str], heading: str) -> Option:
    rule: Rule = field.metadata["rule"]
    settings: dict[str, Any] = {
        "default": None,  # the estimator provides the default; `given_parameters` determines which options were passed
        "heading": heading,
        "help": f"{_sentence(field.metadata['doc'])}  [default: {_format(field.default)}]",
    }
    if isinstance(rule, Choice) and set(rule.values) <= {True, False, None}:
        on, off = spellings[0], f"--no-{spellings[0][2:]}"
        default = "" if field.default is None else f"  [default: {on if field.default else off}]"
        settings["help"] = _sentence(field.metadata["doc"]) + default
        return Option([f"{on}/{off}", field.name], **settings)
    return Option([*spellings, field.name], type=RuleType(rule), metavar=placeholder(rule), **settings)


def _sentence(description: str) -> str:
    """Return a description as a sentence; symbols from the paper keep their case, and None becomes none.

    >>> _sentence("maximum number of terms; None means all"), _sentence("b, number of nodes per level")
    ('Maximum number of terms; none means all.', 'b, number of nodes per level.')
    """
    text = re.sub(r"\bNone\b", "none", description)
    is_symbol = re.match(r"\w[,-]", text)
    return f"{text if is_symbol else text[0].upper() + text[1:]}."


def _spellings(name: str, estimator: type[Parameterized]) -> list[str]:
    aliases = [flag(alias) for alias, target in estimator.aliases.items() if target == name]
    return [flag(name), *aliases, *_SPELLINGS.get(name, [])]


def _format(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(_format, value))
    return "none" if value is None else str(value)
