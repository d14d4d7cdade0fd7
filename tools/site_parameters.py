"""Griffe extension that adds declared parameters to the API reference and removes Sphinx roles from docstrings."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe


class ParameterDeclarations(griffe.Extension):
    """Replace ``name: type = parameter(default, rule, doc)`` with the default, and add `doc` to the class docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Remove roles such as ``:meth:``, which Markdown does not support."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r":(?:attr|class|func|meth|mod):(?=`)", "", obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Process the fields of a class after its body has been read."""
        for name, field in cls.members.items():
            call = field.value if field.is_attribute else None
            if not isinstance(call, griffe.ExprCall) or str(call.function) != "parameter":
                continue
            field.value = call.arguments[0]
            description = _string(call.arguments[2]) if len(call.arguments) > 2 else ""
            if cls.docstring is not None and description:
                cls.docstring.value = _add_description(cls.docstring.value, name, description)


def _string(expression: griffe.Expr | str) -> str:
    """Return the value of a string literal, or an empty string for any other expression."""
    try:
        return str(ast.literal_eval(str(expression)))
    except (SyntaxError, ValueError):
        return ""


def _add_description(docstring: str, name: str, description: str) -> str:
    """Insert a description below ``name : type``, unless the parameter already has one."""
    sentence = description[0].upper() + description[1:] + "."
    return re.sub(
        rf"^({re.escape(name)} : .*)\n(?! )",
        lambda match: f"{match[1]}\n    {sentence}\n",
        docstring,
        flags=re.MULTILINE,
    )
