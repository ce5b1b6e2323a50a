"""The configuration of MCP servers, read from the usual JSON: `{"mcpServers": {"name": {"command": ...}}}`."""

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
    """One server: a command, or a URL."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # added to the few variables that are passed on
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold a token
    sse: bool = False  # the older transport over HTTP
    oauth: bool = False  # sign in through the browser

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError(f"MCP server {self.name!r} needs either a command or a url")


def read_config(
    source: str | os.PathLike[str] | Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> tuple[ServerConfig, ...]:
    """Read servers from a file or from what it would hold; `${NAME}` and `${NAME:-default}` stand for variables."""
    where = "the MCP configuration" if isinstance(source, Mapping) else os.fspath(source)
    content: Any = source if isinstance(source, Mapping) else _load(where)
    servers = content.get("mcpServers", content.get("servers")) if isinstance(content, Mapping) else None
    if not isinstance(servers, Mapping):
        raise ConfigError(f'{where} has no "mcpServers": {{"name": {{"command": ...}}}}')
    return tuple(
        _server(where, str(name), given, environ)
        for name, given in servers.items()
        if not (isinstance(given, Mapping) and given.get("disabled") is True)
    )


def _load(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} could not be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error


def _server(where: str, name: str, given: Any, environ: Mapping[str, str]) -> ServerConfig:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: server {name!r} must be an object, not {given!r}")
    put = _Variables(where, name, environ)
    try:
        return ServerConfig(
            name=name,
            command=put.text(given.get("command", "")),
            args=tuple(put.text(item) for item in _list(given.get("args", []))),
            env={str(key): put.text(value) for key, value in dict(given.get("env") or {}).items()},
            cwd=put.text(given["cwd"]) if given.get("cwd") else None,
            url=put.text(given.get("url", "")),
            headers={str(key): put.text(value) for key, value in dict(given.get("headers") or {}).items()},
            sse=given.get("type") == "sse",
            oauth=given.get("oauth") is True,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: server {name!r}: {error}") from error


class _Variables:
    def __init__(self, where: str, name: str, environ: Mapping[str, str]) -> None:
        self.where, self.name, self.environ = where, name, environ

    def text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError(f"a text was expected, not {value!r}")
        return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", self._value, value)

    def _value(self, match: re.Match[str]) -> str:
        found = self.environ.get(match[1]) or match[2]
        if found is None:
            raise ConfigError(f"{self.where}: server {self.name!r} needs the variable {match[1]}, which is not set")
        return found


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"args must be a list, not {value!r}")
    return value
