"""Functions that create a provider from a catalog entry: with key, base URL, wire and retries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from os import environ
from typing import Literal

from glue import Provider
from glue.checks import check_flag, check_text
from glue.errors import ConfigError, MissingKey
from glue.providers.catalog import CLOUDS, Entry
from glue.providers.connection import has_login
from glue.providers.http import HTTP, Deadlines, Transport
from glue.providers.retry import with_retries
from glue.providers.wire import wire_class
from glue.signature import hinted_as

_PLACEHOLDER = r"\{([^}]+)\}"  # compiled at its first use


@hinted_as("glue.providers.new")
def open_entry(
    entry: Entry,
    model: str = "",
    *,
    key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    wire: str = "",
    deadlines: Deadlines | None = None,
    retries: bool = True,
    engine: str = "",
    transport: Transport | None = None,
    tools: Literal["native", "prompt"] | None = None,
) -> Provider:
    """Create the provider of a catalog entry; raise MissingKey if it needs a key and none is set.

    Args:
        entry: the catalog entry.
        model: the model; if empty, the entry's default.
        key: the key; if None, it is read from the entry's variables.
        base_url: the base URL; if None, see `find_base_url`.
        headers: headers to send with each request.
        wire: the wire to use in place of the entry's.
        deadlines: the timeouts of a request.
        retries: whether a failed request is repeated (`with_retries`).
        engine: "httpx" or "httpx2"; if empty, the one that is installed.
        transport: sends the requests in place of glue's own connections.
        tools: "prompt" describes the tools in the prompt, for models without tool calls; if None,
            the provider's default.
    """
    if key is not None and not isinstance(key, str):
        raise TypeError(f"key must be a text, not a value of the type {type(key).__name__}")
    if base_url is not None:
        check_text("base_url", base_url)
    check_flag("retries", retries)
    if tools not in (None, "native", "prompt"):
        raise ValueError(f"tools must be 'native' or 'prompt', not {tools!r}")
    if key is None:
        # Only the first variable of a cloud contains a key; the cloud's wire reads the others.
        variables = entry.key[:1] if entry.auth in CLOUDS else entry.key
        values = (environ.get(name, "").strip() for name in variables)
        key = next(filter(None, values), "")
    url = base_url or find_base_url(entry, environ)
    if has_login(url):
        advice = f"set {' or '.join(entry.key)} to the key" if entry.key else "remove them"
        raise ConfigError(
            f"{entry.name}: the base URL must not contain a user or password; {advice}"
        )
    login = import_module(f"glue.providers.{entry.login}") if entry.login and not key else None
    can_log_in = entry.auth in CLOUDS or (login is not None and login.is_installed())
    if not key and entry.key and not entry.quirks.local and not can_log_in:
        raise MissingKey(entry.name, entry.key)
    if not (model or entry.model):
        raise ConfigError(f"{entry.name}: no model is named; write {entry.name}:MODEL")
    if wire or (entry.compatible_wire and url != entry.base_url):
        entry = entry._replace(wire=wire or entry.compatible_wire)
    is_bearer = entry.auth in ("bearer", *CLOUDS)
    auth = {"authorization": f"Bearer {key}"} if is_bearer else {entry.auth: key}
    http = HTTP(
        url,
        provider=entry.name,
        headers={**(auth if key else {}), **(headers or {})},
        secrets=[key, *(headers or {}).values()],
        deadlines=deadlines,
        engine=engine,
        transport=transport,
    )
    wired = wire_class(entry.wire)(entry, http, model)
    if login is not None:
        wired.login = login.Login()
    provider: Provider = wired
    if tools == "prompt":
        from glue.providers.prompt_tools import with_prompt_tools  # for start-up time

        provider = with_prompt_tools(provider)
    return with_retries(provider) if retries else provider


def find_base_url(entry: Entry, environ: Mapping[str, str]) -> str:
    """Return the base URL of a provider; raise ConfigError if a variable in the URL is not set.

    The URL comes from the variable NAME_BASE_URL, from another variable that the entry names, or
    from the entry. In the URL of the entry, placeholders such as {AZURE_OPENAI_ENDPOINT} are filled
    in from the environment; a placeholder may contain a default.
    """
    own = entry.name.upper().replace("-", "_") + "_BASE_URL"
    for variable in (own, *entry.base_url_env):
        if environ.get(variable):
            return environ[variable]

    def fill(placeholder: re.Match[str]) -> str:
        names = placeholder[1].split("|")
        for name in names:
            if environ.get(name):
                return environ[name].rstrip("/")
        if "AWS_REGION" in names:
            from glue.providers.aws import find_region  # for start-up time: few providers need it

            region = find_region(environ)
            if region:
                return region
        if not names[-1].isupper():
            return names[-1]
        raise ConfigError(f"{entry.name}: no base URL; set {' or '.join(names)}, or pass base_url")

    # Google's location "global" does not have a regional host.
    return re.sub(_PLACEHOLDER, fill, entry.base_url).replace("://global-", "://")
