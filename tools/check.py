"""Checks of tools: what is undescribed, and what the wire of some provider refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from glue import AnyTool
from glue.providers import tool_rules

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProblem:
    """One thing to mend; `wires` names those that mind, and is empty where it is the model that would."""

    tool: str
    text: str
    wires: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.tool}: {self.text}" + (f" ({', '.join(self.wires)})" if self.wires else "")


def check_tools(tools: Iterable[AnyTool]) -> tuple[ToolProblem, ...]:
    """Check tools; nothing found is an empty tuple."""
    return tuple(finding for tool in tools for finding in _check(tool))


def tools_of(module: ModuleType) -> tuple[AnyTool, ...]:
    """Find tools in a module: by themselves, in a list or tuple, or those of an agent."""
    found: dict[int, AnyTool] = {}
    for value in vars(module).values():
        if isinstance(value, (ModuleType, type)):
            continue
        tools = getattr(getattr(value, "settings", value), "tools", value)  # an agent's are among its settings
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
        yield problem(text="the name must begin with a letter or _", wires=wires)
    for name, part in schema.get("properties", {}).items():
        if not part.get("description") and not _names(spec.description, name):
            yield problem(text=f"parameter {name!r} has no description")
        if not part.keys() & {"type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"}:
            yield problem(text=f"parameter {name!r} has no type; the model must guess")
        named = {wire: rules.parameter_name for wire, rules in known.items() if rules.parameter_name}
        if wires := tuple(wire for wire, pattern in named.items() if not re.fullmatch(pattern, name)):
            yield problem(text=f"parameter {name!r} has a name that is refused", wires=wires)
    if schema.get("type") != "object":
        yield problem(text="the parameters are not of type object", wires=tuple(known))
    for word in schema:
        if wires := tuple(wire for wire, rules in known.items() if word in rules.at_root):
            yield problem(text=f"{word} at the root of the parameters", wires=wires)
    places: dict[str, str] = {}  # the first place of each keyword
    for path, part in _walk(schema, ""):
        for word in part:
            places.setdefault(word, path)
        kinds = part.get("type")
        if "array" in (kinds if isinstance(kinds, list) else [kinds]) and "items" not in part:
            wires = tuple(wire for wire, rules in known.items() if rules.needs_items)
            yield problem(text=f"a list without items{path}", wires=wires)
    for word, path in places.items():
        if wires := tuple(wire for wire, rules in known.items() if word in rules.keywords):
            yield problem(text=f"{word}{path} is refused or ignored by some models", wires=wires)


def _names(description: str, parameter: str) -> bool:
    """Say whether a tool's description speaks of a parameter by its name: "the weather in a city" needs no more."""
    words = re.escape(parameter).replace("_", "[ _-]")
    return re.search(rf"(?<!\w){words}(?!\w)", description, re.IGNORECASE) is not None


_MANY = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_ONE = ("items", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contains")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


def _walk(schema: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema inside a schema, with words that say where it stands."""
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
