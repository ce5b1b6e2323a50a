"""Turn jsonschema's findings into lines that a model can act on: path, what was given, what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from glue.faults import Faults, Path, clean, show

MOST = 20  # lines; a model that got more wrong than this should start over

_NOUNS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_PLURALS = {
    "string": "strings",
    "integer": "integers",
    "number": "numbers",
    "boolean": "true or false",
    "array": "lists",
    "object": "objects",
}
_FORMATS = {
    "date-time": "a date and time such as 2026-01-31T09:30:00Z",
    "date": "a date such as 2026-01-31",
    "time": "a time such as 09:30:00",
    "uuid": "a UUID",
}


def explain(judge: Any, value: Any, resolve: Callable[[Any], Any]) -> Faults | None:
    """Collect the faults that a jsonschema validator finds."""
    found: dict[tuple[Path, str], None] = {}
    for error in judge.iter_errors(value):
        for path, text in _lines(error, resolve):
            found.setdefault((path, text))
    if not found:
        return None
    faults = list(found)
    if len(faults) > MOST:
        faults = [*faults[:MOST], ((), f"and {len(faults) - MOST} more faults")]
    return Faults(faults)


def _lines(error: Any, resolve: Callable[[Any], Any]) -> Iterator[tuple[Path, str]]:
    path: Path = tuple(error.absolute_path)
    word, schema, value = error.validator, error.schema, error.instance
    if word == "required":
        properties = schema.get("properties", {})
        for name in error.validator_value:
            if name not in value:
                yield (*path, name), f"missing, expected {phrase(properties.get(name, {}), resolve)}"
    elif word == "additionalProperties" and error.validator_value is False:
        names = list(schema.get("properties", {}))
        known = "there are: " + ", ".join(names) if names else "there are none"
        for name in value:
            if name not in names:
                yield (*path, name), f"unknown name; {known}"
    elif word in ("anyOf", "oneOf") and (closest := _closest(error)):
        for inner in closest:
            yield from _lines(inner, resolve)
    elif isinstance(schema, Mapping) and word not in ("oneOf", "not", "if", "dependentRequired"):
        yield path, f"got {show(value)}, expected {phrase(schema, resolve)}"
    else:
        yield path, clean(error.message)[:300]


def _closest(error: Any) -> list[Any]:
    """The errors of the one option that the value was meant for, if its type tells."""
    options: dict[int, list[Any]] = {}
    for inner in error.context or ():
        options.setdefault(next(iter(inner.schema_path), -1), []).append(inner)
    fitting = [
        errors for errors in options.values() if not any(e.validator == "type" and not e.relative_path for e in errors)
    ]
    return fitting[0] if len(fitting) == 1 else []


def phrase(schema: Any, resolve: Callable[[Any], Any], depth: int = 0) -> str:
    """Say in words what a schema asks for."""
    schema = resolve(schema)
    if not isinstance(schema, Mapping):
        return "a value"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            options = dict.fromkeys(phrase(option, resolve, depth + 1) for option in schema[word])
            return " or ".join(options)
    if "const" in schema:
        return show(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(show(value) for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_NOUNS.get(name, "a value") for name in kind)
    if kind == "string":
        noun = _FORMATS.get(schema.get("format", ""), "a string")
        noun = "base64 text" if schema.get("contentEncoding") == "base64" else noun
    elif kind == "array":
        noun = _list(schema, resolve, depth)
    elif kind == "object":
        noun = _object(schema, depth)
    else:
        noun = _NOUNS.get(str(kind), "a value")
    return noun + _bounds(schema)


def _list(schema: Mapping[str, Any], resolve: Callable[[Any], Any], depth: int) -> str:
    if "prefixItems" in schema and depth < 3:
        return f"a list of [{', '.join(phrase(item, resolve, depth + 1) for item in schema['prefixItems'])}]"
    items = resolve(schema.get("items"))
    plural = _PLURALS.get(str(items.get("type"))) if isinstance(items, Mapping) else None
    return f"a list of {plural}" if plural else "a list"


def _object(schema: Mapping[str, Any], depth: int) -> str:
    names = list(schema.get("properties", {}))
    return "an object with " + ", ".join(names) if names and depth < 3 else "an object"


_WORDS = (
    ("minimum", "of at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "of at most {}"),
    ("exclusiveMaximum", "below {}"),
    ("multipleOf", "in steps of {}"),
    ("minLength", "of at least {} characters"),
    ("maxLength", "of at most {} characters"),
    ("pattern", "that matches {}"),
    ("minItems", "of at least {} items"),
    ("maxItems", "of at most {} items"),
    ("minProperties", "with at least {} names"),
    ("maxProperties", "with at most {} names"),
)


def _bounds(schema: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        return ""
    said = [text.format(schema[word]) for word, text in _WORDS if word in schema]
    if schema.get("uniqueItems"):
        said.append("without repeats")
    return (" " + " and ".join(said)) if said else ""
