"""Whether providers can be reached: a connection is opened and closed, nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import urlsplit

import anyio

from glue.errors import ConfigError
from glue.providers import known, lookup
from glue.providers.opening import find_base_url

SECONDS = 5.0


def reachable(names: Sequence[str]) -> list[tuple[str, str]]:
    """Try those that are named, or those whose key is set; give each with what is wrong, "" for nothing."""
    chosen = list(names) or [name for name in known() if any(os.environ.get(key) for key in lookup(name).key)]
    found: dict[str, str] = {}

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for name in chosen:
                group.start_soon(check, name)

    async def check(name: str) -> None:
        found[name] = await _fault(name)

    anyio.run(main)
    return [(name, found[name]) for name in chosen]


async def _fault(name: str) -> str:
    from glue.providers.address import Address, proxy_for

    try:
        row = lookup(name)
        if not row.wire:
            return ""
        address = Address(find_base_url(row, os.environ), row.name, ())
        proxy = proxy_for(address, os.environ)
    except ConfigError as error:
        return str(error)
    parts = urlsplit(proxy or address.origin)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with anyio.fail_after(SECONDS):
            if parts.scheme == "https":
                from glue.providers.http import load_engine, ssl_context

                context = ssl_context(load_engine())
                stream = await anyio.connect_tcp(parts.hostname or "", port, ssl_context=context)
            else:
                stream = await anyio.connect_tcp(parts.hostname or "", port)  # type: ignore[assignment]
            await anyio.aclose_forcefully(stream)
    except TimeoutError:
        return f"{parts.hostname}:{port} does not answer within {SECONDS:g} s"
    except ConfigError as error:
        return str(error)
    except OSError as error:  # a TLS failure is one too
        return f"{parts.hostname}:{port}: {error.strerror or error}"
    except Exception as error:
        return f"{parts.hostname}:{port}: {error}"
    return ""
