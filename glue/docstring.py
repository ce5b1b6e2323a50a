"""What a function's name and docstring tell a model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any


def name_of(function: Any) -> str:
    """The name a model sees: the function's, or that of a callable object's class."""
    inner = inner_of(function)
    name = getattr(inner, "__name__", None)
    if name is None:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(inner).__name__).lower()
    return str(name)


def description_of(function: Any) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join(doc_of(function).split("\n\n", 1)[0].split())


def doc_of(function: Any) -> str:
    """The docstring; a callable object's is that of its `__call__`, or else its class's."""
    inner = inner_of(function)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = type(inner).__call__ if type(inner).__call__.__doc__ else type(inner)
    return inspect.getdoc(inner) or ""


def arguments_section(doc: str) -> dict[str, str]:
    """The texts of a Google-style `Args:` section."""
    lines = iter(doc.splitlines())
    for line in lines:
        if line.strip() in ("Args:", "Arguments:", "Parameters:"):
            return dict(_entries(lines, len(line) - len(line.lstrip())))
    return {}


_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


def _entries(lines: Iterator[str], outer: int) -> Iterator[tuple[str, str]]:
    name, indent = "", None
    words: list[str] = []
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        if depth <= outer:
            break
        indent = depth if indent is None else indent
        entry = _ENTRY.match(line.strip()) if depth <= indent else None
        if entry:
            if name:
                yield name, " ".join(words)
            name, words = entry[1], [entry[2]] if entry[2] else []
        else:
            words.append(line.strip())
    if name:
        yield name, " ".join(words)


def inner_of(function: Any) -> Any:
    while hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial
        function = function.func
    return function
