"""`--show-wire`: each request exactly as it is sent, keys masked, as text or as a curl command."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from glue.errors import ConfigError
from glue.providers.http import Sent, on_request
from glue.secrets import MASK, mask_secrets

_OWN = ("host", "content-length", "accept-encoding", "user-agent")  # curl writes its own


@contextmanager
def wiretap(write: Callable[[str], object], *, curl: bool = False) -> Iterator[list[Sent]]:
    """Write every request that is sent while this is open; the list says what went."""
    seen: list[Sent] = []

    def observe(sent: Sent) -> None:
        headers = tuple((name, str(mask_secrets(value))) for name, value in sent.headers)
        sent = replace(sent, headers=headers, body=str(mask_secrets(sent.body)))
        seen.append(sent)
        write(as_curl(sent) if curl else as_text(sent))

    token = on_request.set(observe)
    try:
        yield seen
    finally:
        on_request.reset(token)


def as_text(sent: Sent) -> str:
    """Write a request to be read: the body is indented where it is JSON."""
    try:
        body = json.dumps(json.loads(sent.body), indent=2, ensure_ascii=False)
    except ValueError:
        body = sent.body
    return "\n".join((f"{sent.method} {sent.url}", *(f"{name}: {value}" for name, value in sent.headers), "", body))


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
