"""The records of a review as JSON. Reading is strict: publish trusts no file that another job wrote."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from glue.agents.review import model
from glue.errors import ConfigError
from glue.types import Json

RecordT = TypeVar("RecordT")
_hints: dict[type, dict[str, Any]] = {}


def to_json(record: Any) -> dict[str, Json]:
    """Encode a record; fields that hold their default, and derived ones, are left out."""
    out: dict[str, Json] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.metadata.get("derived") or (value == field.default and field.name != "version"):
            continue
        out[field.name] = _encode(value)
    return out


def from_json(cls: type[RecordT], data: Json, where: str = "") -> RecordT:
    """Decode a record; an unknown, missing or ill-typed field is a ConfigError that names it."""
    where = where or cls.__name__
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} must be an object, not {_kind(data)}")
    version = data.get("version", model.VERSION)
    if "version" in _types(cls) and version != model.VERSION:
        raise ConfigError(f"{where} has version {version!r}; this program reads version {model.VERSION}")
    fields = {field.name: field for field in dataclasses.fields(cls) if not field.metadata.get("derived")}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - set(fields)):
        raise ConfigError(f"{where} has an unknown field {unknown[0]!r}; there are: {', '.join(sorted(fields))}")
    values = {name: _decode(_types(cls)[name], value, f"{where}.{name}") for name, value in data.items()}
    try:
        record = cls(**values)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error
    return _whole(record)


def dumps(record: Any) -> str:
    return json.dumps(to_json(record), indent=1) + "\n"


def loads(cls: type[RecordT], text: str | bytes, where: str = "") -> RecordT:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where or cls.__name__} is not JSON: {error}") from error
    return from_json(cls, data, where)


def save(record: Any, path: str | Path) -> None:
    Path(path).write_text(dumps(record), encoding="ascii")


def load(cls: type[RecordT], path: str | Path) -> RecordT:
    """Read a record from a file that `save` wrote."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    return loads(cls, text, str(path))


def _encode(value: Any) -> Json:
    if dataclasses.is_dataclass(value):
        return to_json(value)
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _types(cls: type) -> dict[str, Any]:
    if cls not in _hints:
        _hints[cls] = typing.get_type_hints(cls)
    return _hints[cls]


def _decode(hint: Any, value: Json, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        return None if value is None else _decode(options[0], value, where)
    if origin is Literal:
        if value not in (allowed := typing.get_args(hint)) or isinstance(value, bool):
            raise ConfigError(f"{where} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where} must be a list, not {_kind(value)}")
        item = typing.get_args(hint)[0]
        return tuple(_decode(item, one, f"{where}[{index}]") for index, one in enumerate(value))
    if origin is not None:  # Mapping[str, X]
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be an object, not {_kind(value)}")
        item = typing.get_args(hint)[1]
        return {key: _decode(item, one, f"{where}[{key!r}]") for key, one in value.items()}
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type, hint), value, where)
    return _scalar(hint, value, where)


def _scalar(hint: Any, value: Json, where: str) -> Any:
    if hint is object:
        return value
    if hint is float and type(value) is int and abs(value) < 1e15:
        return float(value)
    if hint is float and value != value:  # json.loads takes NaN
        raise ConfigError(f"{where} must be a number, not NaN")
    if type(value) is not hint:
        raise ConfigError(f"{where} must be {_NAMES.get(hint, str(hint))}, not {_kind(value)}")
    return value


_NAMES: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    return _NAMES.get(type(value)) or ("a list" if isinstance(value, list) else "an object")


def _whole(record: RecordT) -> RecordT:
    if not isinstance(record, model.Bundle):
        return record
    from glue.agents.review.diff import parse

    return dataclasses.replace(record, files=parse(record.diff))
