"""The configuration of MCP servers, as other programs write it too.

{"mcpServers": {"files": {"command": "mcp-files", "args": ["."]}, "web": {"url": "https://..."}}}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glue.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The configuration of one server: either a command or a URL.

    >>> ServerConfig(name="files", command="mcp-files", args=(".",)).url
    ''
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    # Added to the few variables that a server inherits.
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # may contain a token
    sse: bool = False  # use the older transport over HTTP
    oauth: bool = False  # sign in with the browser

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError(f"MCP server {self.name!r} needs either a command or a url")


def read_config(
    source: str | os.PathLike[str] | Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> tuple[ServerConfig, ...]:
    """Return the servers of a JSON file, or of the same content as a dict.

    `${NAME}` and `${NAME:-default}` are replaced by environment variables. Servers with
    `"disabled": true` are left out.
    """
    where, content = "the MCP configuration", source
    if not isinstance(source, Mapping):
        where = os.fspath(source)
        try:
            content = json.loads(Path(where).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{where} could not be read: {error.strerror}") from error
        except ValueError as error:
            raise ConfigError(f"{where} is not JSON: {error}") from error
    servers = None
    if isinstance(content, Mapping):
        servers = content.get("mcpServers", content.get("servers"))
    if not isinstance(servers, Mapping):
        raise ConfigError(f'{where} needs "mcpServers": {{"name": {{"command": ...}}}}')
    return tuple(
        _server(where, str(name), given, environ)
        for name, given in servers.items()
        if not (isinstance(given, Mapping) and given.get("disabled") is True)
    )


def _server(where: str, name: str, given: Any, environ: Mapping[str, str]) -> ServerConfig:
    def variable(match: re.Match[str]) -> str:
        found = environ.get(match[1]) or match[2]
        if found is None:
            raise ConfigError(
                f"{where}: server {name!r} needs the variable {match[1]}, which is not set"
            )
        return found

    def text(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError(f"a text was expected, not {value!r}")
        return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", variable, value)

    def texts(values: Any) -> dict[str, str]:
        return {str(key): text(value) for key, value in dict(values or {}).items()}

    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: server {name!r} must be an object, not {given!r}")
    args = given.get("args", [])
    try:
        if not isinstance(args, list):
            raise TypeError(f"args must be a list, not {args!r}")
        return ServerConfig(
            name=name,
            command=text(given.get("command", "")),
            args=tuple(map(text, args)),
            env=texts(given.get("env")),
            cwd=text(given["cwd"]) if given.get("cwd") else None,
            url=text(given.get("url", "")),
            headers=texts(given.get("headers")),
            sse=given.get("type") == "sse",
            oauth=given.get("oauth") is True,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: server {name!r}: {error}") from error
