"""Gentle coercion: what a model clearly meant, put into the form that the schema asks for.

Text becomes a number, true, false or null where one is due; JSON text becomes the list or object that
is due; a single value becomes a list; a null for an optional parameter counts as left out; repeats
in a set are dropped. A value that already fits is never changed, and nothing is guessed: what
cannot be converted stays as it was and is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from glue.function.validation import ValidationError, Validator
from glue.messages import Json

_INTEGER = re.compile(r"-?\d{1,400}(\.0+)?")
_NUMBER = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,3})?")
_WORDS = {"true": True, "false": False}


def coerce(validator: Validator, value: Json) -> Json:
    """Bring a value nearer to the schema; the result may still not fit."""
    return _coerce(validator, validator.schema, value)


def _coerce(validator: Validator, schema: Any, value: Json) -> Json:
    schema = validator.resolve(schema)
    if not isinstance(schema, Mapping):
        return value
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        return _option(validator, options, value)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return _option(validator, validator.alternatives(schema), value)
    if "enum" in schema:
        return _enum(schema["enum"], value)
    return _typed(validator, schema, kinds, value)


def _option(validator: Validator, options: list[Any], value: Json) -> Json:
    if any(validator.accepts(option, value) for option in options):
        return value
    for option in options:
        changed = _coerce(validator, option, value)
        if validator.accepts(option, changed):
            return changed
    return value


def _enum(allowed: Any, value: Json) -> Json:
    if isinstance(value, str) and value not in allowed:
        for item in allowed:
            if not isinstance(item, str) and _text_of(item) == value.strip():
                return item
    return value


def _text_of(value: Json) -> str | None:
    return json.dumps(value) if value is None or isinstance(value, (bool, int, float)) else None


def _typed(validator: Validator, schema: Mapping[str, Any], kind: Any, value: Json) -> Json:
    if isinstance(value, str) and kind != "string":
        value = _from_text(kind, value)
    if kind == "integer" and type(value) is float and value.is_integer():
        return int(value)
    if kind == "array":
        return _array(validator, schema, value)
    if kind == "object" and isinstance(value, dict):
        return _object(validator, schema, value)
    return value


def _from_text(kind: Any, text: str) -> Json:
    bare = text.strip()
    if kind == "integer" and _INTEGER.fullmatch(bare):
        return int(bare.partition(".")[0])
    if kind == "number" and _NUMBER.fullmatch(bare):
        return float(bare) if re.search(r"[.eE]|^-?0", bare) else int(bare)
    if kind == "boolean":
        return _WORDS.get(bare.lower(), text)
    if kind == "null" and bare in ("null", "None"):
        return None
    if (kind == "object" and bare[:1] == "{") or (kind == "array" and bare[:1] == "["):
        try:
            return json.loads(bare)
        except ValueError:
            return text
    return text


def _array(validator: Validator, schema: Mapping[str, Any], value: Json) -> Json:
    if value is None:
        return value
    if not isinstance(value, list):
        wrapped = _array(validator, schema, [value])
        return wrapped if validator.accepts(schema, wrapped) else value
    first, rest = schema.get("prefixItems", []), schema.get("items", True)
    if not isinstance(rest, (Mapping, bool)):
        return value
    items = [_coerce(validator, first[i] if i < len(first) else rest, item) for i, item in enumerate(value)]
    return _distinct(items) if schema.get("uniqueItems") is True else items


def _distinct(items: list[Json]) -> list[Json]:
    kept = {json.dumps(item, sort_keys=True): item for item in reversed(items)}
    return list(reversed(kept.values()))


def _object(validator: Validator, schema: Mapping[str, Any], value: dict[str, Json]) -> Json:
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    other = schema.get("additionalProperties", True)
    changed = {}
    for name, item in value.items():
        part = properties.get(name, other)
        if item is None and name in properties and name not in required and not validator.accepts(part, None):
            continue  # models write null for what they mean to leave out
        changed[name] = _coerce(validator, part, item)
    return changed


def decode(text: str) -> dict[str, Json]:
    """Read one object; nothing at all means `{}`. Raises ValidationError."""
    try:
        value, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError):
        end = -1
    if end != len(text):
        value = _decode_slowly(text)
    return value if isinstance(value, dict) else _unwrap(value)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)
_scan: Callable[[str, int], tuple[Json, int]] = _decoder.scan_once  # type: ignore[attr-defined]  # decode() looks for blanks around the value first, which takes twice as long


def _decode_slowly(text: str) -> Json:
    if not text or text.isspace():
        return {}
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError([((), _bad_json(text, error))]) from None


def _bad_json(text: str, error: Exception) -> str:
    expected = "expected one JSON object with the arguments"
    if isinstance(error, RecursionError):
        return f"the arguments are nested too deeply; {expected}"
    near = ""
    if isinstance(error, json.JSONDecodeError):
        near = f" near {text[max(0, error.pos - 20) : error.pos + 20]!r}"
        error = ValueError(f"{error.msg} at line {error.lineno} column {error.colno}")
    return f"the arguments are not valid JSON: {error}{near}; {expected}"


_NOUNS = {list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def _unwrap(value: Json) -> dict[str, Json]:
    """Take an object out of a string: some models encode their arguments twice."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            inner = _decoder.decode(value)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict):
            return inner
    given = _NOUNS.get(type(value), "null")
    raise ValidationError([((), f"the arguments must be one JSON object, got {given}")])
