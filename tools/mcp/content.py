"""Convert the content that MCP servers send into tool results and parts of messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from glue import File, Image, Part, Text, ToolResult
from glue.tools.mcp.gate import clean, clean_all


def tool_result(result: Mapping[str, Any]) -> ToolResult:
    """Convert the result of an MCP call to a ToolResult.

    Text, images, embedded files and structured content are converted. A text such as
    "[audio audio/wav cannot be shown]" replaces content that no model can read.
    """
    blocks = [block for block in result.get("content") or () if isinstance(block, Mapping)]
    parts = [content_part(block) for block in blocks]
    shown = {str(block.get("data")) for block in blocks}
    structured = clean_all(_without_binary(result.get("structuredContent"), shown))
    meta = None
    if structured is not None:
        meta = {"structured": structured}
        texts = [part.text for part in parts if isinstance(part, Text)]
        if not any(_is_same(text, structured) for text in texts):
            parts.append(Text(text=json.dumps(structured, ensure_ascii=False)))
    if not parts:
        parts.append(Text(text="(the result is empty)"))
    return ToolResult(content=tuple(parts), is_error=bool(result.get("isError")), meta=meta)


def content_part(block: Mapping[str, Any]) -> Part:
    """Convert a content block of an MCP server to a part of a message."""
    kind = block.get("type")
    if kind == "text":
        return Text(text=clean(str(block.get("text", ""))))
    if kind == "image":
        media_type = str(block.get("mimeType", "image/png"))
        return _binary(media_type, str(block.get("data", "")), "an image")
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        resource = block["resource"]
        if "text" in resource:
            uri = json.dumps(clean(str(resource.get("uri", ""))))
            return Text(text=f"<resource uri={uri}>\n{clean(str(resource['text']))}\n</resource>")
        return _binary(
            str(resource.get("mimeType", "")),
            str(resource.get("blob", "")),
            clean(str(resource.get("uri", "a resource"))),
        )
    if kind == "resource_link":
        title, uri = block.get("title") or block.get("name", ""), block.get("uri", "")
        return Text(text=clean(f"[{title}]({uri})"))
    return Text(text=clean(f"[{kind} {block.get('mimeType', '')} cannot be shown]"))


def _binary(media_type: str, data: str, name: str) -> Part:
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return Text(text=f"[{name} is not valid base64]")
    if media_type.startswith("image/"):
        return Image(media_type=media_type, data=content)
    if media_type == "application/pdf":
        return File(media_type=media_type, data=content, name=name)
    kind = media_type or "binary data without a MIME type"
    return Text(text=f"[{name}: {len(content)} bytes of {kind}]")


def _without_binary(value: Any, shown: set[str]) -> Any:
    """Return structured content with a note in place of each long text that is in `shown`.

    `shown` has the base64 data of the other parts. A text of more than 40 characters is long.
    """
    if isinstance(value, str):
        return (
            "[the same data is in another part of the result]"
            if len(value) > 40 and value in shown
            else value
        )
    if isinstance(value, dict):
        return {key: _without_binary(item, shown) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_binary(item, shown) for item in value]
    return value


def _is_same(text: str, structured: Any) -> bool:
    """Return whether a text part of a result is the same as its structured content.

    Servers often wrap a plain value: the text is "3", the structured content {"result": 3}.
    """
    wrapped = structured
    if isinstance(structured, dict) and len(structured) == 1:
        (wrapped,) = structured.values()
    try:
        return text == wrapped or json.loads(text) in (structured, wrapped)
    except (ValueError, RecursionError):
        return False
