"""Transports to MCP servers and their configuration: a process, streamable HTTP or SSE, a sign-in in the browser.

Servers are read from the usual JSON: `{"mcpServers": {"name": {"command": ...}}}`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import ObjectReceiveStream

from glue.errors import ConfigError
from glue.paths import state_dir, write_private

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

logger = logging.getLogger("glue.mcp")

SIGN_IN_SECONDS = 300.0


# Configuration -----------------------------------------------------------------------------------


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
    where, content = "the MCP configuration", source
    if not isinstance(source, Mapping):
        where = os.fspath(source)
        try:
            content = json.loads(Path(where).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{where} could not be read: {error.strerror}") from error
        except ValueError as error:
            raise ConfigError(f"{where} is no JSON: {error}") from error
    servers = content.get("mcpServers", content.get("servers")) if isinstance(content, Mapping) else None
    if not isinstance(servers, Mapping):
        raise ConfigError(f'{where} has no "mcpServers": {{"name": {{"command": ...}}}}')
    return tuple(
        _server(where, str(name), given, environ)
        for name, given in servers.items()
        if not (isinstance(given, Mapping) and given.get("disabled") is True)
    )


def _server(where: str, name: str, given: Any, environ: Mapping[str, str]) -> ServerConfig:
    def variable(match: re.Match[str]) -> str:
        found = environ.get(match[1]) or match[2]
        if found is None:
            raise ConfigError(f"{where}: server {name!r} needs the variable {match[1]}, which is not set")
        return found

    def text(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError(f"a text was expected, not {value!r}")
        return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", variable, value)

    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: server {name!r} must be an object, not {given!r}")
    try:
        if not isinstance(args := given.get("args", []), list):
            raise TypeError(f"args must be a list, not {args!r}")
        return ServerConfig(
            name=name,
            command=text(given.get("command", "")),
            args=tuple(map(text, args)),
            env={str(key): text(value) for key, value in dict(given.get("env") or {}).items()},
            cwd=text(given["cwd"]) if given.get("cwd") else None,
            url=text(given.get("url", "")),
            headers={str(key): text(value) for key, value in dict(given.get("headers") or {}).items()},
            sse=given.get("type") == "sse",
            oauth=given.get("oauth") is True,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: server {name!r}: {error}") from error


# Streams -----------------------------------------------------------------------------------------


class Transport:
    """The connection to one server, and the state it is in."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.ended = False  # nothing more can be read
        self.expired = False  # the server no longer knows the HTTP session
        self.hint = ""  # what an HTTP status means

    @asynccontextmanager
    async def open(self, on_end: Callable[[], None]) -> AsyncIterator[Any]:
        """Open the streams; `on_end` is called when the server has hung up."""

        def ended() -> None:
            self.ended = True
            on_end()

        async with AsyncExitStack() as stack:
            read, write = await (self._over_http(stack) if self.config.url else self._over_stdio(stack))
            yield _Watched(read, ended), write

    async def _over_stdio(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        config = self.config
        parameters = StdioServerParameters(
            command=config.command, args=list(config.args), env=dict(config.env), cwd=config.cwd
        )
        return await stack.enter_async_context(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr))

    async def _over_http(self, stack: AsyncExitStack) -> tuple[Any, Any]:
        import httpx2  # the SDK's own HTTP library, which takes headers from whoever makes the client
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
            hooks: Any = {"response": [self._seen]}
            return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks)

        url, headers = self.config.url, dict(self.config.headers)
        auth = stack.enter_context(signed_in(self.config)) if self.config.oauth else None
        if self.config.sse:
            return await stack.enter_async_context(sse_client(url, headers, httpx_client_factory=client, auth=auth))
        timeout = httpx2.Timeout(30.0, read=300.0)  # a stream may be silent for long
        http = await stack.enter_async_context(client(headers, timeout, auth))
        read, write, *_ = await stack.enter_async_context(streamable_http_client(url, http_client=http))
        return read, write

    async def _seen(self, response: Any) -> None:
        status = response.status_code
        if status == 404 and "mcp-session-id" in response.request.headers:
            self.expired = True
        if status in (401, 403) and not self.config.oauth:
            way = 'headers: {"Authorization": "Bearer ..."} or "oauth": true'
            self.hint = f"HTTP {status}, it wants other credentials; set {way}"


class _Watched(ObjectReceiveStream[Any]):
    """A stream that says when it has ended: the SDK reports that with a code that a server may send, too."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream, self._on_end = stream, on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


def load_sdk() -> None:
    """Import the SDK, which takes a second: in a thread, so that whatever else runs goes on."""
    try:
        import mcp
    except ImportError as error:
        raise ConfigError("MCP servers need the extra: pip install 'glue-agents[mcp]'") from error
    if not hasattr(mcp, "Client"):
        raise ConfigError("MCP servers need mcp>=2, an older one is installed: pip install 'glue-agents[mcp]'")
    logging.getLogger("mcp.client.stdio").addFilter(_noise)  # once, however often it is added


def _noise(record: logging.LogRecord) -> bool:
    """Make one debug line of what a server prints between its messages."""
    if record.exc_info is None or not isinstance(record.exc_info[1], ValueError):
        return True
    logger.debug("an MCP server wrote a line that is no message")
    return False


# Signing in --------------------------------------------------------------------------------------


class TokenFile:
    """Tokens of one server in a file of mode 0600."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        found = self._read().get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        found = self._read().get("client")
        return OAuthClientInformationFull.model_validate(found) if found else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, **fields: Any) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.path, json.dumps({**self._read(), **fields}))


@contextmanager
def signed_in(config: ServerConfig) -> Iterator[OAuthClientProvider]:
    """Give what signs requests to a server; where there is no token yet, the browser is opened."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    answers: list[str] = []  # what the browser came back with

    class Callback(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = urlsplit(self.path)
            if found.path == "/callback" and found.query:
                answers.append(found.query)
            self.send_response(200)
            self.send_header("content-type", "text/plain; charset=utf-8")
            self.end_headers()
            self.wfile.write(b"You may close this page.")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    async def redirect(url: str) -> None:
        import webbrowser

        print(f"sign in to the MCP server {config.name}: {url}", file=sys.stderr)
        await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)

    async def callback() -> AuthorizationCodeResult:
        from mcp.shared.auth import AuthorizationCodeResult

        with anyio.move_on_after(SIGN_IN_SECONDS):
            while not answers:
                await anyio.to_thread.run_sync(server.handle_request, abandon_on_cancel=True)
        found = {name: values[0] for name, values in parse_qs(answers[-1] if answers else "").items()}
        answers.clear()
        if "code" not in found:
            why = found.get("error_description") or found.get("error") or "nobody signed in"
            raise ConfigError(f"MCP server {config.name!r}: the sign-in failed: {why}")
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    with HTTPServer(("127.0.0.1", 0), Callback) as server:
        server.timeout = 1.0
        back = AnyUrl(f"http://127.0.0.1:{server.server_port}/callback")
        metadata = OAuthClientMetadata(client_name="glue", redirect_uris=[back])
        tokens = TokenFile(state_dir() / "mcp" / f"{hashlib.sha256(config.url.encode()).hexdigest()[:24]}.json")
        yield OAuthClientProvider(config.url, metadata, tokens, redirect, callback)
