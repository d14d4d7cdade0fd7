"""Parameters: flat, checked, and refused with a hint when misspelt.

An estimator is a dataclass whose fields are made with :func:`parameter`. Values are stored untouched, as scikit-learn
asks, and checked by :meth:`Parameterised.check_parameters` when the estimator is fitted. The same fields feed the
parameter page.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from carya.core.rules import Rule
from carya.errors import ParameterError, UnknownParameterError


def to_json(value: Any) -> Any:
    """A parameter as JSON knows it.

    >>> to_json((1, {"b", "a"}))
    [1, ['a', 'b']]
    """
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value  # NumPy's arrays and scalars


def from_json(value: Any) -> Any:
    """And back: what was a list is a tuple, as parameters should not be changed.

    >>> from_json([1, [2, 3]])
    (1, (2, 3))
    """
    return tuple(from_json(item) for item in value) if isinstance(value, list) else value


def parameter(default: Any, rule: Rule, doc: str) -> Any:
    """A dataclass field that knows what it may be and what it is for."""
    return dataclasses.field(default=default, metadata={"rule": rule, "doc": doc})


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, if there is one."""
    spelled = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), list(spelled), n=1)
    return f"; did you mean {spelled[close[0]]!r}?" if close else ""


def _same(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default)


class Parameterised:
    """An estimator in scikit-learn's sense whose parameters are the fields of its dataclass.

    It follows the conventions (``get_params``, ``set_params``, tags) without inheriting from scikit-learn, whose
    import would take longer than to open a model and answer.
    """

    #: What others call the parameters, for messages.
    names_elsewhere: ClassVar[Mapping[str, str]] = {}

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Refuse parameters that do not exist, with a hint."""
        cls._refuse_unknown(kwargs)
        return super().__new__(cls)

    @classmethod
    def parameters(cls) -> tuple[dataclasses.Field[Any], ...]:
        """The parameters, each with its rule and what it is for in `metadata`."""
        return dataclasses.fields(cls)  # type: ignore[arg-type]

    @classmethod
    def _refuse_unknown(cls, names: Iterable[str]) -> None:
        known = [field.name for field in cls.parameters()]
        for name in names:
            if name not in known:
                elsewhere = cls.names_elsewhere.get(name)
                advice = f"; it is called {elsewhere} here" if elsewhere else hint(name, known)
                raise UnknownParameterError(f"{cls.__name__} has no parameter {name!r}{advice}")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as in scikit-learn; if `deep`, those of parts too, as part__name."""
        found = {field.name: getattr(self, field.name) for field in self.parameters()}
        for name, value in list(found.items()) if deep else ():
            if isinstance(value, Parameterised):
                found |= {f"{name}__{inner}": one for inner, one in value.get_params().items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, as in scikit-learn; unknown names are refused with a hint."""
        self._refuse_unknown(name.partition("__")[0] for name in params)
        for name, value in params.items():
            mine, _, inner = name.partition("__")
            if not inner:
                setattr(self, mine, value)
                continue
            part = getattr(self, mine)
            if not isinstance(part, Parameterised):
                raise UnknownParameterError(
                    f"{mine} of {type(self).__name__} is {part!r}: it has no parameter {inner!r}"
                )
            part.set_params(**{inner: value})
        return self

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in self.parameters()
            if not _same(getattr(self, field.name), field.default)
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
        """Raise ParameterError for the first parameter that has a value it cannot have."""
        for field in self.parameters():
            rule: Rule = field.metadata["rule"]
            value = getattr(self, field.name)
            if not rule.allows(value):
                raise ParameterError(
                    f"the parameter {field.name!r} of {type(self).__name__} must be {rule.text}, got {value!r}"
                )
