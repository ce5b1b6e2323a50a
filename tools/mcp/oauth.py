"""Sign-in to an MCP server with OAuth: opens the browser, and stores the tokens in a file."""

from __future__ import annotations

import hashlib
import json
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio

from glue.errors import ConfigError
from glue.paths import state_dir, write_private
from glue.tasks import in_thread
from glue.tools.mcp.config import ServerConfig
from glue.tools.mcp.sdk import (
    AnyUrl,
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthClientProvider,
    OAuthToken,
)

SIGN_IN_SECONDS = 300.0


class TokenFile:
    """The tokens of one server, in a file that only the user can read; a storage for the SDK."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def get_tokens(self) -> OAuthToken | None:
        found = self._read().get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
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
def sign_in(config: ServerConfig) -> Iterator[OAuthClientProvider]:
    """Return an object of the SDK that signs requests to a server.

    If no token is stored yet, the first request opens the browser, and the block listens on a local
    port to which the browser is redirected.
    """
    queries: list[str] = []  # of the URLs to which the browser was redirected

    class Callback(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = urlsplit(self.path)
            if found.path == "/callback" and found.query:
                queries.append(found.query)
            self.send_response(200)
            self.send_header("content-type", "text/plain; charset=utf-8")
            self.end_headers()
            self.wfile.write(b"You may close this page.")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    async def redirect(url: str) -> None:
        print(f"sign in to the MCP server {config.name}: {url}", file=sys.stderr)
        await in_thread(webbrowser.open, url)

    async def callback() -> AuthorizationCodeResult:
        with anyio.move_on_after(SIGN_IN_SECONDS):
            while not queries:
                await in_thread(server.handle_request)
        query = parse_qs(queries[-1]) if queries else {}
        queries.clear()
        found = {name: values[0] for name, values in query.items()}
        if "code" not in found:
            why = found.get("error_description") or found.get("error") or "the time is up"
            raise ConfigError(f"MCP server {config.name!r}: the sign-in failed: {why}")
        return AuthorizationCodeResult(
            code=found["code"], state=found.get("state"), iss=found.get("iss")
        )

    with HTTPServer(("127.0.0.1", 0), Callback) as server:
        server.timeout = 1.0
        address = AnyUrl(f"http://127.0.0.1:{server.server_port}/callback")
        metadata = OAuthClientMetadata(client_name="glue", redirect_uris=[address])
        name = hashlib.sha256(config.url.encode()).hexdigest()[:24]
        tokens = TokenFile(state_dir() / "mcp" / f"{name}.json")
        yield OAuthClientProvider(config.url, metadata, tokens, redirect, callback)
