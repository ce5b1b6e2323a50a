"""`--show-wire`: each request exactly as it is sent, keys masked, as text or as a curl command.

The HTTP module logs what it is about to send, retries and failover included; this listens there.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from glue.testing.cassette import MASK, mask

_OWN = ("host", "content-length", "accept-encoding", "user-agent")  # curl writes its own


class Sent(NamedTuple):
    """One request as it went out."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: str


@contextmanager
def wiretap(write: Callable[[str], object], *, curl: bool = False) -> Iterator[list[Sent]]:
    """Write every request that is sent while this is open; the list says what went."""
    seen: list[Sent] = []
    logger = logging.getLogger("glue.http")
    before = logger.level, logger.propagate

    class Tap(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sent = parse(record.getMessage())
            if sent is not None:
                seen.append(sent)
                write(as_curl(sent) if curl else as_text(sent))

    tap = Tap(logging.DEBUG)
    logger.addHandler(tap)
    if logger.getEffectiveLevel() > logging.DEBUG:
        logger.propagate = False  # what nobody else asked for stays here
    logger.setLevel(logging.DEBUG)
    try:
        yield seen
    finally:
        logger.removeHandler(tap)
        logger.level, logger.propagate = before


def parse(text: str) -> Sent | None:
    """Read a logged request; None for any other line of the log."""
    head, blank, body = text.partition("\n\n")
    first, *lines = head.split("\n")
    if not blank or not first.startswith("POST "):
        return None
    pairs = [line.partition(": ") for line in lines]
    return Sent(first[5:], tuple((name, str(mask(value))) for name, _, value in pairs), str(mask(body)))


def as_text(sent: Sent) -> str:
    """Write a request to be read: the body is indented where it is JSON."""
    try:
        body = json.dumps(json.loads(sent.body), indent=2, ensure_ascii=False)
    except ValueError:
        body = sent.body
    return "\n".join((f"POST {sent.url}", *(f"{name}: {value}" for name, value in sent.headers), "", body))


def as_curl(sent: Sent) -> str:
    """Write a request as a command that sends it again; the key is taken from its variable."""
    variable = key_variable(sent.url)
    lines = [f"curl -N {shlex.quote(sent.url)}"]
    for name, value in sent.headers:
        if name in _OWN:
            continue
        line = f"{name}: {value}"
        if MASK in line and variable:
            lines.append("-H " + f'"${variable}"'.join(shlex.quote(part) if part else "" for part in line.split(MASK)))
        else:
            lines.append(f"-H {shlex.quote(line)}")
    return " \\\n  ".join((*lines, f"--data-raw {shlex.quote(sent.body)}"))


def key_variable(url: str) -> str:
    """Name the variable whose key goes to an address, or "" where none is known."""
    import os

    from glue.errors import ConfigError
    from glue.providers import find_base_url, known, lookup

    for name in known():
        row = lookup(name)
        variable = next((key for key in row.key if os.environ.get(key)), "")
        if not variable or not row.wire:
            continue
        try:
            base = find_base_url(row, os.environ)
        except ConfigError:
            continue
        if url.startswith(base.rstrip("/")):
            return variable
    return ""
