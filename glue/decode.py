"""From the text that a model sent as arguments to one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn

from glue.faults import Faults, clean
from glue.types import Json


def decode(text: str) -> dict[str, Json]:
    """Read one object; nothing at all means `{}`. Raises Faults."""
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
        raise Faults([((), _bad_json(text, error))]) from None


def _bad_json(text: str, error: Exception) -> str:
    expected = "expected one JSON object with the arguments"
    if isinstance(error, RecursionError):
        return f"the arguments are nested too deeply; {expected}"
    near = ""
    if isinstance(error, json.JSONDecodeError):
        near = f" near {clean(text[max(0, error.pos - 20) : error.pos + 20])!r}"
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
    raise Faults([((), f"the arguments must be one JSON object, got {given}")])
