"""Options for models with label trees, and the construction of these models from the options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from carya.cli.commands import Option, option
from carya.cli.options.parameter_flags import given_parameters, parameter_options
from carya.cli.options.rule_type import RuleType
from carya.core.rules import Integer
from carya.errors import ParameterError, UnknownParameterError

_Decorator = Callable[[Callable[..., None]], Callable[..., None]]

#: Headings for the parameter groups of vectorizers and trees, in the order shown by `--help`.
_HEADINGS = {
    "text features": "Text features",
    "tree": "Label tree",
    "negatives": "Negatives and search",
    "training": "Training",
    "other": "Training",
}


def preset_option(description: str) -> _Decorator:
    """Return the option for a preset."""
    return option("--preset", metavar="NAME", heading="Model", help=description)


def trees_option(description: str) -> _Decorator:
    """Return the option for the number of trees."""
    return option("--trees", type=RuleType(Integer(1)), metavar="INTEGER", heading="Model", help=description)


def tree_options() -> list[Option]:
    """Return the options for the parameters of vectorizers and trees."""
    from carya.models.xr_linear.model import XRLinear
    from carya.text.tfidf import Tfidf

    options = parameter_options([Tfidf, XRLinear], _HEADINGS)
    for generated in options:
        if generated.name == "analyzer" and generated.help:  # see `default_vectorizer`
            generated.help = generated.help.replace("[default: word]", "[default: auto]")
    return options


def tree_parameters(context: click.Context) -> dict[str, Any]:
    """Return the parameters that the user passed for the vectorizer and the trees."""
    from carya.models.xr_linear.model import XRLinear
    from carya.text.tfidf import Tfidf

    return given_parameters(context, Tfidf) | given_parameters(context, XRLinear)


def build_text_ranker(context: click.Context, preset: str | None, trees: int | None, *, verbose: bool) -> Any:
    """Return an unfitted TextRanker whose model is a tree, an ensemble of trees, or the model of a preset."""
    from carya.models import presets
    from carya.models.xr_linear.model import XRLinear
    from carya.text.default_vectorizer import default_vectorizer
    from carya.text.text_ranker import TextRanker
    from carya.text.tfidf import Tfidf

    text, linear = given_parameters(context, Tfidf), given_parameters(context, XRLinear)
    if preset is not None and trees is not None:
        raise ParameterError("--trees cannot be combined with --preset, which sets the number of trees.")
    linear["verbose"] = verbose
    if preset is None:
        model: Any = presets.with_trees(XRLinear(**linear), trees or 1)
    else:
        try:
            model = presets.preset(preset, **linear)
        except UnknownParameterError as error:  # from NearestNeighbors, which has no tree parameters
            raise ParameterError(f"Invalid option for --preset {preset}: {error}") from None
    return TextRanker(default_vectorizer(model, verbose=verbose, **text), model)
