"""Images and files as wires want them that take bytes apart from their type."""

from __future__ import annotations

from glue.providers.wire import base64_text
from glue.types import File, Image


def is_remote(part: Image | File) -> bool:
    """Say whether a part is an address that the server has to fetch."""
    return isinstance(part, Image) and part.url is not None and not part.url.startswith("data:")


def inline(part: Image | File) -> tuple[str, str]:
    """Return media type and base64 of a part that carries its bytes, be it in a data URL."""
    if isinstance(part, Image) and part.url is not None and part.url.startswith("data:"):
        head, _, data = part.url.partition(",")
        kind, _, encoding = head[5:].partition(";")
        if not encoding.endswith("base64"):
            from urllib.parse import unquote_to_bytes

            data = base64_text(unquote_to_bytes(data))
        return kind or part.media_type, data
    return part.media_type, base64_text(part.data or b"")
