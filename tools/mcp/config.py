"""The configuration of MCP servers, in the JSON format that other programs use too.

{"mcpServers": {"files": {"command": "mcp-files", "args": ["."]}, "web": {"url": "https://..."}}}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glue.errors import ConfigError
from glue.text import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """The settings of a sign-in to an MCP server with OAuth.

    By default the user signs in with the browser, and glue registers itself as a client. A client
    that is registered already has a `client_id`. With `grant="client_credentials"` the client signs
    in with its secret or its private key, without a user or a browser, as in CI.

    >>> OAuth(client_id="ci", client_secret="s3cret", grant="client_credentials").scope
    ''
    """

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    metadata_url: str = ""  # of a client metadata document, whose URL is the client id
    scope: str = ""
    issuer: str = ""  # the authorization server that may receive the secret
    grant: str = "browser"  # or "client_credentials"
    private_key: str = field(default="", repr=False)  # PEM, instead of a secret
    algorithm: str = "RS256"  # of the private key
    port: int = 0  # to which the browser is redirected; 0 is any free port

    def __post_init__(self) -> None:
        if self.grant not in ("browser", "client_credentials"):
            raise ConfigError(f"grant must be browser or client_credentials, not {self.grant!r}")
        secret = self.client_secret or self.private_key
        if self.grant == "client_credentials" and not (self.client_id and secret):
            raise ConfigError(
                "client_credentials needs a client_id, and also a client_secret or a private_key"
            )
        if secret and not self.client_id:
            name = "client_secret" if self.client_secret else "private_key"
            raise ConfigError(f"a {name} needs a client_id: set client_id, or clientId in mcp.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The configuration of one MCP server, which has either a command or a URL.

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
    oauth: bool | OAuth = False  # sign in, with the browser if this is True
    include: tuple[str, ...] = ()  # names of tools to offer, with wildcards; empty is all of them
    exclude: tuple[str, ...] = ()  # names of tools to leave out, with wildcards

    def __post_init__(self) -> None:
        if self.command and self.url:
            raise ConfigError(
                f"MCP server {self.name!r} has both a command and a url; remove one of them"
            )
        if not self.command and not self.url:
            raise ConfigError(f"MCP server {self.name!r} needs a command or a url")


def read_config(
    source: str | os.PathLike[str] | Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> tuple[ServerConfig, ...]:
    """Return the configurations of the MCP servers in a JSON file or dict, except disabled ones.

    `${NAME}` and `${NAME:-default}` are replaced by environment variables. A disabled server has
    `"disabled": true`.
    """
    environ = os.environ if environ is None else environ
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
            raise ConfigError(f"it needs the variable {match[1]}, which is not set")
        return found

    def text(key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError(f"{key} must be a text, not {_kind(value)}")
        return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", variable, value)

    def texts(key: str) -> dict[str, str]:
        values = given.get(key) or {}
        if not isinstance(values, Mapping):
            raise TypeError(f"{key} must be an object, not {_kind(values)}")
        return {str(name): text(f"{key}.{name}", value) for name, value in values.items()}

    def listed(key: str) -> tuple[str, ...]:
        values = given.get(key, [])
        if not isinstance(values, list):
            raise TypeError(f"{key} must be a list of texts, not {_kind(values)}")
        return tuple(text(f"{key}[{at}]", value) for at, value in enumerate(values))

    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: server {name!r} must be an object, not {_kind(given)}")
    try:
        return ServerConfig(
            name=name,
            command=text("command", given.get("command", "")),
            args=listed("args"),
            env=texts("env"),
            cwd=text("cwd", given["cwd"]) if given.get("cwd") else None,
            url=text("url", given.get("url", "")),
            headers=texts("headers"),
            sse=given.get("type") == "sse",
            oauth=_oauth(given.get("oauth", False), text),
            include=listed("includeTools"),
            exclude=listed("excludeTools"),
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: server {name!r}: {error}") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: server {name!r}: {error}") from error


def _kind(value: Any) -> str:
    """Return the JSON type of a value as words for an error message, such as "a list".

    The message must not contain the value, because it may be a secret.
    """
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "a boolean",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")


# The names in mcp.json of the fields of OAuth.
_OAUTH = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "clientMetadataUrl": "metadata_url",
    "scope": "scope",
    "issuer": "issuer",
    "grant": "grant",
    "privateKey": "private_key",
    "algorithm": "algorithm",
    "port": "port",
}


def _oauth(given: Any, text: Callable[[str, Any], str]) -> bool | OAuth:
    """Return the setting "oauth" of a server as a boolean or, if it is an object, as an OAuth."""
    if isinstance(given, bool):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"oauth must be true or an object, not {_kind(given)}")
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _OAUTH:
            raise ValueError(f"unknown name {name!r} in oauth; {suggest(name, _OAUTH)}")
        fields[_OAUTH[name]] = value if name == "port" else text(f"oauth.{name}", value)
    if type(fields.get("port", 0)) is not int:
        raise TypeError(f"oauth.port must be a whole number, not {_kind(fields['port'])}")
    return OAuth(**fields)
