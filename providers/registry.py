"""From a row to a provider: the key, the base URL and the wire, at the moment of use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from glue.errors import ConfigError, MissingKey
from glue.providers.catalog import Row

if TYPE_CHECKING:
    from glue.provider import Provider
    from glue.providers.http import Deadlines

_PLACE = re.compile(r"\{([^}]+)\}")


class Opener:
    """A factory that makes providers of one row."""

    __slots__ = ("row",)

    def __init__(self, row: Row) -> None:
        self.row = row

    def __call__(
        self,
        model: str = "",
        *,
        key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        wire: str = "",
        deadlines: Deadlines | None = None,
        retries: bool = True,
        engine: str = "",
    ) -> Provider:
        from glue.providers.http import HTTP
        from glue.providers.retry import Wrapper, with_retries

        row = self.row
        secret = key if key is not None else _key(row, os.environ)
        url = base_url or find_base_url(row, os.environ)
        if not secret and row.key and not row.quirks.local and row.auth != "own":
            raise MissingKey(row.name, row.key)
        if not (model or row.model):
            raise ConfigError(f"{row.name}: which model? name it as {row.name}:MODEL")
        if wire or (row.elsewhere and url != row.base_url):
            row = replace(row, wire=wire or row.elsewhere)
        http = HTTP(
            url,
            provider=row.name,
            headers={**_auth(row, secret), **dict(row.headers), **(headers or {})},
            query=row.query,
            secrets=[secret, *(headers or {}).values()],
            deadlines=deadlines,
            engine=engine,
        )
        provider = _wire(row.wire)(row, http, model)
        return with_retries(provider) if retries else Wrapper(provider)


def find_base_url(row: Row, environ: Mapping[str, str]) -> str:
    """Return NAME_BASE_URL where it is set, else the row's own with the variables in it filled in."""
    own = row.name.upper().replace("-", "_") + "_BASE_URL"
    for variable in (own, *row.base_url_env):
        if environ.get(variable):
            return environ[variable]

    def fill(place: re.Match[str]) -> str:
        names = place[1].split("|")
        for name in names:
            if environ.get(name):
                return environ[name].rstrip("/")
        if not names[-1].isupper():
            return names[-1]
        raise ConfigError(f"{row.name}: no address; set {' or '.join(names)}, or give base_url")

    # Google has no regional host for its global location.
    return _PLACE.sub(fill, row.base_url).replace("://global-", "://")


def _key(row: Row, environ: Mapping[str, str]) -> str:
    variables = row.key[:1] if row.auth == "own" else row.key  # the others the wire itself makes use of
    return next((environ[variable].strip() for variable in variables if environ.get(variable, "").strip()), "")


def _auth(row: Row, key: str) -> dict[str, str]:
    if not key:
        return {}
    return {"authorization": f"Bearer {key}"} if row.auth in ("bearer", "own") else {row.auth: key}


def _wire(name: str) -> Any:
    """Import a wire and return its provider: the class in there that streams."""
    try:
        module = import_module(f"glue.providers.{name}")
    except ModuleNotFoundError:
        raise ConfigError(f"there is no wire {name!r}") from None
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "stream"):
            return value
    raise ConfigError(f"{name!r} is no wire: it has no class with a stream method")
