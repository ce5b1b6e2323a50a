"""Tool names and tool results, made from the JSON that an MCP server sends."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from glue.context import ToolResult
from glue.messages import File, Image, Part, Text

MAX_NAME = 64  # characters of a tool's name, which is all that some providers take


def prefixed(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Give each tool a name that every provider takes, with its server's in front."""
    made: dict[str, str] = {}
    for tool in tools:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool}")
        if not re.match(r"[A-Za-z_]", name):
            name = f"_{name}"
        if len(name) > MAX_NAME or name in made:
            mark = hashlib.sha256(tool.encode()).hexdigest()[:8]
            name = f"{name[: MAX_NAME - 9]}_{mark}"
        made[name] = tool
    return made


def tool_result(result: Mapping[str, Any]) -> ToolResult:
    """Map text, images, embedded files and structured content; what no model reads is named in a line."""
    parts = [content_part(block) for block in result.get("content") or () if isinstance(block, Mapping)]
    binary = {str(block.get("data")) for block in result.get("content") or () if isinstance(block, Mapping)}
    structured = _without(result.get("structuredContent"), binary)
    meta = None
    if structured is not None:
        meta = {"structured": structured}
        if not any(isinstance(part, Text) and _same(part.text, structured) for part in parts):
            parts.append(Text(text=json.dumps(structured, ensure_ascii=False)))
    if not parts:
        parts.append(Text(text="(nothing)"))
    return ToolResult(content=tuple(parts), is_error=bool(result.get("isError")), meta=meta)


def content_part(block: Mapping[str, Any]) -> Part:
    """Map one content block."""
    kind = block.get("type")
    if kind == "text":
        return Text(text=str(block.get("text", "")))
    if kind == "image":
        return _binary(str(block.get("mimeType", "image/png")), str(block.get("data", "")), "an image")
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        resource = block["resource"]
        if "text" in resource:
            return Text(text=f"<resource uri={json.dumps(resource.get('uri', ''))}>\n{resource['text']}\n</resource>")
        return _binary(
            str(resource.get("mimeType", "")), str(resource.get("blob", "")), str(resource.get("uri", "a resource"))
        )
    if kind == "resource_link":
        return Text(text=f"[{block.get('title') or block.get('name', '')}]({block.get('uri', '')})")
    return Text(text=f"[{kind} {block.get('mimeType', '')} that cannot be shown]")


def _binary(media_type: str, data: str, name: str) -> Part:
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return Text(text=f"[{name} that is no base64]")
    if media_type.startswith("image/"):
        return Image(media_type=media_type, data=content)
    if media_type == "application/pdf":
        return File(media_type=media_type, data=content, name=name)
    return Text(text=f"[{name}: {len(content)} bytes of {media_type or 'an unknown type'}]")


def _without(value: Any, binary: set[str]) -> Any:
    """Leave out of structured content what stands beside it as an image."""
    if isinstance(value, str):
        return "[shown beside this]" if len(value) > 40 and value in binary else value
    if isinstance(value, dict):
        return {key: _without(item, binary) for key, item in value.items()}
    return [_without(item, binary) for item in value] if isinstance(value, list) else value


def _same(text: str, structured: Any) -> bool:
    """Say whether a text says all that the structured content says; a plain value is often wrapped under one key."""
    wrapped = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    try:
        return text == wrapped or json.loads(text) in (structured, wrapped)
    except ValueError:
        return False
