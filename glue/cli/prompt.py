"""What a command line gives a run: words, files, stdin and attachments as a prompt, a schema as a form of output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from glue.errors import ConfigError
from glue.messages import File, Image, Part, Text

MOST = 16 * 1024 * 1024
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


def read_prompt(words: Sequence[str]) -> tuple[Part, ...]:
    """Make the parts of a prompt: words are joined, `@FILE` is its content, `-` is stdin; nothing is stdin too."""
    if not words:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("no prompt; give it in words, as @FILE or on stdin")
        words = ("-",)
    parts: list[Part] = []
    spoken: list[str] = []

    def flush() -> None:
        if spoken:
            parts.append(Text(text=" ".join(spoken)))
            spoken.clear()

    for word in words:
        if word == "-":
            flush()
            parts.append(Text(text=_stdin()))
        elif word.startswith("@@"):
            spoken.append(word[1:])
        elif word.startswith("@") and len(word) > 1:
            flush()
            parts.append(read_part(word[1:]))
        else:
            spoken.append(word)
    flush()
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise click.UsageError("the prompt is empty")
    return _joined(parts)


def read_attachment(named: str) -> Part:
    """Read what --attach names: a file, or the address of a picture, which the provider fetches."""
    if not named.startswith(("https://", "http://")):
        return read_part(named, "--attach ")
    from urllib.parse import urlsplit

    suffix = Path(urlsplit(named).path).suffix.lower()
    if suffix not in _IMAGES:
        kinds = ", ".join(_IMAGES)
        raise ConfigError(f"--attach {named}: only the address of a picture ({kinds}) can be sent; download the file")
    return Image(media_type=_IMAGES[suffix], url=named)


def read_part(name: str, mark: str = "@") -> Part:
    """Read a file: a text, a picture or a PDF."""
    path = Path(name)
    try:
        with path.open("rb") as file:  # bounded: /dev/urandom has no end
            data = file.read(MOST + 1)
    except OSError as error:
        hint = f"; write @@{name} for a word that begins with @" if mark == "@" and not path.exists() else ""
        raise ConfigError(f"{mark}{name} cannot be read: {error.strerror}{hint}") from None
    if len(data) > MOST:
        raise ConfigError(f"{mark}{name}: larger than {MOST // 1024 // 1024} MB")
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        return Image(media_type=_IMAGES[suffix], data=data)
    if suffix == ".pdf":
        return File(media_type="application/pdf", data=data, name=path.name)
    try:
        return Text(text=data.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{mark}{name} is neither text nor a picture nor a PDF") from None


def read_text(given: str) -> str:
    """Give a text, or with `@FILE` that of a file."""
    if not given.startswith("@"):
        return given
    part = read_part(given[1:])
    if not isinstance(part, Text):
        raise ConfigError(f"{given} is no text")
    return part.text


_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_FIELD = re.compile(r"\s*(\w+)\s*(?:[:\s]\s*(list\[)?(str|int|float|bool)\]?)?\s*")


def read_schema(given: str) -> Mapping[str, Any]:
    """Make a JSON schema of a file, of JSON, or of "name: type, ..." (str, int, float, bool, list[...])."""
    if given.lstrip().startswith("{") or given.endswith(".json") or Path(given).is_file():
        text = given if given.lstrip().startswith("{") else read_text(f"@{given}")
        try:
            schema = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"--schema: not valid JSON: {error}") from None
        if not isinstance(schema, dict):
            raise ConfigError("--schema: a JSON schema is an object")
        return {"title": "Answer", **schema}
    fields: dict[str, Any] = {}
    for text in given.split(","):
        found = _FIELD.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"--schema: {text.strip()!r} is no 'name: type'; the types are: {', '.join(_TYPES)}, list[...]"
            )
        kind = {"type": _TYPES[found[3] or "str"]}
        fields[found[1]] = {"type": "array", "items": kind} if found[2] else kind
    return {
        "title": "Answer",
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _stdin() -> str:
    data = sys.stdin.buffer.read(MOST + 1)
    if len(data) > MOST:
        raise ConfigError(f"stdin: more than {MOST // 1024 // 1024} MB")
    if b"\0" in data[:4096]:
        raise ConfigError("stdin is no text; attach a picture or a PDF with -a FILE")
    return data.decode("utf-8", "replace")


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Join neighbouring texts by a blank line: some models read only the first."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(last, Text):
            joined[-1] = Text(text=f"{last.text.rstrip()}\n\n{part.text}")
        else:
            joined.append(part)
    return tuple(joined)


def unread_pipe() -> bool:
    """Say whether something waits on a piped stdin that nobody has asked for."""
    import os
    import select
    import stat

    try:
        fd = sys.stdin.fileno()
        return stat.S_ISFIFO(os.fstat(fd).st_mode) and bool(select.select([fd], [], [], 0)[0]) and _has_bytes(fd)
    except (OSError, ValueError, AttributeError):
        return False


def _has_bytes(fd: int) -> bool:
    import array
    import fcntl
    import termios

    size = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, size)
    return size[0] > 0
