"""Sign-in to an MCP server with OAuth: with the browser, or with the credentials of a client."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import warnings
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
from glue.tasks import caller
from glue.tools.mcp.config import OAuth, ServerConfig
from glue.tools.mcp.gate import clean
from glue.tools.mcp.sdk import (
    AnyUrl,
    AuthorizationCodeResult,
    ClientCredentialsOAuthProvider,
    MCPDeprecationWarning,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthClientProvider,
    OAuthToken,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)

SIGN_IN_SECONDS = 300.0


class TokenFile:
    """A file with the tokens and client registration of one server, which only the user can read.

    The SDK calls its methods.
    """

    def __init__(self, path: Path, client: OAuthClientInformationFull | None = None) -> None:
        self.path, self.client = path, client

    async def get_tokens(self) -> OAuthToken | None:
        found = self._read().get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self.client is not None:
            return self.client
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
    """Yield an OAuth provider of the SDK, which signs in if needed and adds tokens to requests.

    If no token is stored yet, the first request gets a token: with the credentials of the client,
    or from the user in the browser, which is then redirected to a local port.
    """
    oauth = config.oauth if isinstance(config.oauth, OAuth) else OAuth()
    # Tokens belong to one client, so another client id has a file of its own.
    key = config.url if not oauth.client_id else f"{config.url} {oauth.client_id}"
    path = state_dir() / "mcp" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    if oauth.grant == "client_credentials":
        yield _with_credentials(config, oauth, TokenFile(path))
        return
    with _Callback(oauth.port) as callback:
        yield _with_browser(config, oauth, path, callback)


def _with_credentials(config: ServerConfig, oauth: OAuth, tokens: TokenFile) -> OAuthClientProvider:
    """Return an OAuth provider that signs in with a client secret, or else with a private key."""
    shared: dict[str, Any] = {"scope": oauth.scope or None, "issuer": oauth.issuer or None}
    with warnings.catch_warnings():
        # Without an issuer, the MCP server names the authorization server; see docs/mcp.md.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        if oauth.client_secret:
            return ClientCredentialsOAuthProvider(
                config.url, tokens, oauth.client_id, oauth.client_secret, **shared
            )
        signed = SignedJWTParameters(
            issuer=oauth.client_id,
            subject=oauth.client_id,
            signing_key=oauth.private_key,
            signing_algorithm=oauth.algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            config.url, tokens, oauth.client_id, signed.create_assertion_provider(), **shared
        )


def _with_browser(
    config: ServerConfig, oauth: OAuth, path: Path, callback: _Callback
) -> OAuthClientProvider:
    """Return the OAuth provider of the SDK that signs the user in with the browser."""
    metadata = OAuthClientMetadata(
        client_name="glue", redirect_uris=[AnyUrl(callback.address)], scope=oauth.scope or None
    )
    client = None
    if oauth.client_id:
        # A client that registers itself takes the method that the server prefers.
        metadata.token_endpoint_auth_method = (
            "client_secret_basic" if oauth.client_secret else "none"
        )
        client = OAuthClientInformationFull(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret or None,
            issuer=oauth.issuer or None,
            **metadata.model_dump(exclude_none=True),
        )

    async def redirect(url: str) -> None:
        print(
            f"to sign in to the MCP server {config.name}, open this page: {clean(url)}",
            file=sys.stderr,
        )
        callback.listen()
        # Not awaited: some browsers run in the terminal until the user leaves them.
        threading.Thread(
            target=webbrowser.open, args=(url,), name="glue-browser", daemon=True
        ).start()

    async def answer() -> AuthorizationCodeResult:
        found = await callback.wait()
        if "code" not in found:
            why = found.get("error_description") or found.get("error") or "the time is up"
            raise ConfigError(f"MCP server {config.name!r}: the sign-in failed: {clean(why)}")
        return AuthorizationCodeResult(
            code=found["code"], state=found.get("state"), iss=found.get("iss")
        )

    return OAuthClientProvider(
        config.url,
        metadata,
        TokenFile(path, client),
        redirect,
        answer,
        client_metadata_url=oauth.metadata_url or None,
    )


class _Callback:
    """A local HTTP server to which the browser is redirected after the sign-in."""

    def __init__(self, port: int) -> None:
        queries = self._queries = list[str]()  # of the URLs that the browser was redirected to
        owner = self

        class CallbackHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = urlsplit(self.path)
                self.send_response(200)
                self.send_header("content-type", "text/plain; charset=utf-8")
                self.end_headers()
                self.wfile.write(b"You may close this page.")
                if found.path == "/callback" and found.query:
                    queries.append(found.query)
                    owner.notify()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", port), CallbackHandler)
        self._thread: threading.Thread | None = None
        self._arrived: anyio.Event | None = None
        self._schedule: Any = None
        self.address = f"http://127.0.0.1:{self._server.server_port}/callback"

    def __enter__(self) -> _Callback:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._server.shutdown()
        self._server.server_close()

    def listen(self) -> None:
        """Discard earlier requests, and start to answer requests in a thread, if not started yet.

        Call this before the browser is started.
        """
        self._queries.clear()
        self._arrived, self._schedule = anyio.Event(), caller()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._server.serve_forever, args=(0.05,), name="glue-sign-in", daemon=True
            )
            self._thread.start()

    def notify(self) -> None:
        """Wake the task in `wait`; this method is called in the thread of the HTTP server."""
        if self._arrived is not None:
            self._schedule(self._arrived.set)

    async def wait(self) -> dict[str, str]:
        """Wait for the browser; return the parameters of its request, or {} after a timeout."""
        assert self._arrived is not None  # `listen` was called
        with anyio.move_on_after(SIGN_IN_SECONDS):
            await self._arrived.wait()
        query = parse_qs(self._queries[-1]) if self._queries else {}
        return {name: values[0] for name, values in query.items()}
