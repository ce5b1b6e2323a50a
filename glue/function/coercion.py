"""Coercion: converting arguments of a model that are almost right, such as "3" for an integer.

Models often send a number as text, a list as JSON text, or null for an argument that they mean to
leave out. Only such cases are converted:

    schema                                   value            result
    {"type": "integer"}                      "3"              3
    {"type": "integer"}                      "3.5"            "3.5", which then is an error
    {"type": "array", "items": ...}          "[1, 2]"         [1, 2]
    {"type": "array", "items": ...}          "one"            ["one"]
    {"anyOf": [integer, string]}             "3"              "3", because it fits as it is
    an optional property                     null             left out
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from glue.function.validation import Schema, Validator
from glue.messages import Json

# The patterns are compiled at their first use, because most arguments are right.
_INTEGER = r"-?\d{1,400}(\.0+)?"
_NUMBER = r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,3})?"


def coerce(validator: Validator, schema: Any, value: Json) -> Json:
    """Return a value converted to fit a schema, or unchanged if its meaning is not clear.

    A value that fits the schema is returned unchanged, too.
    """
    schema = validator.resolve(schema)
    if not isinstance(schema, Mapping):
        return value
    options, kinds = schema.get("anyOf") or schema.get("oneOf"), schema.get("type")
    if isinstance(options, list):
        return _coerce_union(validator, options, value)
    if "enum" in schema:
        return _coerce_enum(schema["enum"], value)
    if isinstance(kinds, list):
        candidates = (value, *(_coerce_type(validator, schema, kind, value) for kind in kinds))
        return next((each for each in candidates if validator.accepts(schema, each)), value)
    return _coerce_type(validator, schema, kinds, value)


def _coerce_union(validator: Validator, options: list[Any], value: Json) -> Json:
    if any(validator.accepts(option, value) for option in options):
        return value
    for option in options:
        changed = coerce(validator, option, value)
        if validator.accepts(option, changed):
            return changed
    return value


def _coerce_enum(allowed: Any, value: Json) -> Json:
    """Return the item of `allowed` whose JSON is the text `value`; return `value` if there is none.

    For example, return 2 for "2".
    """
    if not isinstance(value, str) or value in allowed:
        return value
    for member in allowed:
        is_scalar = member is None or isinstance(member, (bool, int, float))
        if is_scalar and json.dumps(member) == value.strip():
            return member
    return value


def _coerce_type(validator: Validator, schema: Schema, kind: Any, value: Json) -> Json:
    if isinstance(value, str) and kind != "string":
        value = _from_text(kind, value)
    if kind == "string" and type(value) in (int, float):
        return _to_text(validator, schema, value)
    if kind == "integer" and type(value) is float and value.is_integer():
        return int(value)
    if kind == "array" and value is not None:
        return _coerce_items(validator, schema, value)
    if kind == "object" and isinstance(value, dict):
        return _coerce_properties(validator, schema, value)
    return value


def _from_text(kind: Any, text: str) -> Json:
    """Convert a text to a JSON value of the type `kind`, or return the text if it does not fit."""
    bare = text.strip()
    if kind == "integer" and re.fullmatch(_INTEGER, bare):
        return int(bare.partition(".")[0])
    if kind == "number" and re.fullmatch(_NUMBER, bare):
        return float(bare) if re.search(r"[.eE]|^-?0", bare) else int(bare)
    if kind == "boolean":
        return {"true": True, "false": False}.get(bare.lower(), text)
    if kind == "null" and bare in ("null", "None"):
        return None
    if (kind == "object" and bare[:1] == "{") or (kind == "array" and bare[:1] == "["):
        try:
            return json.loads(bare)
        except ValueError:
            return text
    return text


def _to_text(validator: Validator, schema: Schema, number: float) -> Json:
    """Convert a number to text for a duration or a `pattern` that fits, or return it unchanged.

    A duration is in seconds. The schema of a decimal has such a pattern.
    """
    text = json.dumps(number)
    if schema.get("format") == "duration":
        return f"{'-' * (number < 0)}PT{text.removeprefix('-')}S"
    return text if "pattern" in schema and validator.accepts(schema, text) else number


def _coerce_items(validator: Validator, schema: Schema, value: Json) -> Json:
    """Convert the items of a list to fit a schema, or make a list of one item from a single value.

    If the list of one item does not fit the schema, return the value unchanged. If the schema
    demands unique items, only the first of several equal items is kept.
    """
    if not isinstance(value, list):
        wrapped = _coerce_items(validator, schema, [value])
        return wrapped if validator.accepts(schema, wrapped) else value
    first, rest = schema.get("prefixItems", []), schema.get("items", True)
    if not isinstance(rest, (Mapping, bool)):
        return value
    items = [
        coerce(validator, first[index] if index < len(first) else rest, item)
        for index, item in enumerate(value)
    ]
    if schema.get("uniqueItems") is True:
        kept: dict[str, Json] = {}
        for item in items:
            kept.setdefault(json.dumps(item, sort_keys=True), item)
        return list(kept.values())
    return items


def _coerce_properties(validator: Validator, schema: Schema, value: dict[str, Json]) -> Json:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    changed = {}
    for name, item in value.items():
        part = properties.get(name, schema.get("additionalProperties", True))
        is_optional = name in properties and name not in required
        if item is None and is_optional and not validator.accepts(part, None):
            continue  # models write null for an argument that they mean to leave out
        changed[name] = coerce(validator, part, item)
    return changed
