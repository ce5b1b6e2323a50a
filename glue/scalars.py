"""Types that JSON writes as one value: literals, enums, dates, paths, bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

from glue.faults import Faults, show
from glue.field import CannotDescribe
from glue.types import Json

Build: TypeAlias = Callable[[Any], Any]
Described: TypeAlias = tuple[dict[str, Json], Build | None]  # no build: the JSON value is the Python value

_ISO = {
    "datetime": ("date-time", "a date and time such as 2026-01-31T09:30:00Z"),
    "date": ("date", "a date such as 2026-01-31"),
    "time": ("time", "a time such as 09:30:00"),
}


def scalar(kind: type) -> Described | None:
    """Describe a class whose values JSON writes as text; None if it is none of these."""
    if issubclass(kind, Enum):
        return _enum(kind)
    if kind.__module__ == "datetime" and kind.__name__ in _ISO:
        word, expected = _ISO[kind.__name__]
        return {"type": "string", "format": word}, _parser(kind.fromisoformat, expected)  # type: ignore[attr-defined]
    if kind is bytes:
        return {"type": "string", "contentEncoding": "base64"}, _parser(_base64, "base64 text")
    if issubclass(kind, os.PathLike):
        return {"type": "string"}, _parser(kind, "a path")
    if kind.__module__ == "uuid" and kind.__name__ == "UUID":
        return {"type": "string", "format": "uuid"}, _parser(kind, "a UUID")
    return None


def literal(args: tuple[Any, ...]) -> Described:
    table = {(arg.value if isinstance(arg, Enum) else arg): arg for arg in args}
    if not all(value is None or isinstance(value, (str, int, bool)) for value in table):
        raise CannotDescribe(f"cannot describe Literal{list(args)} to a model")
    build = table.__getitem__ if any(isinstance(arg, Enum) for arg in args) else None
    return _values([arg.value if isinstance(arg, Enum) else arg for arg in args]), build


def _enum(kind: type[Enum]) -> Described:
    plain = all(type(member.value) in (str, int, float, bool) for member in kind)
    table = {(member.value if plain else member.name): member for member in kind}
    return _values(list(table)), table.__getitem__


def _values(values: list[Any]) -> dict[str, Json]:
    kinds = {type(value) for value in values}
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    schema: dict[str, Json] = {"type": names[kinds.pop()]} if len(kinds) == 1 and kinds <= names.keys() else {}
    return {**schema, "enum": values}


def _parser(make: Callable[[Any], Any], expected: str) -> Build:
    def build(value: Json) -> Any:
        try:
            return make(value)
        except (ValueError, TypeError, OverflowError):
            raise Faults([((), f"got {show(value)}, expected {expected}")]) from None

    return build


def _base64(text: str) -> bytes:
    import base64

    return base64.b64decode("".join(text.split()), altchars=b"-_" if {"-", "_"} & set(text) else None, validate=True)
