"""Base classes of estimators: flat, validated parameters, and the fitted state.

An estimator is a dataclass whose fields are created by :func:`parameter`. As scikit-learn requires, values are stored
unchanged and validated when the estimator is fitted (:meth:`Parameterized.check_parameters`). The command-line flags
and the parameter page are generated from the same fields. The error message for a misspelled parameter name suggests
the closest match.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

from carya.core import rules
from carya.core.rules import Rule
from carya.errors import NotFittedError, ParameterError, UnknownParameterError

State = TypeVar("State")
Settings = TypeVar("Settings")
EstimatorT = TypeVar("EstimatorT", bound="Parameterized")


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
    """Return a suggestion to append to an error message, or an empty string if no known name is similar.

    >>> did_you_mean("beam_widht", ["beam_width", "branching"])
    " Did you mean 'beam_width'?"
    """
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower_case), n=1)
    return f" Did you mean {by_lower_case[close[0]]!r}?" if close else ""


def to_json(value: Any) -> Any:
    """Convert a parameter value to a JSON-serializable value.

    >>> to_json((1, {"b", "a"}))
    [1, ['a', 'b']]
    """
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value  # NumPy arrays and scalars


def from_json(value: Any) -> Any:
    """Convert a JSON value to a parameter value; lists become tuples because parameters are never modified in place.

    >>> from_json([1, [2, 3]])
    (1, (2, 3))
    """
    return tuple(from_json(item) for item in value) if isinstance(value, list) else value


def read_settings(cls: type[Settings], estimator: Any, **others: Any) -> Settings:
    """Create a settings dataclass whose fields have the values of the estimator's parameters with the same names.

    NumPy scalars become Python scalars. `others` contains the values of the fields that are not
    parameters of the estimator.
    """
    names = [field.name for field in dataclasses.fields(cls) if field.name not in others]  # type: ignore[arg-type]
    return cls(**{name: to_python(getattr(estimator, name)) for name in names}, **others)


def to_python(value: Any) -> Any:
    """Convert NumPy scalars to Python scalars and lists to tuples, so that values can be compared and hashed.

    >>> to_python([1, 2])
    (1, 2)
    """
    if isinstance(value, (list, tuple)):
        return tuple(rules.to_python_scalar(item) for item in value)
    return rules.to_python_scalar(value)


class ParameterizedType(type):
    """Metaclass that resolves parameter aliases and rejects unknown parameters before `__init__` runs."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of `__init__`, for `help` and for tooltips."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=list(signature.parameters.values())[1:])

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
    #: Parameter names from other libraries and earlier versions; used only in error messages.
    foreign_names: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def parameters(cls) -> tuple[dataclasses.Field[Any], ...]:
        """Return the parameters as dataclass fields with their rule, description and group in `metadata`."""
        return dataclasses.fields(cls)  # type: ignore[arg-type]

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Return the names of all parameters."""
        return [field.name for field in cls.parameters()]

    @classmethod
    def resolve_names(cls, parameters: Mapping[str, Any], *, nested: bool = False) -> dict[str, Any]:
        """Replace aliases with parameter names; raise UnknownParameterError for unknown names.

        If `nested`, names can have the form ``part__name``; then only ``part`` is resolved.
        """
        known = cls.parameter_names()
        resolved: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name, value in parameters.items():
            own, separator, inner = name.partition("__") if nested else (name, "", "")
            target = own if own in known else cls.aliases.get(own)
            if target not in known:
                foreign = cls.foreign_names.get(own)
                advice = f" Use {foreign}." if foreign else did_you_mean(own, known)
                raise UnknownParameterError(f"{cls.__name__} has no parameter {name!r}.{advice}")
            key = f"{target}{separator}{inner}"
            if key in resolved:
                raise ParameterError(f"{names[key]} and {name} are the same parameter. Pass only one of them.")
            resolved[key], names[key] = value, name
        return resolved

    @classmethod
    def from_saved_parameters(cls, saved: Mapping[str, Any]) -> Self:
        """Create an estimator from the parameters of a saved model and validate them."""
        estimator: Self = cls(**{name: from_json(value) for name, value in saved.items()})
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
        for name, value in self.resolve_names(params, nested=True).items():
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
            rules.check(field.name, getattr(self, field.name), field.metadata["rule"])

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if `fit` requires an optional package that is not installed."""


class Fitted(Generic[State]):
    """Base class of estimators with a fitted state.

    The state is assigned to `_state` in a single step, because other threads may be using the estimator.
    """

    #: The options of `open_data` used to read the training data; set by the command-line interface and saved
    #: with the model.
    data_options_: Mapping[str, Any] = MappingProxyType({})

    _state: State

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def _check_fitted(self) -> State:
        """Return the fitted state; raise NotFittedError if `fit` has not been called."""
        try:
            return self._state
        except AttributeError:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call fit first.") from None


def with_parameter(estimator: Any, name: str, value: Any) -> Any:
    """Return an unfitted copy with a parameter set in the estimator and in all nested estimators that have it."""
    changes: dict[str, Any] = {}
    for parameter_name, part in estimator.get_params(deep=False).items():
        if isinstance(part, Parameterized):
            changes[parameter_name] = with_parameter(part, name, value)
        elif isinstance(part, (list, tuple)) and any(isinstance(item, Parameterized) for item in part):
            changes[parameter_name] = [with_parameter(item, name, value) for item in part]
    if name in estimator.parameter_names():
        changes[name] = value
    return estimator.clone(**changes)


def set_in_all(estimator: object, **values: Any) -> None:
    """Set parameters in an estimator and in all nested estimators; each ignores parameters that it does not have.

    >>> import carya
    >>> model = carya.Ensemble([carya.XRLinear(), carya.XRLinear(verbose=True)])
    >>> set_in_all(model, n_jobs=1, verbose=False)
    >>> [(member.n_jobs, member.verbose) for member in model.members]
    [(1, False), (1, False)]
    """
    for inner in _nested_estimators(estimator, set()):
        names = inner.parameter_names()
        inner.set_params(**{name: value for name, value in values.items() if name in names})


def clone_with_checkpoints_in(estimator: EstimatorT, name: str) -> EstimatorT:
    """Return an unfitted copy; it and all nested estimators that have a checkpoint folder use a subfolder of it.

    >>> import carya
    >>> clone_with_checkpoints_in(carya.Ensemble(carya.XRLinear(checkpoint_dir="a")), "fold-1").members
    XRLinear(checkpoint_dir='a/fold-1')
    """
    unfitted = estimator.clone()
    folders = [getattr(inner, "checkpoint_dir", None) for inner in _nested_estimators(unfitted, set())]
    if not any(folders):
        return unfitted
    unfitted = copy.deepcopy(unfitted)
    for inner in _nested_estimators(unfitted, set()):
        folder = getattr(inner, "checkpoint_dir", None)
        if folder is not None:
            inner.set_params(checkpoint_dir=str(Path(folder) / name))
    return unfitted


def _nested_estimators(value: object, seen: set[int]) -> Iterator[Parameterized]:
    """Yield an estimator and all estimators nested in it, including those in lists, dictionaries and dataclasses."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Parameterized):
        yield value
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, (list, tuple)):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = list(vars(value).values())
    for part in parts:
        yield from _nested_estimators(part, seen)


def _is_default(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default)
