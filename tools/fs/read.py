"""Read a page of a file of any size without ever holding the file, and decode text in the encoding that it has."""

from __future__ import annotations

import codecs
import io
import json
import re
import time
from collections.abc import Callable
from functools import partial

from glue.errors import ToolError

LINES = 2000
BYTES = 80 * 1024
BLOCK = 1024 * 1024
SECONDS = 4.0
SNIFF = 8192
MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
CONTROLS = re.compile(rb"[\x80-\x9f]")


def page(file: io.BufferedReader, offset: int = 1, limit: int = LINES, start: int = 0, numbers: bool = False) -> str:
    """Give the lines from `offset` on, as many as fit, and say how to go on.

    `start` leaves out that many bytes of the first line, for a line that is longer than a page.
    """
    if offset < 1 or limit < 1 or start < 0:
        raise ToolError(f"offset and limit count from 1, start from 0; got {offset}, {limit} and {start}")
    if (note := _binary(file)) is not None:
        return note
    _skip(file, offset, start)
    taken, number, hint = _take(file, offset, min(limit, LINES), start)
    if not taken:
        return "[the file is empty]" if offset == 1 and start == 0 else f"[no more text: line {offset} ends here]"
    content = b"".join(taken)
    text = content.decode("latin-1" if encoding(content) == "latin-1" else "utf-8", "replace")
    if numbers:
        lines = re.findall(r"[^\n]*\n|[^\n]+$", text)  # not splitlines: it ends lines where no one else does
        text = "".join(f"{at:6}| {line}" for at, line in enumerate(lines, offset))
    if not hint:
        return text
    separator = "" if text.endswith("\n") else "\n"
    return f"{text}{separator}[lines {offset}-{number}; {hint}]"


def show(name: str) -> str:
    """Write a file name on one line; odd ones as JSON text, which may be sent back as it stands."""
    plain = name.isprintable() and name == name.strip() and not name.startswith(('"', "["))
    return name if plain else json.dumps(name)


def decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Decode a file; the function that comes along encodes a text as the file was, or refuses what does not fit it."""
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if content.startswith(mark) and not content.startswith(codecs.BOM_UTF32_LE):
            try:
                return content[2:].decode(name), partial(_encode, mark, name, "strict")
            except UnicodeDecodeError:
                break
    if b"\0" in content[:SNIFF]:
        raise ToolError("the file is binary; only text can be edited")
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    name = "utf-8" if mark else encoding(content)
    return content[len(mark) :].decode(name, "surrogateescape"), partial(_encode, mark, name, "surrogateescape")


def _encode(mark: bytes, name: str, errors: str, text: str) -> bytes:
    try:
        return mark + text.encode(name, errors)
    except UnicodeEncodeError as error:
        odd = text[error.start]
        raise ToolError(f"the file is not in UTF-8 but in {name} or a kin of it, which has no {odd!a}") from None


def encoding(content: bytes) -> str:
    """Tell UTF-8, also with broken characters in it, from Latin-1, and from what is only known to extend ASCII."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        if MULTIBYTE.search(content):
            return "utf-8"
        return "ascii" if CONTROLS.search(content) else "latin-1"
    return "utf-8"


def _binary(file: io.BufferedReader) -> str | None:
    head = file.peek(SNIFF)[:SNIFF]
    if b"\0" not in head:
        return None
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return f"[UTF-16 text of {size} bytes; not shown: only text in UTF-8 or a kin of ASCII can be paged]"
    return f"[binary file of {size} bytes; not shown]"


def _skip(file: io.BufferedReader, offset: int, start: int) -> None:
    """Go to the first byte of the page, counting line ends block by block."""
    deadline = time.monotonic() + SECONDS
    left, position = offset - 1, 0
    ended = True  # whether what was read ends a line
    while left:
        block = file.read(BLOCK)
        if not block:
            lines = offset - 1 - left + (not ended)
            raise ToolError(f"offset {offset} is past the end: the file has {lines} lines")
        count = block.count(b"\n")
        if count >= left:
            cut = -1
            for _ in range(left):
                cut = block.index(b"\n", cut + 1)
            position += cut + 1
            break
        left -= count
        position += len(block)
        ended = block.endswith(b"\n")
        if time.monotonic() > deadline:
            raise ToolError(f"line {offset} is too far into the file: gave up after {position} bytes; use grep")
    file.seek(position)
    if offset > 1 and not file.peek(1):
        raise ToolError(f"offset {offset} is past the end: the file has {offset - 1} lines")
    if start:
        _within(file, position, start, offset)


def _within(file: io.BufferedReader, position: int, start: int, offset: int) -> None:
    deadline = time.monotonic() + SECONDS
    left = start
    while left:
        block = file.read(min(left, BLOCK))
        if not block or b"\n" in block:
            raise ToolError(f"line {offset} has no byte {start}; start is for a line that goes on")
        left -= len(block)
        if time.monotonic() > deadline:
            raise ToolError(f"byte {start} is too far into line {offset}; use grep")


def _take(file: io.BufferedReader, offset: int, limit: int, start: int) -> tuple[list[bytes], int, str]:
    lines: list[bytes] = []
    size, number = 0, offset - 1
    while len(lines) < limit:
        line = file.readline(BYTES + 1)
        if not line:
            return lines, number, ""
        if size + len(line) > BYTES:
            if lines:
                return lines, number, f"continue with offset {number + 1}"
            line = _whole(line[:BYTES])
            done = start + len(line)
            return [line], offset, f"line {offset} is longer: continue with offset {offset} and start {done}"
        lines.append(line)
        size += len(line)
        number += 1
        start = 0
    return lines, number, f"continue with offset {number + 1}" if file.peek(1) else ""


def _whole(line: bytes) -> bytes:
    """Drop a character that was cut in two at the end."""
    for back in range(1, min(4, len(line)) + 1):
        byte = line[-back]
        if byte < 0x80:
            return line
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return line[:-back] if width > back else line
    return line
