"""Tests of the sign-in with the browser."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import urllib.request
import webbrowser
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
import pytest
from fakes.mcp_servers import HttpServer, use

from glue.errors import ConfigError
from glue.tools import mcp
from glue.tools.mcp import oauth
from glue.tools.mcp.oauth import _Callback


async def test_only_the_user_can_read_the_tokens(tmp_path: Path) -> None:
    from mcp.shared.auth import OAuthToken

    from glue.tools.mcp.oauth import TokenFile

    path = tmp_path / "state" / "tokens.json"
    await TokenFile(path).set_tokens(OAuthToken(access_token="secret"))

    again = await TokenFile(path).get_tokens()
    assert again is not None
    assert again.access_token == "secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert await TokenFile(path).get_client_info() is None


class SignIn(HttpServer):
    """An HttpServer that requires a sign-in with OAuth, and is the authorization server too."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        base = f"http://{self.headers['host']}"
        path, _, query = self.path.partition("?")
        self.seen.append(path)
        if path.startswith("/.well-known/oauth-protected-resource"):
            return self.reply({"resource": f"{base}/mcp", "authorization_servers": [base]})
        if path.startswith("/.well-known/oauth-authorization-server"):
            ends = {
                "authorization_endpoint": "authorize",
                "token_endpoint": "token",
                "registration_endpoint": "register",
            }
            more = {
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
            return self.reply(
                {"issuer": base, **more, **{name: f"{base}/{end}" for name, end in ends.items()}}
            )
        if path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(query).items()}
            self.send_response(302)
            self.send_header(
                "location", f"{asked['redirect_uri']}?code=c0de&state={asked['state']}"
            )
            self.end_headers()
            return None
        return self.answer(404 if "well-known" in path else 405, b"", {})

    def do_POST(self) -> None:
        self.seen.append(self.path)
        if self.path == "/register":
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            return self.reply({**asked, "client_id": "glue-1"}, 201)
        if self.path == "/token":
            assert b"code=c0de" in self.rfile.read(int(self.headers["content-length"]))
            return self.reply({"access_token": "t0ken", "token_type": "Bearer", "expires_in": 3600})
        if self.headers.get("authorization") != "Bearer t0ken":
            self.rfile.read(int(self.headers["content-length"]))
            return self.answer(401, b"", {"www-authenticate": "Bearer"})
        return super().do_POST()

    def reply(self, body: Any, status: int = 200) -> None:
        self.answer(status, json.dumps(body).encode(), {})


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_user_signs_in_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        threading.Thread(
            target=lambda: urllib.request.urlopen(url, timeout=30).close(), daemon=True
        ).start()
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    HttpServer.sessions, HttpServer.made, HttpServer.status = set(), [], 0
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        texts = []
        for _ in range(2):
            async with mcp.connect_http("demo", url, oauth=True) as connection:
                texts.append((await use(connection, "where")).text)
        server.shutdown()

    assert len(opened) == 1  # the second connection uses the stored token
    assert all(text.startswith("in s") for text in texts)
    (kept,) = (tmp_path / "glue" / "mcp").glob("*.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["tokens"]["access_token"] == "t0ken"
    # Under another name, the tokens that earlier versions stored would not be found.
    assert kept.stem == hashlib.sha256(url.encode()).hexdigest()[:24]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_server_without_oauth_starts_no_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    HttpServer.sessions, HttpServer.made, HttpServer.status = set(), [], 0
    SignIn.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        with anyio.move_on_after(10), pytest.raises(ConfigError, match="HTTP 401: "):
            async with mcp.connect_http("demo", url):
                pass
        server.shutdown()

    assert (opened, set(SignIn.seen)) == ([], {"/mcp"})


class Registered(SignIn):
    """A SignIn that knows one client, and gives it a token for a code or for its secret."""

    grants: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        if self.path == "/register":
            return self.reply({"error": "closed"}, 403)
        if self.path != "/token":
            return super().do_POST()
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        self.grants.append(form["grant_type"][0])
        wanted = base64.b64encode(b"glue-42:s3cret").decode()
        if self.headers.get("authorization") != f"Basic {wanted}":
            return self.reply({"error": "invalid_client"}, 401)
        return self.reply({"access_token": "t0ken", "token_type": "Bearer", "expires_in": 3600})


@pytest.mark.parametrize("grant", ["browser", "client_credentials"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_registered_client_signs_in_with_its_secret(
    grant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browser(url: str) -> bool:
        """Block until the page is finished, like a browser in the terminal."""
        opened.append(url)
        urllib.request.urlopen(url, timeout=30).close()
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    HttpServer.sessions, HttpServer.made, HttpServer.status = set(), [], 0
    Registered.grants = []
    oauth = mcp.OAuth(client_id="glue-42", client_secret="s3cret", grant=grant)
    with ThreadingHTTPServer(("127.0.0.1", 0), Registered) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        async with mcp.connect_http("demo", url, oauth=oauth) as connection:
            result = await use(connection, "where")
        server.shutdown()

    expected = "authorization_code" if grant == "browser" else "client_credentials"
    assert result.text.startswith("in s")
    assert Registered.grants == [expected]
    assert len(opened) == (grant == "browser")


def visit(url: str) -> None:
    urllib.request.urlopen(url, timeout=30).close()


async def test_a_second_sign_in_without_an_answer_does_not_use_the_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _Callback(0) as callback:
        callback.listen()
        await anyio.to_thread.run_sync(visit, f"{callback.address}?code=first")
        first = await callback.wait()
        monkeypatch.setattr(oauth, "SIGN_IN_SECONDS", 0)
        callback.listen()
        second = await callback.wait()

    assert (first, second) == ({"code": "first"}, {})


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("?error=access_denied&error_description=Ask+Ada", "Ask Ada"),
        ("?error=access_denied", "access_denied"),
        ("", "the time is up"),
    ],
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_failed_sign_in_says_why(
    query: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = mcp.ServerConfig(name="demo", url="http://127.0.0.1:1/mcp")
    with _Callback(0) as callback:
        provider = oauth._with_browser(config, mcp.OAuth(), Path("unused"), callback)
        answer = provider.context.callback_handler
        assert answer is not None
        callback.listen()
        if query:
            await anyio.to_thread.run_sync(visit, callback.address + query)
        else:
            monkeypatch.setattr(oauth, "SIGN_IN_SECONDS", 0)
        with pytest.raises(ConfigError, match=f"'demo': the sign-in failed: {why}$"):
            await answer()


async def test_the_local_server_ends_with_the_sign_in() -> None:
    before = {*threading.enumerate()}
    with _Callback(0) as callback:
        callback.listen()
        (thread,) = {*threading.enumerate()} - before

    thread.join(10)
    assert not thread.is_alive()
