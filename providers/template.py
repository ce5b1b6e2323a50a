"""Check whether the chat template of a local model supports tools.

A template without this support ignores the tools of a request, so the model never reads them.
"""

from __future__ import annotations

import json
import mmap
import struct
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

from glue.errors import GlueError
from glue.provider import capabilities
from glue.providers.http import HTTP, HTTPResponse
from glue.tasks import in_thread

_SECONDS = 3.0
_KEY = b"tokenizer.chat_template"  # in the metadata of a GGUF file
_STRING = 8  # the type of the value of _KEY


async def knows_tools(provider: Any) -> bool | None:
    """Return whether a local model's chat template supports tools, or None if this is unknown.

    For a model on a local server, send requests to the server: Ollama lists the abilities of a
    model, and llama.cpp returns the chat template. A GGUF file contains the template. The result
    for any other provider is None, without a request.
    """
    entry, http = getattr(provider, "entry", None), getattr(provider, "http", None)
    if not capabilities(provider).local or entry is None or http is None:
        return None
    try:
        if entry.wire == "local":
            template = await in_thread(_template_of_file, Path(provider.model).expanduser())
            return "tools" in template
        with anyio.move_on_after(_SECONDS):
            address = urlsplit(http.base_url)
            server = HTTP(f"{address.scheme}://{address.netloc}", provider=provider.name)
            body = json.dumps({"model": provider.model}).encode()
            headers = {"content-type": "application/json"}
            shown = await server.request("POST", "/api/show", body=body, headers=headers)
            if shown.status == 200:
                return "tools" in shown.json()["capabilities"]
            return _of_llamacpp(await server.request("GET", "/props"))
    except (GlueError, OSError, ValueError, LookupError, TypeError, struct.error):
        return None  # the first prompt reports a server that does not answer
    return None


def _of_llamacpp(props: HTTPResponse) -> bool | None:
    """Return whether the chat template in llama.cpp's `/props` supports tools; None if unknown.

    `props` is the response of the server. The answer is unknown if its status is not 200.
    """
    if props.status != 200:
        return None
    found = props.json()
    known = (found.get("chat_template_caps") or {}).get("supports_tools")
    return bool("tools" in found["chat_template"] if known is None else known)


def _template_of_file(path: Path) -> str:
    """Return the chat template in the metadata of a GGUF file; raise ValueError if it has none."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(_KEY) + len(_KEY)
        kind, size = struct.unpack_from("<IQ", content, at)
        if at < len(_KEY) or kind != _STRING:
            raise ValueError(f"{path} has no chat template")
        start = at + struct.calcsize("<IQ")
        return content[start : start + size].decode("utf-8", "replace")
