"""The Markdown of the API reference: signatures, docstrings, properties and members of enums."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

# Text that only the memory or the environment of the machine that builds the site can produce.
LEAK = re.compile(r"environ\(| at 0x")
TEXTS = {".html", ".json", ".md", ".txt", ".xml"}


class Verbatim(str):
    """A text that a signature shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def find_leaks(site: Path) -> list[str]:
    """Return "FILE:NUMBER" for each line of the site that shows data of the build machine.

    The text of the line is left out, because it may contain a key.
    """
    return [
        f"{path.relative_to(site)}:{number}"
        for path in sorted(site.rglob("*"))
        if path.suffix in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if LEAK.search(line)
    ]


def describe(name: str) -> str:
    """Return the signature and the docstring of a name, or of the public names of a module."""
    found, value = _find(name)
    if not inspect.ismodule(value):
        return entry(name.rpartition(".")[2], value)
    own = [
        entry(each, getattr(value, each))
        for each in getattr(value, "__all__", dir(value))
        if each[0] != "_" and _is_described(getattr(value, each))
    ]
    return "\n".join([f"{inspect.getdoc(value) or found}\n", *own])


def _find(name: str) -> tuple[str, Any]:
    module, names = name, list[str]()
    while True:
        try:
            value: Any = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            names.insert(0, last)
    for each in names:
        value = getattr(value, each)
    return module, value


def _is_described(value: Any) -> bool:
    is_own = str(getattr(value, "__module__", "")).startswith("glue")
    return is_own or get_origin(value) is Literal


def entry(name: str, value: Any) -> str:
    """Return the heading, signature and docstring of a name, then the signatures of its members."""
    parts = [f"### {name}\n", _block(_head(name, value), value)]
    if inspect.isclass(value):
        for each, member in vars(value).items():
            if each[0] == "_":
                continue
            if isinstance(member, property):
                kind = inspect.signature(member.fget).return_annotation if member.fget else ""
                parts.append(_block(f"{name}.{each}: {kind}", member))
            elif isinstance(member, (classmethod, staticmethod)) or inspect.isfunction(member):
                function = member if inspect.isfunction(member) else getattr(value, each)
                parts.append(_block(f"{name}.{each}{signature(function)}", function))
    return "\n".join(parts)


def _head(name: str, value: Any) -> str:
    if get_origin(value) is Literal:
        return f"{name} = Literal[{', '.join(map(repr, get_args(value)))}]"
    if inspect.isclass(value) and issubclass(value, Enum):
        return "\n".join(f"{name}.{each.name} = {each.value!r}" for each in value)
    try:
        return f"{name}{signature(value)}"
    except (TypeError, ValueError):
        return name


def _block(head: str, value: Any) -> str:
    described = "" if get_origin(value) is Literal else inspect.getdoc(value) or ""
    return f"```python\n{head}\n```\n\n{described}\n"


def signature(function: Any) -> inspect.Signature:
    """Return a signature whose defaults are literals; any other default is shown as `...`."""
    found = inspect.signature(function)
    shown = [
        each.replace(annotation=_annotation(each.annotation), default=_default(each.default))
        for each in found.parameters.values()
    ]
    return found.replace(parameters=shown, return_annotation=_annotation(found.return_annotation))


def _annotation(annotation: Any) -> Any:
    return Verbatim(annotation) if isinstance(annotation, str) else annotation


def _default(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return default
    try:
        ast.literal_eval(repr(default))
    except (SyntaxError, ValueError):
        return Verbatim("...")
    return default
