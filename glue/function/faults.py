"""Descriptions of invalid values: the path of the value, the value, and the expected value.

>>> schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1}}}
>>> Validator(schema).errors({"days": 0}).lines
['days: got 0, expected an integer of at least 1']
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from glue.text import clean_text, one_line

Path: TypeAlias = tuple[str | int, ...]
Resolve: TypeAlias = Callable[[Any], Any]  # follows the `$ref` of a schema

# Names of JSON types in the singular and in the plural.
_NOUNS = {
    "string": ("a string", "strings"),
    "integer": ("an integer", "integers"),
    "number": ("a number", "numbers"),
    "boolean": ("true or false", "true or false"),
    "null": ("null", ""),
    "array": ("a list", "lists"),
    "object": ("an object", "objects"),
}
_VALUE = ("a value", "")
FORMATS = {
    "date-time": "a date and time such as 2026-01-31T09:30:00Z",
    "date": "a date such as 2026-01-31",
    "time": "a time such as 09:30:00",
    "uuid": "a UUID",
    "base64": "base64 text",
}
_BOUNDS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "in steps of {}",
    "minLength": "of at least {} characters",
    "maxLength": "of at most {} characters",
    "pattern": "that matches {}",
    "minItems": "of at least {} items",
    "maxItems": "of at most {} items",
    "minProperties": "with at least {} names",
    "maxProperties": "with at most {} names",
}
_WIDTH = 80  # characters of a value in a fault
_MAX_DEPTH = 3  # of nested objects and lists in a description


def format_path(path: Path) -> str:
    """Return a path in the form of Python code, such as `orders[2].price`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{one_line(step, 80)}" for step in path)
    return "".join(steps).removeprefix(".")


def show_json(value: Any) -> str:
    """Return a value as JSON on one line, cut after 80 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    text = clean_text(text)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(text)} characters)"


def find_faults(error: Any, resolve: Resolve) -> Iterator[tuple[Path, str]]:
    """Yield the path and the description of each invalid value in an error of jsonschema."""
    path: Path = tuple(error.absolute_path)
    keyword, schema, value = error.validator, error.schema, error.instance
    if keyword == "required":
        properties = schema.get("properties", {})
        for name in error.validator_value:
            if name not in value:
                expected = describe(properties.get(name, {}), resolve)
                yield (*path, name), f"missing, expected {expected}"
    elif keyword == "additionalProperties" and error.validator_value is False:
        names = list(schema.get("properties", {}))
        known = "there are: " + ", ".join(names) if names else "there are none"
        for name in value:
            if name not in names:
                yield (*path, name), f"unknown name; {known}"
    elif keyword in ("anyOf", "oneOf") and (tags := _tags(error, resolve)):
        name, options = tags
        if name not in value:
            yield (*path, name), f"missing, expected {_one_of(options)}"
        elif (tag := show_json(value[name])) not in options:
            yield (*path, name), f"got {tag}, expected {_one_of(options)}"
        else:
            for inner in _errors_by_option(error).get(options[tag], ()):
                yield from find_faults(inner, resolve)
    elif keyword in ("anyOf", "oneOf") and (errors := _errors_of_intended_option(error)):
        for inner in errors:
            yield from find_faults(inner, resolve)
    elif isinstance(schema, Mapping) and keyword not in ("oneOf", "not", "if", "dependentRequired"):
        yield path, f"got {show_json(value)}, expected {describe(schema, resolve)}"
    else:
        yield path, one_line(error.message, 300)


def _tags(error: Any, resolve: Resolve) -> tuple[str, dict[str, int]] | None:
    """Return the name of a union's tag property and the option for each of its values, or None.

    A tag is a property that every object of the union has and whose values differ between all
    options, such as `kind` in `{"kind": "circle", ...}` and `{"kind": "square", ...}`. An option is
    given by its index. Return None if the union has no tag, or if the value is not an object.
    """
    if not isinstance(error.instance, Mapping):
        return None
    objects: dict[int, Mapping[str, Any]] = {}
    for index, option in enumerate(error.validator_value):
        schema = resolve(option)
        if isinstance(schema, Mapping) and isinstance(schema.get("properties"), Mapping):
            objects[index] = schema["properties"]
    first = next(iter(objects.values()), {})
    for name in first if len(objects) > 1 else ():
        pairs = [
            (show_json(value), index)
            for index, properties in objects.items()
            for value in _fixed_values(resolve(properties.get(name)))
        ]
        found = dict(pairs)
        if len(found) == len(pairs) and len(set(found.values())) == len(objects):
            return name, found
    return None


def _fixed_values(schema: Any) -> list[Any]:
    if not isinstance(schema, Mapping):
        return []
    return [schema["const"]] if "const" in schema else list(schema.get("enum") or ())


def _one_of(values: Iterable[str]) -> str:
    return "one of " + ", ".join(values)


def _errors_by_option(error: Any) -> dict[int, list[Any]]:
    options: dict[int, list[Any]] = {}
    for inner in error.context or ():
        options.setdefault(next(iter(inner.schema_path), -1), []).append(inner)
    return options


def _errors_of_intended_option(error: Any) -> list[Any]:
    """Return the errors of the union option that the model probably meant, or [] if unclear.

    `error` is the error of a union. The model probably meant the option whose type fits the value.
    If the types of several options or of none fit, return [].
    """
    options = _errors_by_option(error)
    fitting = [errors for errors in options.values() if not any(map(_is_wrong_type, errors))]
    return fitting[0] if len(fitting) == 1 else []


def _is_wrong_type(error: Any) -> bool:
    return error.validator == "type" and not error.relative_path


def describe(schema: Any, resolve: Resolve, depth: int = 0) -> str:
    """Return a noun phrase for the values that a schema accepts, such as "a list of integers"."""
    schema = resolve(schema)
    if not isinstance(schema, Mapping):
        return "a value"
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            options = [describe(option, resolve, depth + 1) for option in schema[keyword]]
            return " or ".join(dict.fromkeys(options))
    if "const" in schema:
        return show_json(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(show_json(value) for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_NOUNS.get(str(name), _VALUE)[0] for name in kind)
    if kind == "array" and "prefixItems" in schema:
        return _describe_tuple(schema["prefixItems"], resolve, depth)
    noun = _describe_type(kind, schema, resolve, depth)
    bounds = [
        text.format(schema[keyword]) for keyword, text in _BOUNDS.items() if keyword in schema
    ]
    if schema.get("uniqueItems"):
        bounds.append("without repeats")
    return f"{noun} {' and '.join(bounds)}" if bounds else noun


def _describe_tuple(items: Any, resolve: Resolve, depth: int) -> str:
    if depth >= _MAX_DEPTH:
        return "a list"
    parts = ", ".join(describe(item, resolve, depth + 1) for item in items)
    return f"a list of [{parts}]" if parts else "a list"


def _describe_type(kind: Any, schema: Mapping[str, Any], resolve: Resolve, depth: int) -> str:
    noun = _NOUNS.get(str(kind), _VALUE)[0]
    if kind == "string":
        if schema.get("contentEncoding") == "base64":
            return FORMATS["base64"]
        return FORMATS.get(schema.get("format", ""), noun)
    if kind == "array":
        items = resolve(schema.get("items"))
        plural = _NOUNS.get(str(items.get("type")), _VALUE)[1] if isinstance(items, Mapping) else ""
        return f"{noun} of {plural}" if plural else noun
    if kind == "object" and schema.get("properties") and depth < _MAX_DEPTH:
        return f"{noun} with " + ", ".join(schema["properties"])
    return noun
