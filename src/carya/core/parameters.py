"""Estimator parameters: flat and validated; the error for a misspelled name suggests the closest match.

An estimator is a dataclass whose fields are created by :func:`parameter`. As scikit-learn requires, values are stored
unchanged and validated when the estimator is fitted (:meth:`Parameterized.check_parameters`). The command-line flags
and the parameter page are generated from the same fields.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from carya.core.progress import Progress, ProgressBars
from carya.core.rules import Rule
from carya.errors import ParameterError, UnknownParameterError


def parameter(default: Any, rule: Rule, doc: str, *, group: str = "other") -> Any:
    """Declare a parameter as a dataclass field.

    Parameters
    ----------
    default : object
    rule : Rule
        The rule that valid values satisfy.
    doc : str
        A one-line description for `--help` and the parameter page.
    group : str
        The heading under which `--help` lists the parameter.
    """
    return dataclasses.field(default=default, metadata={"rule": rule, "doc": doc, "group": group})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion to append to an error message, or an empty string if no known name is close.

    >>> did_you_mean("beam_widht", ["beam_width", "branching"])
    " Did you mean 'beam_width'?"
    """
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower_case), n=1)
    return f" Did you mean {by_lower_case[close[0]]!r}?" if close else ""


def to_json(value: Any) -> Any:
    """Convert a parameter value to JSON types.

    >>> to_json((1, {"b", "a"}))
    [1, ['a', 'b']]
    """
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value  # NumPy arrays and scalars


def from_json(value: Any) -> Any:
    """Convert JSON types to a parameter value; lists become tuples because parameters are never modified in place.

    >>> from_json([1, [2, 3]])
    (1, (2, 3))
    """
    return tuple(from_json(item) for item in value) if isinstance(value, list) else value


class ParameterizedType(type):
    """Metaclass that resolves parameter aliases and rejects unknown parameters before `__init__` runs."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Create an estimator."""
        return super().__call__(*args, **cls.resolve_names(kwargs))  # type: ignore[attr-defined]


class Parameterized(metaclass=ParameterizedType):
    """Base class for estimators whose parameters are dataclass fields.

    It follows scikit-learn's conventions (`get_params`, `set_params`, tags) but does not inherit from scikit-learn,
    because importing scikit-learn takes longer than loading a model and ranking a query.
    """

    #: Accepted aliases of parameter names.
    aliases: ClassVar[Mapping[str, str]] = {"random_state": "seed"}
    #: Names of the parameters in other libraries; used only in error messages.
    foreign_names: ClassVar[Mapping[str, str]] = {}
    #: Former names of parameters in models saved by earlier versions.
    former_names: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def parameters(cls) -> tuple[dataclasses.Field[Any], ...]:
        """Return the parameters as dataclass fields with their rule, description and group in `metadata`."""
        return dataclasses.fields(cls)  # type: ignore[arg-type]

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Return the names of all parameters."""
        return [field.name for field in cls.parameters()]

    @classmethod
    def resolve_names(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Replace aliases with parameter names; raise UnknownParameterError for unknown names."""
        known = cls.parameter_names()
        resolved: dict[str, Any] = {}
        for name, value in given.items():
            head, separator, rest = name.partition("__")
            if head not in known:
                target = cls.aliases.get(head)
                if target not in known:
                    foreign = cls.foreign_names.get(head)
                    advice = f" Use {foreign}." if foreign else did_you_mean(head, known)
                    raise UnknownParameterError(f"{cls.__name__} has no parameter {head!r}.{advice}")
                head = target
            if head + separator + rest in resolved:
                raise ParameterError(f"{head} and its alias {name!r} are both given. Pass only one of them.")
            resolved[head + separator + rest] = value
        return resolved

    @classmethod
    def from_saved_parameters(cls, saved: Mapping[str, Any]) -> Self:
        """Create an estimator from the parameters of a saved model and validate them."""
        estimator: Self = cls(**{cls.former_names.get(name, name): from_json(value) for name, value in saved.items()})
        estimator.check_parameters()
        return estimator

    def clone(self, **changes: Any) -> Self:
        """Return an unfitted copy with the same parameters, except for the given changes."""
        return type(self)(**(self.get_params(deep=False) | changes))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; if `deep`, include those of nested estimators as ``part__name``."""
        params = {name: getattr(self, name) for name in self.parameter_names()}
        for name, value in list(params.items()) if deep else ():
            if isinstance(value, Parameterized):
                params |= {f"{name}__{inner}": nested for inner, nested in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, as in scikit-learn."""
        for name, value in self.resolve_names(params).items():
            own, _, inner = name.partition("__")
            if not inner:
                setattr(self, own, value)
                continue
            part = getattr(self, own)
            if not isinstance(part, Parameterized):
                raise UnknownParameterError(
                    f"{type(self).__name__}.{own} is {part!r}, which has no parameter {inner!r}."
                )
            part.set_params(**{inner: value})
        return self

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in self.parameters()
            if not _is_default(getattr(self, field.name), field.default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True, single_output=False),
            input_tags=InputTags(sparse=True),
        )

    def check_parameters(self) -> None:
        """Raise ParameterError for the first invalid parameter."""
        for field in self.parameters():
            rule: Rule = field.metadata["rule"]
            value = getattr(self, field.name)
            if not rule.allows(value):
                raise ParameterError(f"{field.name} must be {rule.text}, got {value!r}.")

    def progress(self: Any) -> Progress:
        """Return progress bars if the estimator is verbose, otherwise a silent progress object."""
        return ProgressBars() if self.verbose else Progress()


def _is_default(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default)
