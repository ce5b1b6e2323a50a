"""Find problems of tools: missing descriptions, and schemas that some model APIs refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from glue.context import AnyTool
from glue.providers import tool_rules

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProblem:
    """A problem of a tool, and the wires (model APIs) that refuse the tool because of it."""

    tool: str
    text: str
    wires: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.tool}: {self.text}" + (f" ({', '.join(self.wires)})" if self.wires else "")


def check_tools(tools: Iterable[AnyTool]) -> tuple[ToolProblem, ...]:
    """Return the problems of tools, such as missing descriptions.

    >>> check_tools([])
    ()
    """
    return tuple(finding for tool in tools for finding in _check(tool))


def tools_of(module: ModuleType) -> tuple[AnyTool, ...]:
    """Return the tools of a module: in variables, in lists and tuples, and in agents."""
    found: dict[int, AnyTool] = {}
    for value in vars(module).values():
        if isinstance(value, (ModuleType, type)):
            continue
        # The tools of an agent are in its settings.
        tools = getattr(getattr(value, "settings", value), "tools", value)
        for item in (value, *(tools if isinstance(tools, (list, tuple)) else ())):
            if hasattr(item, "spec") and hasattr(item, "invoke") and not isinstance(item, type):
                found.setdefault(id(item.spec), item)
    return tuple(found.values())


def _check(tool: AnyTool) -> Iterator[ToolProblem]:
    spec, schema, known = tool.spec, tool.spec.parameters, tool_rules()
    problem = partial(ToolProblem, tool=spec.name)
    if not spec.description.strip():
        yield problem(text="has no description; write a docstring")
    if not NAME.fullmatch(spec.name):
        yield problem(text=f"the name does not match ^{NAME.pattern}$", wires=tuple(known))
    elif not re.match(r"[a-zA-Z_]", spec.name):
        wires = tuple(wire for wire, rules in known.items() if rules.needs_letter)
        yield problem(text="the name must start with a letter or _", wires=wires)
    patterns = {wire: rules.parameter_name for wire, rules in known.items() if rules.parameter_name}
    for name, part in schema.get("properties", {}).items():
        part = part if isinstance(part, Mapping) else {}  # true accepts every value
        if not part.get("description") and not _mentions(spec.description, name):
            yield problem(text=f"parameter {name!r} has no description")
        if not part.keys() & {"type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"}:
            yield problem(text=f"parameter {name!r} has no type, so the model has to guess")
        wires = _wires_that_refuse(name, patterns)
        if wires:
            yield problem(
                text=f"the name of parameter {name!r} is refused by some models", wires=wires
            )
    if schema.get("type") != "object":
        yield problem(text="the parameters are not of type object", wires=tuple(known))
    for word in schema:
        wires = tuple(wire for wire, rules in known.items() if word in rules.at_root)
        if wires:
            yield problem(
                text=f"{word} at the root of the parameters is refused by some models", wires=wires
            )
    places: dict[str, str] = {}  # the first place of each keyword, as words for a message
    for path, part in _walk(schema, ""):
        for word in part:
            places.setdefault(word, path)
        kinds = part.get("type")
        is_array = "array" in (kinds if isinstance(kinds, list) else [kinds])
        if is_array and "items" not in part:
            wires = tuple(wire for wire, rules in known.items() if rules.needs_items)
            yield problem(text=f"a list has no items schema{path}", wires=wires)
    for word, path in places.items():
        wires = tuple(wire for wire, rules in known.items() if word in rules.keywords)
        if wires:
            yield problem(text=f"{word}{path} is refused or ignored by some models", wires=wires)


def _wires_that_refuse(parameter: str, patterns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the wires that refuse a tool parameter because of its name, `parameter`.

    `patterns` has a regular expression of the valid names for each wire.
    """
    return tuple(wire for wire, pattern in patterns.items() if not re.fullmatch(pattern, parameter))


def _mentions(description: str, parameter: str) -> bool:
    """Return whether a tool's description mentions a parameter by its name.

    "Return the weather in a city" describes a parameter `city` well enough.
    """
    words = re.escape(parameter).replace("_", "[ _-]")
    return re.search(rf"(?<!\w){words}(?!\w)", description, re.IGNORECASE) is not None


_MANY = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_ONE = ("items", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contains")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


def _walk(schema: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a schema and every schema inside it, each with its place, such as " in 'city'"."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for word in _MANY:
        for name, part in schema.get(word, {}).items():
            yield from _walk(part, path or f" in {name!r}")
    for word in _ONE:
        yield from _walk(schema.get(word), path)
    for word in _LISTS:
        for part in schema.get(word, ()):
            yield from _walk(part, path)
