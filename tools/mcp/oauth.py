"""Signing in to an MCP server through the browser: the SDK's OAuth flow, with tokens in a file for the user alone."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread

from glue.errors import ConfigError
from glue.paths import state_dir
from glue.tools.mcp.config import ServerConfig

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

SIGN_IN_SECONDS = 300.0


def token_file(url: str) -> Path:
    """Say where the tokens of a server are kept."""
    return state_dir() / "mcp" / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}.json"


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
        data = json.dumps({**self._read(), **fields}).encode()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{os.getpid()}.new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o600)
            file.write(data)
        os.replace(new, self.path)


class _Redirect(HTTPServer):
    """Waits on the loopback for the browser to come back."""

    query = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _RedirectHandler)
        self.timeout = 1.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/callback"


class _RedirectHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = urlsplit(self.path)
        if found.path == "/callback" and isinstance(self.server, _Redirect):
            self.server.query = found.query
        self.send_response(200)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"You may close this page.")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def signed_in(config: ServerConfig) -> Iterator[OAuthClientProvider]:
    """Give what signs requests to a server; where there is no token yet, the browser is opened."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    waiting = _Redirect()

    async def redirect(url: str) -> None:
        import webbrowser

        print(f"sign in to the MCP server {config.name}: {url}", file=sys.stderr)
        await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)

    async def callback() -> AuthorizationCodeResult:
        from mcp.shared.auth import AuthorizationCodeResult

        with anyio.move_on_after(SIGN_IN_SECONDS):
            while not waiting.query:
                await anyio.to_thread.run_sync(waiting.handle_request, abandon_on_cancel=True)
        found = {name: values[0] for name, values in parse_qs(waiting.query).items()}
        waiting.query = ""
        if "code" not in found:
            why = found.get("error_description") or found.get("error") or "nobody signed in"
            raise ConfigError(f"MCP server {config.name!r}: the sign-in failed: {why}")
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    metadata = OAuthClientMetadata(client_name="glue", redirect_uris=[AnyUrl(waiting.url)])
    with waiting:
        yield OAuthClientProvider(config.url, metadata, TokenFile(token_file(config.url)), redirect, callback)
