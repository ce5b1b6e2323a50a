"""Messages to JSON and back without loss; what a newer version wrote survives."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from glue.errors import StoreError
from glue.limits import StopReason
from glue.types import (
    SCHEMA_VERSION,
    AssistantMessage,
    File,
    Image,
    Json,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Unknown,
    Usage,
    UserMessage,
)

_PARTS: dict[str, type] = {
    "text": Text,
    "thinking": Thinking,
    "image": Image,
    "file": File,
    "tool_call": ToolCall,
    "opaque": Opaque,
}
_ROLES: dict[str, type] = {"user": UserMessage, "assistant": AssistantMessage, "tool": ToolMessage}
_PART_NAMES = {cls: name for name, cls in _PARTS.items()}
_ROLE_NAMES = {cls: name for name, cls in _ROLES.items()}
_STOP_REASONS = frozenset(StopReason)
_NESTED = {"opaque": Opaque, "usage": Usage}


def message_to_json(message: Message) -> dict[str, Json]:
    """Encode a message; fields that hold their default are left out."""
    return {"v": SCHEMA_VERSION, "role": _ROLE_NAMES[type(message)], **_fields_to_json(message)}


def message_from_json(data: Mapping[str, Json]) -> Message:
    """Decode a message; fields of a newer version are kept in `extra`, unknown parts as `Unknown`."""
    if not isinstance(data, Mapping):
        raise StoreError(f"a message must be a JSON object, not {type(data).__name__}")
    cls = _ROLES.get(data.get("role", ""))
    if cls is None:
        raise StoreError(f"unknown message role {data.get('role')!r}; there are: assistant, tool, user")
    try:
        message: Message = _fields_from_json(cls, data, skip=("v", "role"))
    except (TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise StoreError(f"not a {data['role']} message: {error}") from error
    return message


def messages_to_json(messages: Iterable[Message]) -> list[dict[str, Json]]:
    return [message_to_json(message) for message in messages]


def messages_from_json(data: Iterable[Mapping[str, Json]]) -> tuple[Message, ...]:
    return tuple(message_from_json(item) for item in data)


def part_to_json(part: Part) -> dict[str, Json]:
    if isinstance(part, Unknown):
        return dict(part.data)
    return {"type": _PART_NAMES[type(part)], **_fields_to_json(part)}


def part_from_json(data: Mapping[str, Json]) -> Part:
    cls = _PARTS.get(data.get("type", ""))
    if cls is None:
        return Unknown(data=dict(data))
    part: Part = _fields_from_json(cls, data, skip=("type",))
    return part


def _fields_to_json(record: Any) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if not field.init or field.name == "extra" or (value == field.default and type(value) is type(field.default)):
            continue
        if field.name == "content":
            value = [part_to_json(part) for part in value]
        elif isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        elif field.name in _NESTED:
            value = _fields_to_json(value)
        out[field.name] = str(value) if isinstance(value, StopReason) else value
    return {**(record.extra or {}), **out}


def _fields_from_json(cls: type, data: Mapping[str, Json], skip: tuple[str, ...] = ()) -> Any:
    known = {field.name for field in dataclasses.fields(cls) if field.init} - {"extra"}
    values: dict[str, Any] = {}
    extra: dict[str, Json] = {}
    for name, value in data.items():
        if name in skip:
            continue
        if name not in known:
            extra[name] = value
        elif name == "content":
            values[name] = tuple(part_from_json(part) for part in value)
        elif name == "data" and cls in (Image, File) and value is not None:
            values[name] = base64.b64decode(value, validate=True)
        elif name in _NESTED and value is not None:
            values[name] = _fields_from_json(_NESTED[name], value)
        elif name == "stop_reason" and value not in _STOP_REASONS:
            values[name] = StopReason.UNKNOWN
            values.setdefault("raw_stop_reason", value)
        elif name == "stop_reason":
            values[name] = StopReason(value)
        else:
            values[name] = value
    return cls(**values, extra=extra or None)
