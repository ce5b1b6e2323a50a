"""What a tool returned, made into a result: text, JSON, parts, a ToolResult or nothing."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any

from glue.context import ToolResult, error_result
from glue.types import File, Image, Opaque, Part, Text

_PARTS = (Text, Image, File, Opaque)


def as_result(name: str, value: Any) -> ToolResult:
    """Make a result of whatever a tool returned."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(content=(Text(text=value),))
    if value is None:
        return ToolResult(content=(Text(text="(no output)"),))
    if isinstance(value, _PARTS):
        return ToolResult(content=(value,))
    if isinstance(value, (list, tuple)) and any(isinstance(item, _PARTS) for item in value):
        parts = tuple(Text(text=item) if isinstance(item, str) else item for item in value)
        if all(isinstance(part, _PARTS) for part in parts):
            return ToolResult(content=parts)
    try:
        return ToolResult(content=(Text(text=json.dumps(value, ensure_ascii=False, default=_plain)),))
    except (TypeError, ValueError, RecursionError) as error:
        return error_result(f"the tool {name} returned {type(value).__name__}, which is no text, JSON or part: {error}")


def capped(result: ToolResult, limit: int | None) -> ToolResult:
    """Make each text encodable and cut it at the cap; results that need neither are passed on as they are."""
    content = tuple(_fit(part, limit) if isinstance(part, Text) else part for part in result.content)
    if all(new is old for new, old in zip(content, result.content, strict=True)):
        return result
    return dataclasses.replace(result, content=content)


def needs_cap(result: ToolResult, limit: int | None) -> bool:
    return limit is not None and any(isinstance(part, Text) and len(part.text) > limit for part in result.content)


def _fit(part: Text, limit: int | None) -> Part:
    text = part.text
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # lone surrogates would break every wire
    if limit is not None:
        from glue.spool import cap

        text = cap(text, limit)
    return part if text == part.text else dataclasses.replace(part, text=text)


def _plain(value: Any) -> Any:
    """What json asks about values it does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, (bytes, bytearray)):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    raise TypeError(f"{type(value).__name__} has no JSON form")
