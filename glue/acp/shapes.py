"""Prompts and texts in the protocol's shapes. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from glue.acp.rpc import INVALID_PARAMS, RpcError
from glue.types import Image, Part, Text


def prompt_parts(blocks: Any) -> tuple[str | Part, ...]:
    """Take the blocks of a prompt; a link is named, an embedded text is quoted with its address."""
    if not isinstance(blocks, list) or not blocks:
        raise RpcError(INVALID_PARAMS, "prompt must be a list of at least one content block")
    return tuple(_part(block) for block in blocks)


def _part(block: Any) -> Part:
    kind = block.get("type") if isinstance(block, dict) else None
    try:
        if kind == "text":
            return Text(text=_text(block["text"]))
        if kind == "image":
            return Image(media_type=_text(block["mimeType"]), data=base64.b64decode(block["data"], validate=True))
        if kind == "resource_link":
            return Text(text=f"[{_text(block['name'])}]({_text(block['uri'])})")
        if kind == "resource" and "text" in block["resource"]:
            resource = block["resource"]
            where = json.dumps(_text(resource["uri"]))
            return Text(text=f"<resource uri={where}>\n{_text(resource['text'])}\n</resource>")
    except KeyError as error:
        raise RpcError(INVALID_PARAMS, f"a {kind} block needs {error}") from error
    except (TypeError, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"not a {kind} block: {error}") from error
    raise RpcError(INVALID_PARAMS, f"a prompt may hold text, image, resource_link and embedded text, not {kind!r}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {value!r}")
    value.encode()  # half a surrogate pair could not be stored
    return value


def chunk(update: str, text: str, message_id: str) -> dict[str, Any]:
    """Make an update of a piece of a message."""
    return {"sessionUpdate": update, "content": text_block(text), "messageId": message_id}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def content_blocks(content: Iterable[Part]) -> list[dict[str, Any]]:
    """Show parts as content blocks."""
    blocks: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Text) and part.text:
            blocks.append(text_block(part.text))
        elif isinstance(part, Image) and part.data is not None:
            data = base64.b64encode(part.data).decode()
            blocks.append({"type": "image", "mimeType": part.media_type, "data": data})
    return blocks


def plan_update(entries: Sequence[Any]) -> dict[str, Any]:
    """Show a plan; what is no entry is left out."""
    shown = [
        {
            "content": str(entry["content"]),
            "priority": _one_of(entry.get("priority"), ("high", "medium", "low"), "medium"),
            "status": _one_of(entry.get("status"), ("pending", "in_progress", "completed"), "pending"),
        }
        for entry in entries
        if isinstance(entry, dict) and entry.get("content")
    ]
    return {"sessionUpdate": "plan", "entries": shown}


def _one_of(value: Any, allowed: tuple[str, ...], otherwise: str) -> str:
    return value if isinstance(value, str) and value in allowed else otherwise
