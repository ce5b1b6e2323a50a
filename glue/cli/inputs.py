"""Read the input of a run from the command line: prompts, attachments and output schemas."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from glue.errors import ConfigError
from glue.function.validation import check_schema
from glue.messages import File, Image, Part, Text

MAX_BYTES = 16 * 1024 * 1024  # of a file or of stdin
_MAX_MB = MAX_BYTES // 1024 // 1024
_IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


def read_prompt(words: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts of the prompt on a command line: words, files named with @, and stdin.

    Words are joined with spaces. `@FILE` is the content of a file, `@@word` is the word `@word`,
    `-` is stdin. Without words, the prompt is stdin. Raise UsageError if the prompt is missing or
    empty.
    """
    if not words and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("no prompt; give it in words, as @FILE or on stdin")
    pieces: list[Part] = []
    for is_text, group in groupby(words or ("-",), _is_text):
        if is_text:
            plain = (word[1:] if word.startswith("@@") else word for word in group)
            pieces.append(Text(text=" ".join(plain)))
        else:
            pieces += [_read_stdin() if word == "-" else read_part(word[1:]) for word in group]
    parts: list[Part] = []
    for piece in pieces:
        last = parts[-1] if parts else None
        if isinstance(piece, Text) and isinstance(last, Text):
            # Some models read only the first of several texts.
            parts[-1] = Text(text=f"{last.text.rstrip()}\n\n{piece.text}")
        else:
            parts.append(piece)
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise click.UsageError("the prompt is empty")
    return tuple(parts)


def _is_text(word: str) -> bool:
    return word == "@" or not re.match("-$|@[^@]", word)


def _read_stdin() -> Text:
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"stdin is larger than {_MAX_MB} MB; send less text")
    if b"\0" in data[:4096]:
        raise ConfigError("stdin is not text; attach an image or a PDF with -a FILE")
    return Text(text=data.decode("utf-8", "replace"))


def has_unread_pipe() -> bool:
    """Return whether stdin is a pipe that contains unread data."""
    try:
        import fcntl  # POSIX only
        import termios

        fd = sys.stdin.fileno()
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return False
        return any(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))  # the number of waiting bytes
    except (OSError, ValueError, AttributeError, ImportError):
        return False


def read_attachment(named: str) -> Part:
    """Return the prompt part for a value of --attach: a file, or the URL of an image.

    A file is read; a URL is sent as it is, and the provider fetches the image.
    """
    if not named.startswith(("https://", "http://")):
        return read_part(named, "--attach ")
    suffix = Path(urlsplit(named).path).suffix.lower()
    if suffix not in _IMAGES:
        kinds = ", ".join(_IMAGES)
        raise ConfigError(
            f"--attach {named}: only the URL of an image ({kinds}) can be sent; "
            "download the file and attach it"
        )
    return Image(media_type=_IMAGES[suffix], url=named)


def read_part(name: str, mark: str = "@") -> Part:
    """Read a file and return it as a part of a prompt: a text, an image or a PDF.

    The suffix of the name selects the kind of part. Raise ConfigError if the file cannot be read or
    is too large. `mark` is written before the name in error messages: "@", "--attach " or nothing.
    """
    path = Path(name)
    try:
        with path.open("rb") as file:  # with a limit: /dev/urandom is endless
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = ""
        if mark == "@" and not path.exists():
            hint = f"; write @@{name} if you mean a word that begins with @"
        raise ConfigError(f"{mark}{name} cannot be read: {error.strerror}{hint}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{mark}{name} is larger than {_MAX_MB} MB; give a smaller file")
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        return Image(media_type=_IMAGES[suffix], data=data)
    if suffix == ".pdf":
        return File(media_type="application/pdf", data=data, name=path.name)
    try:
        return Text(text=data.decode())
    except UnicodeDecodeError:
        raise ConfigError(
            f"{mark}{name} is neither UTF-8 text nor a PDF nor an image ({', '.join(_IMAGES)})"
        ) from None


def read_below(root: Path, name: str, *, advice: str = "") -> Part:
    """Read the attachment of a row or case; raise ValueError if the file is outside `root`.

    Return the attachment as a part of a prompt, as `read_part` does. A relative path is relative to
    `root`. Input files are not trusted, so they cannot name other files. `advice` is added to the
    message of the ValueError.
    """
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError(f"attachment {name!r} is outside the folder {root.resolve()}{advice}")
    return read_part(str(path), "")


def picture_paths(text: str) -> list[Path]:
    """Return the picture files that a text names, such as files dropped on the terminal.

    Only files that exist are returned. A path may be in quotes, or have a backslash before each
    space. Words that begin with @ are skipped.
    """
    found = []
    for word in re.findall(
        r"(?<!\S)(?:'[^']+'|\"[^\"]+\"|(?:\\.|[^\s\\@'\"])(?:\\.|[^\s\\])*)", text
    ):
        name = word[1:-1] if word[0] in "'\"" else re.sub(r"\\(.)", r"\1", word)
        path = Path(name.rstrip(".,;:?!")).expanduser()
        if path.suffix.lower() in _IMAGES and path.is_file():
            found.append(path)
    return found


def read_text(given: str) -> str:
    """Return the text of an option; `@FILE` is the content of a file, `@@text` means `@text`."""
    if not given.startswith("@"):
        return given
    if given.startswith("@@"):
        return given[1:]
    part = read_part(given[1:])
    if not isinstance(part, Text):
        raise ConfigError(f"{given} is not a text file")
    return part.text


_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_FIELD = re.compile(r"\s*(\w+)\s*(?:[:\s]\s*(list\[)?(str|int|float|bool)\]?)?\s*")


def read_schema(given: str) -> Mapping[str, Any]:
    """Return the JSON schema that --schema gives as JSON, as a file or as a list of fields.

    `given` is JSON, the path of a JSON file, or a list of fields such as "name: str, age: int".
    """
    is_json = given.lstrip().startswith("{")
    if is_json or given.endswith(".json") or Path(given).is_file():
        return _json_schema(given, is_json)
    fields: dict[str, Any] = {}
    for text in given.split(","):
        found = _FIELD.fullmatch(text)
        if found is None:
            kinds = f"{', '.join(_TYPES)}, list[...]"
            raise ConfigError(
                f"--schema: {text.strip()!r} is not 'name: type'; the types are: {kinds}"
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


def _json_schema(given: str, is_json: bool) -> Mapping[str, Any]:
    part = Text(text=given) if is_json else read_part(given, "--schema ")
    try:
        schema = json.loads(part.text if isinstance(part, Text) else "")
    except ValueError as error:
        raise ConfigError(f"--schema: not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ConfigError('--schema must be a JSON object, such as {"type": "object"}')
    try:
        check_schema(schema)
    except ValueError as error:
        raise ConfigError(f"--schema must be a JSON schema; {error}") from None
    return {"title": "Answer", **schema}
