"""The prompt of a command line: words, files and stdin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

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


def read_part(name: str) -> Part:
    """Read a file: a text, a picture or a PDF."""
    path = Path(name)
    try:
        if path.is_file() and path.stat().st_size > MOST:
            raise ConfigError(f"@{name}: larger than {MOST // 1024 // 1024} MB")
        data = path.read_bytes()
    except OSError as error:
        hint = "" if path.exists() else f"; write @@{name} for a word that begins with @"
        raise ConfigError(f"@{name} cannot be read: {error.strerror}{hint}") from None
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        return Image(media_type=_IMAGES[suffix], data=data)
    if suffix == ".pdf":
        return File(media_type="application/pdf", data=data, name=path.name)
    try:
        return Text(text=data.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"@{name} is neither text nor a picture nor a PDF") from None


def _stdin() -> str:
    data = sys.stdin.buffer.read(MOST + 1)
    if len(data) > MOST:
        raise ConfigError(f"stdin: more than {MOST // 1024 // 1024} MB")
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
