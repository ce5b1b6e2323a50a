"""`--show-wire`: print the requests that a run sends, as text or as curl commands."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from glue.cli.keys import used_variable
from glue.errors import ConfigError
from glue.providers import find_base_url, known, lookup
from glue.providers.http import Sent, on_request
from glue.secrets import MASK, mask_secrets

_CURL_HEADERS = ("host", "content-length", "accept-encoding", "user-agent")  # curl sets these


@contextmanager
def print_requests(write: Callable[[str], object], *, curl: bool = False) -> Iterator[list[Sent]]:
    """Pass the text of each HTTP request in a `with` block to `write`, with keys masked.

    The yielded list collects the requests.
    """
    seen: list[Sent] = []

    def observe(sent: Sent) -> None:
        headers = tuple((name, str(mask_secrets(value))) for name, value in sent.headers)
        sent = sent._replace(headers=headers, body=str(mask_secrets(sent.body)))
        seen.append(sent)
        write(as_curl(sent) if curl else as_text(sent))

    token = on_request.set(observe)
    try:
        yield seen
    finally:
        on_request.reset(token)


def as_text(sent: Sent) -> str:
    """Return a request as readable text, with a JSON body indented."""
    try:
        body = json.dumps(json.loads(sent.body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        body = sent.body
    headers = (f"{name}: {value}" for name, value in sent.headers)
    return "\n".join((f"{sent.method} {sent.url}", *headers, "", body))


def as_curl(sent: Sent) -> str:
    """Return a request as a curl command that reads the API key from its environment variable."""
    variable = key_variable(sent.url)
    lines = [f"curl -N {shlex.quote(sent.url)}"]
    for name, value in sent.headers:
        if name in _CURL_HEADERS:
            continue
        line = f"{name}: {value}"
        if MASK in line and variable:
            pieces = (shlex.quote(part) if part else "" for part in line.split(MASK))
            lines.append("-H " + f'"${variable}"'.join(pieces))
        else:
            lines.append(f"-H {shlex.quote(line)}")
    return " \\\n  ".join((*lines, f"--data-raw {shlex.quote(sent.body)}"))


def key_variable(url: str) -> str:
    """Return the name of the variable with the API key for a URL, or "" if no such key is set.

    The variable is that of the provider whose address the URL begins with.
    """
    for name in known():
        entry = lookup(name)
        variable = used_variable(entry)
        with suppress(ConfigError):  # a provider whose address is not configured
            if not variable or not entry.wire:
                continue
            if url.startswith(find_base_url(entry, os.environ).rstrip("/")):
                return variable
    return ""
